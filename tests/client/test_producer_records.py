"""Records of producers that cannot be used: what is wrong, and what to do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.commands.exits import UsageError
from dledger_client.commands.producer_record import RecordFile

ALL_AGAIN = "to append all of the input again, also what is already in the log"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordFile]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with RecordFile.locked("p", "g") as file:
        yield file


def problem_of(record: RecordFile) -> str:
    with pytest.raises(UsageError) as caught:
        record.load()
    return str(caught.value)


def test_a_damaged_record_says_what_a_new_one_entails(record: RecordFile) -> None:
    record.path.write_text("{")

    assert problem_of(record) == (
        f"the record of producer p is damaged: {record.path}: Input data was truncated; use "
        f"another name, or remove the record, {ALL_AGAIN}"
    )


def test_the_record_of_another_group_says_what_a_new_one_entails(record: RecordFile) -> None:
    record.path.write_text(
        '{"group":"h","producer":1,"base":0,"acknowledged":0,"checksum":0,"is_complete":true,'
        '"witness":{"index":1,"term":1,"chain_crc":0}}'
    )

    assert problem_of(record) == (
        f"{record.path} is not the record of producer p of group g; use another name, or remove "
        f"the record, {ALL_AGAIN}"
    )


def test_a_record_that_is_a_folder_is_told_without_the_words_of_python(record: RecordFile) -> None:
    record.path.mkdir()

    assert problem_of(record) == (
        f"cannot read the record of producer p: {record.path}: Is a directory"
    )


def test_a_file_in_place_of_a_folder_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))

    with (
        pytest.raises(UsageError, match="producers/g: Not a directory; set XDG_STATE_HOME to a"),
        RecordFile.locked("p", "g"),
    ):
        raise AssertionError("there is no folder")
