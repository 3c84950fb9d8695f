"""`dledger-audit compact` and `verify-compaction` as programs, with Spark and over HTTP."""

import itertools
import json
import os
import resource
import shutil
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dledger_audit import arguments as command_line
from dledger_audit.compaction import archive as archives
from dledger_audit.compaction.archive import Archive
from dledger_audit.compaction.compact import compact, plan
from dledger_audit.compaction.copies import ask
from dledger_audit.compaction.live import SparkLive
from dledger_audit.main import main
from dledger_compaction.folders import COUNT, compact_arguments, folders, places
from dledger_compaction.model import key_history
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.audit import ExitCode
from dledger_formats.http.status import Manifest
from dledger_logs import damage
from dledger_logs.histories import small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log
from pyspark_dledger.copies import RefusedError
from pyspark_dledger.pace import CREDIT_S_MAX


@pytest.mark.spark
def test_spark_over_http_makes_the_same_archive_from_damaged_members(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs = folders(tmp_path)
    expected = compacted(copies_of(logs), tmp_path / "expected")
    assert expected is not None
    damage.flip_body(logs["n0"], next(p.index for p in logs["n0"].places if p.size > 60))
    damage.truncate(logs["n1"], 200)
    with ExitStack() as stack:
        urls = {
            member: stack.enter_context(served(log.root, manifest(log, member, peers=logs)))
            for member, log in logs.items()
        }
        copies = ask("g", urls)
        for number, entries_max in enumerate((None, 37)):
            path = tmp_path / f"a{number}"
            with archives.locked(path):
                planned = plan("g", copies, "kv", 20, None)
                assert planned is not None
                found = compact(planned, copies, SparkLive(spark, entries_max), path)
            assert found.info.files == expected.info.files
            assert found.info.source_sha256 == expected.info.source_sha256


def test_an_archive_of_folders_is_proven_and_a_fault_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = folders(tmp_path)
    archive = compacted(copies_of(logs), tmp_path / "a")
    assert archive is not None
    proof = ["verify-compaction", ",".join(places(logs)), str(tmp_path / "a")]

    assert main(proof) == ExitCode.SOUND
    assert "the archive is right" in capsys.readouterr().out

    next((archive.log / "data").iterdir()).write_bytes(b"")
    assert main([*proof, "-o", "json"]) == ExitCode.DAMAGED
    printed = json.loads(capsys.readouterr().out)
    assert printed["counts"]["digest_differs"] == 1


def test_folders_are_only_read(tmp_path: Path) -> None:
    logs = folders(tmp_path)
    before = {member: state_of(log.root) for member, log in logs.items()}

    assert compacted(copies_of(logs), tmp_path / "a") is not None
    archive = state_of(tmp_path / "a")
    assert main(["verify-compaction", ",".join(places(logs)), str(tmp_path / "a")]) == 0

    assert {member: state_of(log.root) for member, log in logs.items()} == before
    assert state_of(tmp_path / "a") == archive


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return when each file of a folder was changed, and what it has."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in (folder, *folder.rglob("*"))
    }


def test_a_proof_reads_a_member_no_faster_than_the_rate(tmp_path: Path) -> None:
    logs, sent = folders(tmp_path), Counter[str]()
    assert compacted(copies_of(logs), tmp_path / "a") is not None
    rate = 30_000

    def count(path: str, size: int) -> None:
        sent[path] += size

    with served(logs["n0"].root, manifest(logs["n0"], "n0"), sent=count) as url:
        began_s = time.monotonic()
        code = main(
            ["verify-compaction", f"n0={url}", str(tmp_path / "a"), "--read-rate", str(rate)]
        )
        took_s = time.monotonic() - began_s

    assert code == ExitCode.SOUND
    assert sent.total() > 2 * rate, "the credit does not cover the rest"
    assert took_s >= sent.total() / rate - CREDIT_S_MAX


def test_the_programs_read_at_the_rate_of_audits_unless_told() -> None:
    parsers = {
        "compact": ["--group=g", "--member=n0=a", "--decoder=kv", "--archive=a"],
        "verify-compaction": ["n0=a", "a"],
        "": ["--group=g", "--member=n0=a"],
    }
    for command, given in parsers.items():
        _, options, _ = command_line.parse([command, *given] if command else given)
        assert options.read_rate == 50 << 20


def test_a_run_with_nothing_to_do_starts_no_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = folders(tmp_path)
    archive = compacted(copies_of(logs), tmp_path / "a", tombstone_entries=1_000_000)
    assert archive is not None

    assert main([*compact_arguments(logs, tmp_path / "a"), "-o", "json"]) == ExitCode.SOUND

    printed = json.loads(capsys.readouterr().out)
    assert (printed["sha256"], printed["endIndex"]) == (archive.info.copy_sha256, COUNT - 1)


def test_a_member_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = folders(tmp_path)
    (logs["n1"].root / "checkpoint").unlink()

    code = main(compact_arguments(logs, tmp_path / "a"))

    assert code == ExitCode.REFUSED
    stderr = capsys.readouterr().err
    assert "the member n1 cannot be read" in stderr
    assert "no sound checkpoint" in stderr


