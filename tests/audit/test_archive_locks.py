"""The locks and the own names of archives: those of local runs, and those of runs by URI."""

import fcntl
import re
from pathlib import Path

import pytest

from dledger_audit.compaction import archive as archives
from dledger_audit.compaction import names
from dledger_audit.places import HADOOP_LOCK_FILE, LOCK_FILE
from pyspark_dledger.copies import RefusedError

LOG = f"log-{7:020d}-{7:016x}"


def test_the_two_kinds_of_lock_have_two_names() -> None:
    assert LOCK_FILE != HADOOP_LOCK_FILE


def test_a_local_run_keeps_out_of_a_folder_that_a_run_by_uri_holds(tmp_path: Path) -> None:
    held = tmp_path / HADOOP_LOCK_FILE
    held.touch()

    said = f"or one was killed: .*if none runs, remove {re.escape(str(held))}"
    with pytest.raises(RefusedError, match=said), archives.locked(tmp_path):
        pass

    assert held.exists()
    held.unlink()
    with (
        archives.locked(tmp_path),
        (tmp_path / LOCK_FILE).open() as file,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_a_run_of_either_kind_leaves_is_not_foreign() -> None:
    left = ["archive.json", "archive.json.tmp", "archive.json.part", "lock", "log-new", LOG]
    assert names.foreign([*left, HADOOP_LOCK_FILE, f"{LOG}-again"]) is None
    for other in ("holiday.jpg", "archive.json.bak", "lock.bak", "log-", f"{LOG}-2", ".lock"):
        assert names.foreign([*left, other]) == other


def test_a_local_run_takes_what_a_killed_run_by_uri_left(tmp_path: Path) -> None:
    (tmp_path / "archive.json.part").write_bytes(b"{")
    (tmp_path / LOG).mkdir()
    with archives.locked(tmp_path):
        archives.remove_others(tmp_path, "")
    assert [each.name for each in tmp_path.iterdir()] == [LOCK_FILE]
