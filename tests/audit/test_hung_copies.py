"""A copy that hangs costs one wait, however many of its segments a read needs."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from dledger_compaction.model import key_history
from dledger_compaction.runs import copies_of
from dledger_formats.log import disk
from dledger_logs import damage
from dledger_logs.histories import small_shape
from dledger_logs.layout import Log
from dledger_logs.write import write_log
from pyspark_dledger.copies import Copy
from pyspark_dledger.files import Files, GoneError, ReadError
from pyspark_dledger.intact import NoIntactCopyError, Reader
from pyspark_dledger.ranges import IndexRange
from pyspark_dledger.splits import last_within, tasks

COUNT = 300
ENTRIES = key_history(COUNT, 17, keys=25)
SHAPE = small_shape()
WANTED = IndexRange(first=0, last=COUNT - 1)


class Hung:
    """Files of which some reads end with an error."""

    def __init__(self, files: Files | None, errors: Iterator[ReadError | None]) -> None:
        """`errors` has one for each read; None lets it succeed."""
        self._files = files
        self._errors = errors
        self.names: list[str] = []

    def read(self, folder: str, name: str, start: int, end: int) -> bytes | bytearray:
        self.names.append(f"{folder}/{name}")
        error = next(self._errors, None)
        if error or self._files is None:
            raise error or ReadError("hung")
        return self._files.read(folder, name, start, end)


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, Log]:
    return {name: write_log(tmp_path / name, ENTRIES, SHAPE) for name in ("n0", "n1")}


def read_with(files: Files, copies: list[Copy]) -> list[int]:
    """Read all, with other files for n0; return the indexes."""

    def open_copy(copy: Copy) -> AbstractContextManager[Files]:
        return nullcontext(files) if copy.member == "n0" else copy.open()

    with Reader(open_copy=open_copy) as reader:
        found = list(reader.read(copies, 0, COUNT - 1))
    return [int(k) for each in found for k in each.entries.index[each.start : each.end]]


def test_a_copy_that_hangs_is_asked_once_for_all_its_segments(logs: dict[str, Log]) -> None:
    copies = copies_of(logs)
    hung = Hung(None, iter(()))

    assert read_with(hung, copies) == list(range(COUNT))
    assert len(copies[0].manifest.data) > 4
    assert len(hung.names) == 1


def test_a_copy_that_hung_once_still_gives_what_the_others_lack(logs: dict[str, Log]) -> None:
    damage.flip_body(logs["n1"], COUNT - 5)
    copies = copies_of(logs)
    with copies[0].open() as files:
        hung = Hung(files, iter([ReadError("hung")]))

        assert read_with(hung, copies) == list(range(COUNT))


def test_an_entry_that_is_left_on_a_copy_that_hangs_alone_is_refused(logs: dict[str, Log]) -> None:
    damage.flip_body(logs["n1"], COUNT - 5)
    hung = Hung(None, iter(()))

    with pytest.raises(NoIntactCopyError, match=f"entries {COUNT - 5} to {COUNT - 5} .*n0: hung"):
        read_with(hung, copies_of(logs))
    assert len(hung.names) == 2


def test_a_copy_that_has_lost_a_segment_is_read_behind_it(logs: dict[str, Log]) -> None:
    copies = copies_of(logs)
    with copies[0].open() as files:
        gone = Hung(files, iter([GoneError("gone")]))

        assert read_with(gone, copies) == list(range(COUNT))
    last = copies[0].manifest.data[-1].name
    assert f"{disk.DATA_FOLDER}/{last}" in gone.names


@pytest.mark.parametrize("task_bytes", [500, 2000])
def test_planning_asks_a_copy_that_hangs_once(logs: dict[str, Log], task_bytes: int) -> None:
    copy, hung = copies_of(logs)[0], Hung(None, iter(()))

    planned = tasks(copy, hung, [WANTED], task_bytes)

    assert [k for task in planned for each in task for k in range(each.first, each.last + 1)] == [
        *range(COUNT)
    ]
    assert len(hung.names) == 1


def test_the_bound_of_a_batch_asks_a_copy_that_hangs_once(logs: dict[str, Log]) -> None:
    copy, hung = copies_of(logs)[0], Hung(None, iter(()))

    assert 0 <= last_within(copy, hung, WANTED, 3000) < COUNT - 1
    assert len(hung.names) == 1
