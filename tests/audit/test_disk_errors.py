"""A member that lists a file and cannot read it: the right entries are damage, and no others."""

from dataclasses import dataclass, replace

import pytest

from dledger_formats.log import disk
from dledger_logs.histories import history
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import served
from dledger_logs.write import Shape, write_log
from dledger_scan.scanning import LocalFiles, flags_of
from pyspark_dledger import plan
from pyspark_dledger.files import FAILURES_MAX, PAGE_BYTES, DiskError, ReadError
from pyspark_dledger.http_reader import HttpFiles
from pyspark_dledger.layout import Flag
from pyspark_dledger.ranges import IndexRange
from pyspark_dledger.segments import scan

COUNT = 3000
SHAPE = Shape(segment_bytes=1 << 20, index_segment_bytes=32 * 5000)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return write_log(tmp_path_factory.mktemp("member") / "log", history(COUNT), SHAPE)


@dataclass
class BadPages:
    """Files with pages of the first data file that cannot be read."""

    files: LocalFiles
    pages: set[int]
    requests: int = 0

    def read(self, folder: str, name: str, start: int, end: int) -> bytes:
        self.requests += 1
        touched = range(start // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1)
        if folder == disk.DATA_FOLDER and self.pages.intersection(touched):
            raise DiskError(f"page {min(self.pages.intersection(touched))}: input/output error")
        return self.files.read(folder, name, start, end)


def found(log: Log, pages: set[int]) -> tuple[dict[int, Flag], BadPages]:
    said = manifest(log, "n0")
    files = BadPages(LocalFiles(log.root, said), pages)
    (segment,) = plan.segments(said, IndexRange())
    return flags_of(scan(segment, files)), files


@pytest.mark.parametrize("pages", [{0}, {3}, {7, 8}, {2, 30, 31, 32}, {1, 5, 9, 13}])
def test_exactly_the_entries_in_unreadable_pages_are_damage(log: Log, pages: set[int]) -> None:
    flags, _ = found(log, pages)

    touched = {
        place.index
        for place in log.places
        if pages.intersection(
            range(place.offset // PAGE_BYTES, (place.offset + place.size - 1) // PAGE_BYTES + 1)
        )
    }
    assert {index for index, flag in flags.items() if flag & Flag.DISK_ERROR} <= touched
    assert {index for index, flag in flags.items() if flag} == touched


def test_a_file_that_cannot_be_read_at_all_costs_a_bounded_number_of_requests(log: Log) -> None:
    flags, files = found(log, set(range(1 << 10)))

    assert sorted(flags) == list(range(COUNT))
    assert all(flags.values())
    assert all(flag & Flag.DISK_ERROR for flag in flags.values())
    assert files.requests <= FAILURES_MAX + 10


@dataclass
class Silent:
    """Files that do not answer from some request on."""

    files: LocalFiles
    answers: int

    def read(self, folder: str, name: str, start: int, end: int) -> bytes:
        self.answers -= 1
        if self.answers < 0:
            raise ReadError("hung")
        return self.files.read(folder, name, start, end)


@pytest.mark.parametrize("answers", [0, 1])
@pytest.mark.parametrize("has_following", [True, False])
def test_only_the_wanted_entries_of_a_segment_that_cannot_be_read_are_absent(
    log: Log, answers: int, has_following: bool
) -> None:
    """Nothing was read, or only the place of the first one."""
    said = manifest(log, "n0")
    (segment,) = plan.segments(said, IndexRange(first=2000, last=2500))
    segment = segment if has_following else replace(segment, last_expected=None)

    flags = flags_of(scan(segment, Silent(LocalFiles(log.root, said), answers)))

    last = 2500 if has_following else 2000
    assert flags == dict.fromkeys(range(2000, last + 1), Flag.UNREADABLE)


def test_only_the_wanted_entries_are_absent_behind_others_that_were_read(log: Log) -> None:
    """Without index files, a read begins with the first entry of the segment."""
    said = manifest(log, "n0")
    (segment,) = plan.segments(said, IndexRange(first=2000, last=2500))
    segment = replace(segment, index_files=())

    flags = flags_of(scan(segment, Silent(LocalFiles(log.root, said), 1), 5000))

    absent = [index for index, flag in flags.items() if flag & Flag.UNREADABLE]
    assert absent == list(range(2000, 2501))
    assert sorted(flags) == absent, "the entries that were read on the way are not returned"


def test_an_answer_that_names_damage_is_not_asked_for_again(log: Log) -> None:
    asked: list[str] = []

    def refuse(path: str) -> int | None:
        asked.append(path)
        return 599 if "/data/" in path else None

    with (
        served(log.root, manifest(log, "n0"), refuse) as url,
        HttpFiles(url) as files,
        pytest.raises(DiskError, match="sector"),
    ):
        files.read("data", disk.file_name(0), 0, 10)

    assert len(asked) == 1


def test_bytes_that_arrived_before_a_connection_broke_are_not_asked_for_again(
    log: Log,
) -> None:
    """The first two answers break off after 100 and 50 bytes."""
    raw = log.data_path(disk.file_name(0)).read_bytes()
    with (
        served(log.root, manifest(log, "n0"), cut_after=[100, 50]) as url,
        HttpFiles(url, sleep=lambda _: None) as files,
    ):
        assert files.read("data", disk.file_name(0), 0, 1000) == raw[:1000]
