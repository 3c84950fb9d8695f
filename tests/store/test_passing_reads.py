"""Reads for auditors leave the page cache as it was, on real files."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_node import passing_reads
from dledger_node.passing_reads import PAGE_BYTES

CHUNK = 256 * 1024
SIZE = 8 << 20


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[int]:
    """A descriptor of a file of which the page cache has nothing."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if resident_bytes(fd):
        pytest.skip("this file system keeps files in memory alone")
    yield fd
    os.close(fd)


def resident_bytes(fd: int) -> int:
    absent = passing_reads.absent_runs(fd, 0, SIZE)
    return SIZE - sum(length for _, length in absent)


def read_all(fd: int, start: int = 0, end: int = SIZE) -> bytes:
    return b"".join(
        passing_reads.read(fd, at, min(CHUNK, end - at)) for at in range(start, end, CHUNK)
    )


def test_what_was_not_in_the_page_cache_is_not_in_it_afterwards(cold: int) -> None:
    read = read_all(cold)
    after = resident_bytes(cold)

    assert after == 0
    assert read == os.pread(cold, SIZE, 0)
    assert resident_bytes(cold) == SIZE, "a usual read leaves everything there"


def test_what_was_in_the_page_cache_stays(cold: int) -> None:
    os.posix_fadvise(cold, 0, 0, os.POSIX_FADV_RANDOM)
    for page in (0, 3, 4, 63, 64, 65, 200, SIZE // PAGE_BYTES - 1):
        os.pread(cold, PAGE_BYTES, page * PAGE_BYTES)
    before = passing_reads.absent_runs(cold, 0, SIZE)

    read_all(cold)

    assert passing_reads.absent_runs(cold, 0, SIZE) == before
    assert len(before) == 4


def test_a_read_may_begin_and_end_within_a_page(cold: int) -> None:
    read = read_all(cold, 1234, SIZE - 777)
    after = resident_bytes(cold)

    assert after == 0
    assert read == os.pread(cold, SIZE, 0)[1234:-777]


def test_a_read_ends_with_the_file(cold: int) -> None:
    assert len(passing_reads.read(cold, SIZE - 10, CHUNK)) == 10
    assert passing_reads.read(cold, SIZE + PAGE_BYTES, CHUNK) == b""
    assert passing_reads.read(cold, 5, 0) == b""
