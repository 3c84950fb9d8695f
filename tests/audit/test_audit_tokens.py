"""Groups that demand their audit token: who has it reads, and a refusal is no damage."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dledger_audit.audit import audit
from dledger_audit.capture import ask_again, capture
from dledger_audit.compaction.copies import ask
from dledger_audit.main import main
from dledger_audit.report import summarize
from dledger_audit.waiting import TOKEN_S_MAX, Waits
from dledger_client.client import DLedgerClient
from dledger_formats.admin_tokens import AdminTokens
from dledger_formats.audit import AuditSummary, Verdict
from dledger_scan.local_audit import RemotePasses
from pyspark_dledger.bearer import VARIABLE, Bearer
from pyspark_dledger.copies import RefusedError
from pyspark_dledger.files import UnauthorizedError
from pyspark_dledger.http_reader import HttpFiles
from pyspark_dledger.options import OptionError, parse
from tools.groups.node_group import NodeGroup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD, NEW = (AdminTokens(accepted=(token * 10,), version="1") for token in ("old-", "new-"))
FIRST = "0" * 20
COUNT = 300


@dataclass(frozen=True)
class Guarded:
    """A group that accepts OLD, and a file for its audits."""

    group: NodeGroup
    file: Path

    @property
    def urls(self) -> dict[str, str]:
        ports = self.group.http_ports
        return {each: f"http://127.0.0.1:{ports[each]}" for each in self.group.peers}

    @property
    def members(self) -> str:
        return ",".join(f"{member}={url}" for member, url in self.urls.items())


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "tokens").write_text(OLD.to_text())
    (folder / "audit").write_text(OLD.for_audits().to_text())
    with NodeGroup(folder, admin_token_file=str(folder / "tokens")) as group:
        asyncio.run(append(group))
        for member in group.peers:
            group.wait_for_status(
                member, lambda view: view.committed_index >= COUNT - 1, "knows all as committed"
            )
        yield Guarded(group, folder / "audit")


async def append(group: NodeGroup) -> None:
    async with DLedgerClient(group.servers, "g") as client:
        await client.append_batch([bytes(100)] * COUNT, deadline_s=30)


def audited(guarded: Guarded) -> AuditSummary:
    captured = capture("g", guarded.urls)
    with closing(RemotePasses(guarded.urls)) as passes:
        return summarize(captured, audit(passes, captured, lambda: ask_again(captured)))


@pytest.mark.group
def test_an_audit_without_the_token_is_incomplete_and_says_why(guarded: Guarded) -> None:
    summary = audited(guarded)

    assert summary.verdict is Verdict.INCOMPLETE
    assert any("demands its audit token" in each.detail for each in summary.first_findings), summary


@pytest.mark.group
def test_a_file_of_the_variable_that_is_missing_is_named_once_a_member_demands_the_token(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "missing.token")  # a long path would be cut

    summary = audited(guarded)

    assert summary.verdict is Verdict.INCOMPLETE
    told = [each.detail for each in summary.first_findings]
    named = f"{VARIABLE} names the file missing.token, which does not exist"
    assert any(named in each for each in told), told


@pytest.mark.parametrize("bearer", [Bearer(token="x" * 32), Bearer(file="elsewhere")])
def test_a_file_that_is_not_used_is_not_named(
    bearer: Bearer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))

    assert bearer.lack() == ""
    assert str(tmp_path / "nowhere") in Bearer().lack()


@pytest.mark.group
def test_an_audit_with_the_token_is_sound(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(guarded.file))

    summary = audited(guarded)

    assert summary.verdict is Verdict.SOUND, summary


@pytest.mark.group
def test_a_token_that_is_replaced_during_an_audit_is_read_again(
    guarded: Guarded, tmp_path: Path
) -> None:
    file = tmp_path / "audit"
    file.write_text(NEW.for_audits().to_text())
    with HttpFiles(guarded.urls["n0"], bearer=Bearer(file=str(file))) as files:
        with pytest.raises(UnauthorizedError, match=r"is not one of this group's.*tokenFile"):
            files.read("data", FIRST, 0, 10)

        file.write_text(OLD.for_audits().to_text())
        assert len(files.read("data", FIRST, 0, 10)) == 10
        file.unlink()
        assert len(files.read("data", FIRST, 0, 10)) == 10, "a token in use stays"


@pytest.mark.group
def test_an_audit_waits_for_a_token_that_was_just_made(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file comes late, and the member knows its token later still."""
    file, pauses = tmp_path / "audit", list[float]()
    monkeypatch.setenv(VARIABLE, str(file))

    def pass_time(seconds: float) -> None:
        pauses.append(seconds)
        file.write_text((OLD if len(pauses) > 3 else NEW).for_audits().to_text())

    waits = Waits(opening_s_max=1, sleep=pass_time)
    captured = capture("g", {"n0": guarded.urls["n0"]}, waits.opened)

    assert captured.manifests.keys() == {"n0"}
    assert pauses == [2.0] * 4


