"""A run that has lost the lock of a Hadoop folder changes nothing there any more."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dledger_audit.compaction import hadoop_archive
from dledger_audit.compaction.archive import Archive
from dledger_audit.hadoop import HadoopError, HadoopFolder
from dledger_audit.places import HADOOP_LOCK_FILE
from dledger_audit.renewed_lock import LockHeldError, RenewedLock
from dledger_compaction.model import key_history
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.log.archives import INFO_FILE
from dledger_logs.histories import small_shape
from dledger_logs.write import write_log

pytestmark = pytest.mark.spark
Step = Callable[[HadoopFolder, Archive], None]
"""What a run does to the folder of an archive."""


def made(tmp_path: Path) -> Archive:
    log = write_log(tmp_path / "n0", key_history(300, 3), small_shape())
    archive = compacted(copies_of({"n0": log}), tmp_path / "made")
    assert archive is not None
    return archive


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


STEPS: dict[str, Step] = {
    "publishes the same": hadoop_archive.publish,
    "cleans up after what it fetched": lambda remote, _: hadoop_archive.remove_others(
        remote, "log-before"
    ),
    "puts a log": lambda remote, archive: remote.put(archive.log, archive.info.folder),
    "removes a log": lambda remote, archive: remote.remove(archive.info.folder),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_lost_its_lock_leaves_the_archive_of_the_next_run(
    step: str, spark: SparkSession, tmp_path: Path
) -> None:
    place, archive = tmp_path / "place", made(tmp_path)
    stopped, following = (HadoopFolder(spark.sparkContext, place.as_uri()) for _ in range(2))

    with stopped.locked():
        (place / HADOOP_LOCK_FILE).write_bytes(b"following 1")
        hadoop_archive.publish(following, archive)
        with pytest.raises(HadoopError, match="in use by another run"):
            STEPS[step](stopped, archive)

    assert names(place) == [INFO_FILE, HADOOP_LOCK_FILE, archive.info.folder]
    left = Archive.load(place)
    assert left is not None
    assert not left.damaged_files()


def test_a_run_that_loses_its_lock_midway_writes_no_further_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, archive = tmp_path / "place", made(tmp_path)
    remote = HadoopFolder(spark.sparkContext, place.as_uri())
    log = place / archive.info.folder

    def check(_: RenewedLock) -> None:
        if log.exists():
            raise LockHeldError

    monkeypatch.setattr(RenewedLock, "check", check)
    with remote.locked(), pytest.raises(HadoopError, match="in use by another run"):
        hadoop_archive.publish(remote, archive)

    assert len([each for each in log.rglob("*") if each.is_file()]) == 1


def test_a_file_that_another_run_has_put_meanwhile_is_not_written_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, archive = tmp_path / "place", made(tmp_path)
    remote = HadoopFolder(spark.sparkContext, place.as_uri())
    hadoop_archive.publish(remote, archive)
    monkeypatch.setattr(HadoopFolder, "remove", lambda *_: None)

    with pytest.raises(HadoopError, match=r"does not take log-.*exists"):
        remote.put(archive.log, archive.info.folder)

    left = Archive.load(place)
    assert left is not None
    assert not left.damaged_files()
