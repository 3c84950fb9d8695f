"""A group that demands its audit token, and a reader without it: what is refused is not damaged."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from dledger_audit.compaction.copies import ask
from dledger_audit.main import main
from dledger_compaction.model import key_history
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.audit import ExitCode
from dledger_formats.http.status import Manifest
from dledger_logs import damage
from dledger_logs.histories import small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import Interrupt
from dledger_logs.write import write_log
from dledger_scan.log_rows import members, rows_of
from pyspark_dledger.copies import RefusedError
from pyspark_dledger.intact import NoIntactCopyError, UnauthorizedCopyError
from pyspark_dledger.options import parse_members

COUNT = 500
LEVELS = {
    "index": {"index": "bigint"}, "headers": {"index": "bigint"}, "full": {"index": "bigint"},
}  # fmt: skip


def refuse(path: str) -> int | None:
    """Answer as a member does whose group demands its audit token."""
    return 401 if path.startswith(("/segments/", "/files/")) else None


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, Log]:
    return {
        member: write_log(tmp_path / member, key_history(COUNT, 3), small_shape())
        for member in ("n0", "n1", "n2")
    }


@contextmanager
def guarded(logs: Mapping[str, Log], *refusing: str) -> Iterator[str]:
    """Serve a group of which these members refuse to give bytes without a token."""
    interrupts: dict[str, Interrupt] = dict.fromkeys(refusing, refuse)
    with members(logs, interrupts=interrupts) as path:
        yield path


def test_a_proof_without_the_token_is_refused_and_names_the_option(
    logs: dict[str, Log], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compacted(copies_of(logs), tmp_path / "a") is not None

    with guarded(logs, *logs) as path:
        code = main(["verify-compaction", path, str(tmp_path / "a")])

    assert code == ExitCode.REFUSED
    stderr = capsys.readouterr().err
    assert "--token-file FILE" in stderr
    assert "damaged" not in stderr, stderr


@pytest.mark.parametrize("refusing", [("n0", "n1", "n2"), ("n1",)])
def test_nothing_is_compacted_while_a_voter_demands_a_token(
    refusing: tuple[str, ...], logs: dict[str, Log], tmp_path: Path
) -> None:
    with (
        guarded(logs, *refusing) as path,
        pytest.raises(RefusedError, match="token-file FILE") as refused,
    ):
        compacted(ask("g", parse_members(path)), tmp_path / "a")

    assert "damaged" not in str(refused.value)
    assert {each for each in logs if f"{each}: http" in str(refused.value)} == {refusing[0]}
    assert not (tmp_path / "a" / "archive.json").exists()


@pytest.mark.parametrize("level", LEVELS)
def test_a_query_without_the_token_fails_at_once_and_names_the_option(
    level: str, logs: dict[str, Log]
) -> None:
    with (
        guarded(logs, *logs) as path,
        pytest.raises(UnauthorizedCopyError, match="option tokenFile in Spark") as refused,
    ):
        rows_of(path, LEVELS[level], level=level)

    assert "damaged" not in str(refused.value)


def test_a_query_reads_members_that_demand_no_token(logs: dict[str, Log]) -> None:
    with guarded(logs, "n0", "n2") as path:
        assert [row["index"] for row in rows_of(path, LEVELS["full"])] == [*range(COUNT)]


def test_a_query_waits_for_a_member_that_demands_no_token_and_learns_the_commit(
    logs: dict[str, Log],
) -> None:
    """The member that knows the commit refuses, and the other one learns it afterwards."""
    pair, refused = {"n0": logs["n0"], "n1": logs["n1"]}, threading.Event()

    def refuse_and_tell(path: str) -> int | None:
        status = refuse(path)
        if status == 401:
            refused.set()
        return status

    def learns() -> Manifest:
        known = COUNT - 1 if refused.is_set() else 100
        return manifest(pair["n1"], "n1", peers=pair, committed_index=known)

    says = {"n0": manifest(pair["n0"], "n0", peers=pair), "n1": learns}
    with members(pair, says, {"n0": refuse_and_tell}) as path:
        assert [row["index"] for row in rows_of(path, LEVELS["full"])] == [*range(COUNT)]


def test_an_entry_that_is_damaged_on_all_members_needs_no_token(logs: dict[str, Log]) -> None:
    for log in logs.values():
        damage.flip_body(log, next(place.index for place in log.places if place.size > 60))

    with members(logs) as path, pytest.raises(NoIntactCopyError, match="damaged member") as lost:
        rows_of(path, LEVELS["full"])

    assert not isinstance(lost.value, UnauthorizedCopyError)