@pytest.mark.parametrize("place", ["/dev/null", "/dev/null/a", "/proc/a"])
def test_an_impossible_place_for_an_archive_is_refused(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(compact_arguments(folders(tmp_path), Path(place))) == ExitCode.REFUSED

    stderr = capsys.readouterr().err
    assert f"{place} cannot hold an archive" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("number", [0, 10])
def test_a_run_that_cannot_write_is_refused_and_leaves_no_new_log(
    number: int, tmp_path: Path
) -> None:
    history = key_history(COUNT, 3)
    early = copies_of({"n0": write_log(tmp_path / "early", history[:250], small_shape())})
    late = copies_of({"n0": write_log(tmp_path / "late", history, small_shape())})
    old = compacted(early, tmp_path / "a")
    assert old is not None
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (small_shape().segment_bytes - 1 - number, hard))
    try:
        with pytest.raises(RefusedError, match=r"cannot be written .*File too large"):
            compacted(late, tmp_path / "a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["archive.json", "lock", old.info.folder]
    assert old.damaged_files() == []


def test_a_description_that_cannot_be_written_leaves_the_old_archive(tmp_path: Path) -> None:
    history = key_history(COUNT, 3)
    early = copies_of({"n0": write_log(tmp_path / "early", history[:250], small_shape())})
    late = copies_of({"n0": write_log(tmp_path / "late", history, small_shape())})
    old = compacted(early, tmp_path / "a")
    assert old is not None
    (tmp_path / "a" / "archive.json.tmp").mkdir()

    with pytest.raises(RefusedError, match="cannot be written"):
        compacted(late, tmp_path / "a")

    assert Archive.load(tmp_path / "a") == old
    assert old.damaged_files() == []
    assert [path.name for path in (tmp_path / "a").glob("log-*")] == [old.info.folder]


def test_a_voter_without_a_place_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = folders(tmp_path)
    with served(logs["n0"].root, _with_voters(logs["n0"])) as url:
        code = main(["compact", "--group", "g", "--member", f"n0={url}", "--decoder", "kv",
                     "--archive", str(tmp_path / "a")])  # fmt: skip

    assert code == ExitCode.REFUSED
    assert "has the voters n1, n2" in capsys.readouterr().err


def _with_voters(log: Log) -> Manifest:
    said = manifest(log, "n0")
    return replace(said, status=replace(said.status, voters=["n0", "n1", "n2"]))


@pytest.mark.parametrize(
    "arguments",
    [
        ["compact", "--group", "g"],
        ["compact", "--group", "g", "--member", "n0", "--decoder", "kv", "--archive", "a"],
        ["verify-compaction", "n0=folder"],
        ["verify-compaction", "folder", "a"],
    ],
)
def test_a_wrong_command_line_of_compaction_exits_with_the_usage_code(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)

    assert stopped.value.code == ExitCode.USAGE
    assert f"; see dledger-audit {arguments[0]} --help\n" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["compact", "--archive", "a"], []])
def test_a_wrong_decoder_is_a_usage_error_of_each_command(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    member = ["--group", "g", "--member", "n0=http://127.0.0.1:1"]
    with pytest.raises(SystemExit) as stopped:
        main([*command, *member, "--decoder", "nonsense"])

    assert stopped.value.code == ExitCode.USAGE
    assert "there is no decoder 'nonsense'" in capsys.readouterr().err


class CrashError(BaseException):
    """The process ends here."""


STEPS = [
    *(((os, "fsync"), number) for number in range(0, 40, 3)),
    ((Path, "rename"), 0),
    ((Path, "replace"), 0),
    *(((shutil, "rmtree"), number) for number in range(3)),
]


@pytest.mark.parametrize(("step", "number"), STEPS)
def test_a_crash_leaves_the_old_archive_or_the_new_one(
    step: tuple[object, str], number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = key_history(COUNT, 4)
    early = copies_of({"n0": write_log(tmp_path / "early", history[:250], small_shape())})
    late = copies_of({"n0": write_log(tmp_path / "late", history, small_shape())})
    old = compacted(early, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    new = compacted(late, tmp_path / "b")
    assert old is not None
    assert new is not None
    target, name = step
    real, calls = getattr(target, name), itertools.count()

    def crash(*arguments: object, **options: object) -> object:
        if next(calls) == number:
            raise CrashError
        return real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(target, name, crash)
        with suppress(CrashError):
            compacted(late, tmp_path / "a")

    left = Archive.load(tmp_path / "a")
    assert left is not None
    assert left.damaged_files() == []
    assert left.info in (old.info, new.info)
    again = compacted(late, tmp_path / "a") or Archive.load(tmp_path / "a")
    assert again is not None
    assert again.info == new.info


def test_a_log_whose_description_is_lost_is_not_removed_if_it_begins_earlier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the only copy of what retention has removed from all members since."""
    logs, place = folders(tmp_path), tmp_path / "a"
    made = compacted(copies_of(logs), place)
    assert made is not None
    (place / "archive.json").unlink()
    late = {member: damage.remove_front(log, 1) for member, log in logs.items()}

    assert main(compact_arguments(late, place)) == ExitCode.REFUSED

    stderr = capsys.readouterr().err
    assert f"has the log {made.info.folder}" in stderr
    assert "no archive.json" in stderr
    assert made.damaged_files() == []


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_what_a_first_run_left_that_was_killed_is_made_again(
    has_checkpoint: bool, tmp_path: Path
) -> None:
    logs, place = folders(tmp_path), tmp_path / "a"
    made = compacted(copies_of(logs), place)
    assert made is not None
    (place / "archive.json").unlink()
    if not has_checkpoint:
        (made.log / "checkpoint").unlink()

    archives.check_no_log(place, 0)

    assert compacted(copies_of(logs), place) == made
