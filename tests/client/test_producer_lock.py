"""The lock of a producer's record."""

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
