"""Live, dead and tombstone bytes of an audit, against what `compact` then drops."""

import json
import random
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from dledger_audit.compaction.amounts import Amounts, AmountsPass, SparkAmounts, measure
from dledger_audit.compaction.archive import Archive
from dledger_audit.main import main
from dledger_compaction.amounts import LocalAmounts
from dledger_compaction.model import key_history
from dledger_compaction.runs import compacted, copies_of
from dledger_formats import json_objects
from dledger_formats.audit import ExitCode
from dledger_formats.log import disk
from dledger_logs import damage
from dledger_logs.histories import small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.read import read_log
from dledger_logs.serve import served
from dledger_logs.write import Entry, Shape, write_log
from dledger_scan.local_audit import LocalPasses

SHAPE = small_shape()
TOMBSTONES = 20


def members_of(tmp_path: Path, entries: list[Entry], shape: Shape = SHAPE) -> dict[str, Log]:
    return {name: write_log(tmp_path / name, entries, shape) for name in ("n0", "n1", "n2")}


def measured(
    logs: dict[str, Log], passes: AmountsPass | None = None, decoder: str = "kv"
) -> Amounts:
    return measure(
        passes or LocalAmounts(),
        "g",
        {member: manifest(log, member, peers=logs) for member, log in logs.items()},
        {member: str(log.root) for member, log in logs.items()},
        logs,
        decoder_name=decoder,
        tombstone_entries=TOMBSTONES,
    )


def dropped(log: Log, archive: Archive) -> dict[str, Counter[str]]:
    """Return what became of the entries of each segment that may have a key, up to the clean point.

    Both logs are read by the tests' own walk.
    """
    kept = read_log(archive.log)
    amounts: dict[str, Counter[str]] = {}
    for segment in log.segments:
        found = amounts.setdefault(segment, Counter())
        for place in log.places_in(segment):
            raw = log.entry_bytes(place.index)
            if disk.unpack_header(raw, 0).magic != disk.NORMAL:
                continue
            if place.index > archive.info.clean_index:
                continue
            stays = disk.unpack_header(kept.entry_bytes(place.index), 0).magic == disk.NORMAL
            _, separator, value = raw[48:].partition(b"=")
            is_tombstone = bool(separator) and not value
            state = "dead" if not stays else "tombstone" if is_tombstone else "live"
            found[f"{state}_entries"] += 1
            found[f"{state}_bytes"] += len(raw) - 48
    return {name: found for name, found in amounts.items() if found}


def told(found: Amounts) -> dict[str, Counter[str]]:
    names = [f"{state}_{what}" for state in ("live", "tombstone", "dead")
             for what in ("entries", "bytes")]  # fmt: skip
    assert found.problem == ""
    return {
        each.segment: Counter({name: getattr(each, name) for name in names})
        for each in found.segments
    }


