"""Archives and histories in a Hadoop file system, through Spark: here the one of local files."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dledger_audit.compaction import archive as archives
from dledger_audit.compaction import hadoop_archive
from dledger_audit.compaction.archive import Archive
from dledger_audit.hadoop import HadoopError, HadoopFolder
from dledger_audit.places import HADOOP_LOCK_FILE, LOCK_FILE, folder, is_uri
from dledger_audit.renewed_lock import RenewedLock
from dledger_compaction.model import key_history
from dledger_compaction.programs import Run
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.audit import AuditSummary, ExitCode, Verdict
from dledger_formats.log.archives import INFO_FILE
from dledger_logs import damage
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import served
from dledger_logs.write import Shape, write_log
from pyspark_dledger.copies import RefusedError

pytestmark = pytest.mark.spark
COUNT = 500


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
    remote = HadoopFolder(spark.sparkContext, (tmp_path / "place").as_uri())
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
    remote = HadoopFolder(spark.sparkContext, (tmp_path / "place").as_uri())
    with remote.locked(), pytest.raises(HadoopError, match="in use by another run"):
        remote.locked().__enter__()
    assert remote.names() == []

    (tmp_path / "place" / "holiday.jpg").write_bytes(b"")
    with pytest.raises(RefusedError, match=r"is no archive: it holds holiday\.jpg"):
        hadoop_archive.fetch(remote, tmp_path / "fetched")
    with pytest.raises(HadoopError, match="nosuch://here/x cannot be opened"):
        HadoopFolder(spark.sparkContext, "nosuch://here/x")


def audited(run: Run, place: Path, seed: int, *options: str) -> tuple[int, str, str]:
    """Audit three members with a history by URI."""
    shape = Shape(segment_bytes=1 << 20, index_segment_bytes=32 * 5000)
    with ExitStack() as stack:
        given: list[str] = []
        for member in ("n0", "n1", "n2"):
            root = place.parent / f"{place.name}-{seed}" / member
            log = write_log(root, history(5000, seed=seed), shape)
            peers = dict.fromkeys(("n0", "n1", "n2"), log)
            url = stack.enter_context(served(log.root, manifest(log, member, peers=peers)))
            given += ["--member", f"{member}={url}"]
        named = [] if "--history" in options else ["--history", place.as_uri()]
        return run("--group", "g", *given, *named, *options)


def test_a_history_by_uri_finds_what_changed_since(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "history"

    first, other = audited(run, place, 1), audited(run, place, 2)

    assert first[0] == ExitCode.SOUND, first
    assert names(place) == ["history.parquet"]
    assert other[0] == ExitCode.DAMAGED, other
    assert "history_changed" in other[1]


def test_a_history_that_cannot_be_kept_does_not_hide_the_verdict(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, page = tmp_path / "history", tmp_path / "page.html"
    assert audited(run, place, 1)[0] == ExitCode.SOUND

    def fail(self: HadoopFolder, source: Path, name: str) -> None:
        raise HadoopError(f"{self.uri} does not take {name}")

    monkeypatch.setattr(HadoopFolder, "replace", fail)
    code, report, stderr = audited(run, place, 2, "--html", str(page))

    assert code == ExitCode.FAILED
    assert "history_changed" in report
    assert "history_not_kept" in report
    assert "history_changed" in page.read_text()
    assert f"dledger-audit: {place.as_uri()} does not take history.parquet" in stderr
    assert "Traceback" not in stderr
    assert names(place) == ["history.parquet"], "no lock"


def test_a_history_that_cannot_be_kept_on_a_volume_does_not_end_a_job_that_has_a_verdict(
    run: Run, tmp_path: Path
) -> None:
    told, place = tmp_path / "summary", "/proc/history"  # nobody can make a folder there
    options = ["--history", place, "--summary-file", str(told), "--verdict-exits-0"]

    code, report, stderr = audited(run, tmp_path / "logs", 1, *options)

    summary = AuditSummary.from_json(told.read_bytes())
    assert (code, summary.verdict) == (0, Verdict.SOUND)
    assert [each.check for each in summary.first_findings] == ["history_not_kept"]
    assert "history_not_kept" in report
    assert "dledger-audit: the history cannot be written" in stderr


def test_a_lock_that_cannot_be_removed_hides_no_result_and_no_error(
    run: Run,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    removes = HadoopFolder.remove

    def fail(self: HadoopFolder, name: str) -> None:
        if name == HADOOP_LOCK_FILE:
            raise HadoopError(f"{self.uri} does not remove {name}")
        removes(self, name)

    monkeypatch.setattr(HadoopFolder, "remove", fail)
    place = tmp_path / "history"
    code, report, stderr = audited(run, place, 1)

    assert code == ExitCode.SOUND
    assert "Sound" in report
    assert f"does not remove {HADOOP_LOCK_FILE}; the next run waits for a minute" in stderr
    remote = HadoopFolder(spark.sparkContext, (tmp_path / "other").as_uri())
    with pytest.raises(RefusedError, match="what ended the run"), remote.locked():
        raise RefusedError("what ended the run")
    assert "the next run waits for a minute" in capsys.readouterr().err


def test_a_history_that_cannot_be_read_is_named_by_its_uri(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "history"
    place.mkdir()
    (place / "history.parquet").write_bytes(b"no Parquet")

    code, _, stderr = audited(run, place, 1)

    assert code == ExitCode.FAILED
    assert f"{place.as_uri()}/history.parquet cannot be read" in stderr
    assert "/dledger-audit-" not in stderr


def test_the_two_kinds_of_run_keep_each_other_out(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    remote = HadoopFolder(spark.sparkContext, place.as_uri())
    with archives.locked(place):
        with pytest.raises(HadoopError, match="in use by another run"), remote.locked():
            pass
        assert names(place) == [LOCK_FILE], "the refused run removes its own lock alone"
    with remote.locked():
        with pytest.raises(RefusedError, match="in use by another run"), archives.locked(place):
            pass
        assert names(place) == [LOCK_FILE, HADOOP_LOCK_FILE]
    assert names(place) == [LOCK_FILE]


def test_a_run_takes_over_the_lock_of_one_that_was_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("RENEWAL_S", 0.05), ("STALE_S", 0.6), ("LOOK_S", 0.1)):
        monkeypatch.setattr(f"dledger_audit.renewed_lock.{name}", seconds)
    place = tmp_path / "archive"
    first, second = (HadoopFolder(spark.sparkContext, place.as_uri()) for _ in range(2))
    made = tmp_path / "made"
    made.write_bytes(b"{}")
    with first.locked():
        with pytest.raises(HadoopError, match="in use by another run"), second.locked():
            pass
        first.replace(made, INFO_FILE)
    stopped = RenewedLock(first, HADOOP_LOCK_FILE)
    stopped.acquire()

    with second.locked():
        assert names(place) == [INFO_FILE, HADOOP_LOCK_FILE]
        monkeypatch.setattr(first, "_lock", stopped)
        with pytest.raises(HadoopError, match="in use by another run"):
            first.replace(made, INFO_FILE)
    assert HADOOP_LOCK_FILE not in names(place)


def test_a_local_archive_is_taken_by_uri_with_all_that_a_killed_run_left(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = compacted(copies_of(group(tmp_path / "1", 300)), tmp_path / "a")
    assert made is not None
    (tmp_path / "a" / "log-new").mkdir()
    (tmp_path / "a" / f"{INFO_FILE}.tmp").write_bytes(b"{")
    (tmp_path / "a" / f"{HADOOP_LOCK_FILE}.4711").write_bytes(b"4711 2")
    remote = HadoopFolder(spark.sparkContext, (tmp_path / "a").as_uri())

    with remote.locked():
        assert hadoop_archive.fetch(remote, tmp_path / "fetched") == made.info
        hadoop_archive.remove_others(remote, made.info.folder)

    assert names(tmp_path / "a") == [INFO_FILE, LOCK_FILE, made.info.folder]


def test_an_old_log_that_cannot_be_removed_does_not_hide_the_new_archive(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    remote = HadoopFolder(spark.sparkContext, (tmp_path / "place").as_uri())
    first = compacted(copies_of(group(tmp_path / "1", 300)), tmp_path / "a")
    later = compacted(copies_of(group(tmp_path / "2", COUNT)), tmp_path / "b")
    assert first is not None
    assert later is not None
    hadoop_archive.publish(remote, first)
    removes = HadoopFolder.remove

    def fail(self: HadoopFolder, name: str) -> None:
        if name == first.info.folder:
            raise HadoopError(f"{self.uri} does not remove {name}")
        removes(self, name)

    monkeypatch.setattr(HadoopFolder, "remove", fail)
    hadoop_archive.publish(remote, later)

    assert hadoop_archive.fetch(remote, tmp_path / "fetched") == later.info
    stderr = capsys.readouterr().err
    assert (
        f"the archive was changed, but {remote.uri} does not remove {first.info.folder}" in stderr
    )


def test_where_a_log_by_uri_begins_is_known_without_its_description(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An object store that does not rename in one step may lose the description."""
    logs = {name: damage.remove_front(log, 1) for name, log in group(tmp_path / "1", 300).items()}
    made = compacted(copies_of(logs), tmp_path / "a")
    assert made is not None
    assert made.info.first_index > 0
    (tmp_path / "a" / INFO_FILE).unlink()
    remote = HadoopFolder(spark.sparkContext, (tmp_path / "a").as_uri())

    assert hadoop_archive.fetch(remote, tmp_path / "fetched") is None

    archives.check_no_log(tmp_path / "fetched", made.info.first_index)
    with pytest.raises(RefusedError, match=made.info.folder):
        archives.check_no_log(tmp_path / "fetched", made.info.first_index + 1)


def test_a_file_that_is_not_removed_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    remote = HadoopFolder(spark.sparkContext, "file:///proc/self")
    with pytest.raises(HadoopError, match="file:///proc/self does not remove status"):
        remote.remove("status")
    HadoopFolder(spark.sparkContext, tmp_path.as_uri()).remove("nothing")


def test_an_archive_by_uri_that_is_none_is_named_by_its_uri(run: Run, tmp_path: Path) -> None:
    uri = (tmp_path / "empty").as_uri()
    code, _, stderr = run("verify-compaction", f"n0={tmp_path}", uri)
    assert code == ExitCode.REFUSED
    assert f"{uri} is no archive: it has no archive.json" in stderr


@pytest.mark.parametrize(
    ("place", "expected"),
    [("hdfs://h/x", True), ("s3a://bucket/x", True), ("file:///x", True), ("/x", False),
     (Path("/x"), False), (None, False), ("://x", False)],
)  # fmt: skip
def test_a_uri_is_told_from_a_folder(place: object, expected: bool) -> None:
    assert is_uri(place) is expected
    if isinstance(place, str):
        assert is_uri(folder(place)) is expected
