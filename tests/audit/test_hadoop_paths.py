"""Archives and histories in a Hadoop file system, through Spark: here the one of local files."""

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession

from dledger_audit import main as audit_program
from dledger_audit.compaction import command as compaction_program
from dledger_audit.compaction import hadoop_archive
from dledger_audit.compaction.archive import Archive
from dledger_audit.hadoop import HadoopError, HadoopFolder
from dledger_audit.main import main
from dledger_audit.places import folder, is_uri
from dledger_compaction.model import key_history
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.audit import ExitCode
from dledger_formats.log.archives import INFO_FILE
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import served
from dledger_logs.write import Shape, write_log
from pyspark_dledger.copies import RefusedError

pytestmark = pytest.mark.spark
COUNT = 500
Run: TypeAlias = Callable[..., tuple[int, str, str]]
"""Runs the program; returns its exit code, and what it wrote to its two outputs."""


@pytest.fixture
def run(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run the program in this process, on the session that has started already."""
    for module in (audit_program, compaction_program):
        monkeypatch.setattr(module, "started", lambda *_: nullcontext(spark))

    def program(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return program


def group(folder: Path, count: int) -> dict[str, Log]:
    return {
        member: write_log(folder / member, key_history(count, 3), small_shape())
        for member in ("n0", "n1", "n2")
    }


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_an_archive_by_uri_is_that_of_a_folder_and_is_continued_and_proven(
    run: Run, tmp_path: Path
) -> None:
    uri, place = (tmp_path / "in hadoop").as_uri().replace("%20", " "), tmp_path / "in hadoop"
    assert uri.startswith("file:///")
    alone: Archive | None = None
    for count in (300, COUNT):
        logs = group(tmp_path / str(count), count)
        alone = compacted(copies_of(logs), tmp_path / "alone", tombstone_entries=1_000_000)
        assert alone is not None
        with ExitStack() as stack:
            members: list[str] = []
            for member, log in logs.items():
                url = stack.enter_context(served(log.root, manifest(log, member, peers=logs)))
                members.append(f"{member}={url}")
            given = [word for each in members for word in ("--member", each)]
            made = run("compact", "--group", "g", *given, "--decoder", "kv", "--archive", uri)
            proven = run("verify-compaction", ",".join(members), uri)

        assert made[0] == ExitCode.SOUND, made
        assert f"{uri}/{alone.info.folder} holds the entries" in made[1]
        assert proven[0] == ExitCode.SOUND, proven
        found = Archive.load(place)
        assert found is not None
        assert (found.info.files, found.info.folder) == (alone.info.files, alone.info.folder)
        assert not found.damaged_files()
        assert names(place) == [INFO_FILE, found.info.folder], "no old log, no lock"


def test_a_run_that_fails_midway_leaves_the_old_archive(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = HadoopFolder(spark, (tmp_path / "place").as_uri())
    first = compacted(copies_of(group(tmp_path / "1", 300)), tmp_path / "a")
    assert first is not None
    hadoop_archive.publish(remote, first)
    later = compacted(copies_of(group(tmp_path / "2", COUNT)), tmp_path / "b")
    assert later is not None

    def fail(self: HadoopFolder, source: Path, name: str) -> None:
        raise HadoopError(f"{source} {name}")

    with monkeypatch.context() as patched:
        patched.setattr(HadoopFolder, "replace", fail)
        with pytest.raises(HadoopError):
            hadoop_archive.publish(remote, later)
    assert hadoop_archive.fetch(remote, tmp_path / "fetched") == first.info
    fetched = Archive.load(tmp_path / "fetched")
    assert fetched is not None
    assert not fetched.damaged_files()

    hadoop_archive.publish(remote, later)
    assert names(tmp_path / "place") == [INFO_FILE, later.info.folder]


def test_a_folder_is_used_by_one_run_and_holds_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    remote = HadoopFolder(spark, (tmp_path / "place").as_uri())
    with remote.locked(), pytest.raises(HadoopError, match="in use by another run"):
        remote.locked().__enter__()
    assert remote.names() == []

    (tmp_path / "place" / "holiday.jpg").write_bytes(b"")
    with pytest.raises(RefusedError, match=r"is no archive: it holds holiday\.jpg"):
        hadoop_archive.fetch(remote, tmp_path / "fetched")
    with pytest.raises(HadoopError, match="nosuch://here/x cannot be opened"):
        HadoopFolder(spark, "nosuch://here/x")


def test_a_history_by_uri_finds_what_changed_since(run: Run, tmp_path: Path) -> None:
    uri, place = (tmp_path / "history").as_uri(), tmp_path / "history"
    shape = Shape(segment_bytes=1 << 20, index_segment_bytes=32 * 5000)

    def audited(seed: int) -> tuple[int, str, str]:
        with ExitStack() as stack:
            given: list[str] = []
            for member in ("n0", "n1", "n2"):
                log = write_log(tmp_path / f"{seed}" / member, history(5000, seed=seed), shape)
                peers = dict.fromkeys(("n0", "n1", "n2"), log)
                url = stack.enter_context(served(log.root, manifest(log, member, peers=peers)))
                given += ["--member", f"{member}={url}"]
            return run("--group", "g", *given, "--history", uri)

    first, other = audited(1), audited(2)

    assert first[0] == ExitCode.SOUND, first
    assert names(place) == ["history.parquet"]
    assert other[0] == ExitCode.DAMAGED, other
    assert "history_changed" in other[1]


@pytest.mark.parametrize(
    ("place", "expected"),
    [("hdfs://h/x", True), ("s3a://bucket/x", True), ("file:///x", True), ("/x", False),
     (Path("/x"), False), (None, False), ("://x", False)],
)  # fmt: skip
def test_a_uri_is_told_from_a_folder(place: object, expected: bool) -> None:
    assert is_uri(place) is expected
    if isinstance(place, str):
        assert is_uri(folder(place)) is expected
