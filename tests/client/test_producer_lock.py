"""The lock of a producer's record."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from dledger_client.commands.exits import UsageError
from dledger_client.commands.producer_record import RecordFile


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the records in a folder of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_record_that_is_locked_is_refused_and_free_afterwards() -> None:
    with (
        RecordFile.locked("p", "g"),
        pytest.raises(UsageError, match="another process appends as producer p"),
        RecordFile.locked("p", "g"),
    ):
        raise AssertionError("the lock was taken twice")

    with RecordFile.locked("p", "g") as record:
        assert record.load() is None


def test_an_error_of_what_the_lock_protects_is_not_told_as_one_of_the_lock() -> None:
    with pytest.raises(BlockingIOError), RecordFile.locked("p", "g"):
        raise BlockingIOError


def test_a_file_system_without_locks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)

    with (
        pytest.raises(UsageError, match=r"cannot lock the record of producer p, .*p\.json: No lo"),
        RecordFile.locked("p", "g"),
    ):
        raise AssertionError("there is no lock")
