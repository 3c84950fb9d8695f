"""Lines from pipes and files."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_client.commands.lines import THREAD_NAME, LineTooLongError, read_lines

LINE_BYTES_MAX = 1000


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def lines_of(slices: list[bytes]) -> list[bytes]:
    """Return the lines read from a pipe into which the slices are written."""
    reading, writing = os.pipe()

    def write() -> None:
        for data in slices:
            os.write(writing, data)
        os.close(writing)

    async def read() -> list[bytes]:
        return [line async for line in read_lines(reading, LINE_BYTES_MAX)]

    writer = in_thread(write)
    try:
        return asyncio.run(read())
    finally:
        writer.join()
        os.close(reading)


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=50).map(lambda data: data.replace(b"x", b"\n")), max_size=6))
def test_lines_of_a_pipe_do_not_depend_on_the_sizes_of_the_writes(slices: list[bytes]) -> None:
    lines = b"".join(slices).split(b"\n")

    assert lines_of(slices) == (lines if lines[-1] else lines[:-1])


def test_empty_lines_are_yielded() -> None:
    assert lines_of([b"\n\na\n"]) == [b"", b"", b"a"]


def test_a_line_of_the_maximum_length_is_yielded() -> None:
    assert lines_of([b"x" * LINE_BYTES_MAX + b"\n"]) == [b"x" * LINE_BYTES_MAX]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_that_is_too_long_raises_an_error_with_its_number(end: bytes) -> None:
    with pytest.raises(LineTooLongError, match="line 3 exceeds"):
        lines_of([b"a\nb\n" + b"x" * (LINE_BYTES_MAX + 1) + end])


async def test_a_line_is_yielded_before_the_next_one_is_written() -> None:
    reading, writing = os.pipe()
    lines = read_lines(reading, LINE_BYTES_MAX)
    os.write(writing, b"first\nsec")
    assert await anext(lines) == b"first"
    os.write(writing, b"ond\n")
    assert await anext(lines) == b"second"
    os.close(writing)

    with pytest.raises(StopAsyncIteration):
        await anext(lines)
    os.close(reading)


def test_a_long_file_is_read_to_its_end(tmp_path: Path) -> None:
    expected = [b"%d" % number for number in range(100_000)]
    path = tmp_path / "lines"
    path.write_bytes(b"\n".join(expected))

    async def read() -> list[bytes]:
        with path.open("rb") as file:
            return [line async for line in read_lines(file.fileno(), LINE_BYTES_MAX)]

    assert asyncio.run(read()) == expected


async def test_an_unreadable_file_raises_an_error(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(IsADirectoryError):
        await anext(read_lines(folder, LINE_BYTES_MAX))
    os.close(folder)


def test_a_closed_reader_does_not_keep_the_program_running() -> None:
    reading, writing = os.pipe()

    async def read_one() -> bytes:
        lines = read_lines(reading, LINE_BYTES_MAX)
        line = await anext(lines)
        await lines.aclose()
        return line

    os.write(writing, b"first\nsecond\n")
    assert asyncio.run(read_one()) == b"first"
    # The thread still waits for the pipe; closing the pipe ends it.
    os.close(writing)
    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join()
    os.close(reading)