@pytest.mark.parametrize("seed", range(100))
def test_the_amounts_are_what_compact_then_drops(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    logs = members_of(tmp_path, key_history(rng.randint(150, 400), seed, keys=rng.randint(1, 40)))
    found = measured(logs, LocalAmounts(entries_max=rng.choice([None, 7, 50])))
    archive = compacted(
        copies_of(logs), tmp_path / "archive", tombstone_entries=TOMBSTONES
    )  # fmt: skip

    assert archive is not None
    assert found.clean_index == archive.info.clean_index
    assert {name: +each for name, each in told(found).items() if +each} == dropped(
        logs["n0"], archive
    )
    assert sum(each.dead_entries for each in found.segments) == archive.info.dead_entries
    assert sum(each.dead_bytes for each in found.segments) == archive.info.dead_bytes


def test_spark_finds_the_same_amounts(plain: SparkSession, tmp_path: Path) -> None:
    logs = members_of(tmp_path, key_history(400, 3))

    assert measured(logs, SparkAmounts(plain.sparkContext, entries_max=64)) == measured(logs)


def test_an_entry_that_is_damaged_on_one_member_is_counted_from_another(tmp_path: Path) -> None:
    logs = members_of(tmp_path, key_history(300, 5))
    before = measured(logs)
    damage.flip_body(logs["n0"], 40)

    assert measured(logs) == before


@pytest.mark.parametrize("is_spark", [False, True])
def test_an_entry_that_no_member_has_intact_is_named_and_nothing_is_guessed(
    tmp_path: Path, plain: SparkSession, is_spark: bool
) -> None:
    logs = members_of(tmp_path, key_history(300, 5))
    index = next(at for at, entry in enumerate(key_history(300, 5)) if at > 40 and entry.body)
    for log in logs.values():
        damage.flip_body(log, index)

    found = measured(logs, SparkAmounts(plain.sparkContext) if is_spark else None)
    assert found.segments == []
    assert found.problem.startswith(f"no copy has the entries {index} to {index} intact")


def test_amounts_need_the_commit_of_every_voter(tmp_path: Path) -> None:
    logs = members_of(tmp_path, key_history(300, 5))
    found = measure(
        LocalAmounts(),
        "g",
        {member: manifest(logs[member], member, peers=logs) for member in ("n0", "n2")},
        {member: str(log.root) for member, log in logs.items()},
        logs,
        decoder_name="kv",
        tombstone_entries=TOMBSTONES,
    )

    assert found.problem == "n1 did not answer, so its commit is not known"


def test_a_log_of_one_segment_says_that_nothing_can_be_compacted_yet(tmp_path: Path) -> None:
    found = measured(members_of(tmp_path, key_history(3, 5)))

    assert "nothing of the group g can be compacted yet" in found.problem


class FailingPass(LocalAmounts):
    """What a decoder of the user's own does that fails on a body."""

    def states(self, *_: object) -> pa.Table:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


def test_amounts_that_fail_say_so_and_leave_the_audit_its_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = members_of(tmp_path, key_history(300, 5), small_shape(1 << 12))

    found = measured(logs, FailingPass())

    assert found.problem == (
        "reading the entries failed with UnicodeDecodeError; the audit's log has more"
    )
    assert found.segments == []
    assert "invalid start byte" in capsys.readouterr().err


class EndedSpark:
    """A SparkContext whose JVM has gone."""

    def __getattr__(self, name: str) -> object:
        raise Py4JError(f"no answer to {name}")


def test_a_verdict_outlasts_the_end_of_spark_before_the_pass_for_amounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = members_of(tmp_path, key_history(300, 5), small_shape(1 << 12))
    monkeypatch.setattr("dledger_audit.main.started", lambda *_: nullcontext(EndedSpark()))
    monkeypatch.setattr("dledger_audit.main.SparkPasses", lambda *_: LocalPasses(logs))
    members = []
    with ExitStack() as stack:
        for member, log in logs.items():
            url = stack.enter_context(served(log.root, manifest(log, member, peers=logs)))
            members += ["--member", f"{member}={url}"]

        assert main(["--group", "g", *members, "--decoder", "kv"]) == ExitCode.SOUND

    assert "reading the entries failed with Py4JError" in capsys.readouterr().out


@pytest.mark.spark
def test_the_program_tells_the_amounts_of_members_over_http(tmp_path: Path) -> None:
    logs = members_of(tmp_path, key_history(300, 5), small_shape(1 << 12))
    members = []
    with ExitStack() as stack:
        for member, log in logs.items():
            url = stack.enter_context(served(log.root, manifest(log, member, peers=logs)))
            members += ["--member", f"{member}={url}"]
        ended = subprocess.run(
            [
                sys.executable, "-m", "dledger_audit", "--group", "g", *members, "--decoder", "kv",
                "--tombstone-entries", str(TOMBSTONES), "--master", "local[1]", "--output", "json",
            ],
            capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip

    assert ended.returncode == ExitCode.SOUND, ended.stderr
    found = measured(logs)
    assert found.segments
    assert json.loads(ended.stdout)["compaction"] == json.loads(json_objects.encode(found))


def test_a_decoder_that_does_not_exist_is_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--group", "g", "--member", "n0=http://h:1", "--decoder", "keys"])

    assert stopped.value.code == ExitCode.USAGE
    assert "there is no decoder 'keys'" in capsys.readouterr().err