@pytest.mark.group
def test_a_token_that_does_not_come_in_time_is_named_by_an_audit_and_by_compaction(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]

    def pass_time(seconds: float) -> None:
        now_s[0] += seconds

    waits = Waits(opening_s_max=1, clock=lambda: now_s[0], sleep=pass_time)
    place = {"n0": guarded.urls["n0"]}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "missing.token")  # a long path would be cut

    found = capture("g", place, waits.opened).findings

    missing = f"{VARIABLE} names the file missing.token, which does not exist"
    assert [each.check for each in found if each.member == "n0"] == ["member_unreachable"]
    assert missing in found[0].detail
    assert f"waited for {TOKEN_S_MAX} s: http" in found[0].detail
    with pytest.raises(RefusedError, match=f"waited for {TOKEN_S_MAX} s.*{missing}"):
        ask("g", place, waits)


@pytest.mark.group
def test_nothing_is_waited_for_without_a_token(guarded: Guarded) -> None:
    pauses: list[float] = []
    waits = Waits(opening_s_max=1, sleep=pauses.append)

    assert len(capture("g", guarded.urls, waits.opened).manifests) == len(guarded.urls)
    assert pauses == []


@pytest.mark.parametrize("view", ["log", "members"])
def test_the_data_source_takes_the_token_or_a_file_with_it(
    guarded: Guarded, spark: "SparkSession", view: str
) -> None:
    count = COUNT if view == "log" else 3 * COUNT

    for option in (
        {"token": OLD.for_audits().current},
        {"tokenFile": str(guarded.file)},
    ):
        # A reader keeps its options, and would give both.
        asked = spark.read.format("dledger").option("view", view).schema("index long")
        assert asked.options(**option).load(guarded.members).count() >= count


def test_a_wrong_token_or_file_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(OptionError, match="32 to 256 printable"):
        parse({"path": "n0=http://127.0.0.1:1", "token": "too short"})
    (tmp_path / "wrong").write_text("too short\n")

    for name, reason in (("nowhere", "No such file"), ("wrong", "line 1 is not a token")):
        with pytest.raises(SystemExit) as ended:
            main(["--group=g", "--member=n0=http://127.0.0.1:1", f"--token-file={tmp_path / name}"])
        assert ended.value.code == 2
        assert reason in capsys.readouterr().err
    assert VARIABLE not in os.environ


def test_a_token_and_a_file_with_one_are_refused_together(guarded: Guarded) -> None:
    token = OLD.for_audits().current
    with pytest.raises(OptionError, match="token and tokenFile are both given") as caught:
        parse({"path": guarded.members, "token": token, "TOKENFILE": str(guarded.file)})

    assert token not in str(caught.value)


def test_no_plan_or_error_shows_the_token() -> None:
    token = OLD.for_audits().current
    assert token not in repr(parse({"path": "n0=http://127.0.0.1:1", "token": token}))
