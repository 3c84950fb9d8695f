"""`dledger` while the reader of its output pauses: answers and signals are taken nevertheless."""

import asyncio
import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Self

import pytest

from dledger_client.exports.records import CHECKSUM, RECORD, Head, pack_head
from dledger_client.paced import HELD_BYTES_MAX, PacedFile
from dledger_fake_server.group import Group
from tools.groups.waiting import wait_for

PROGRAM = [
    sys.executable, "-c", "import sys; from dledger_client.cli import main; sys.exit(main())",
]  # fmt: skip
PIPE_BYTES = 64 * 1024
BODY_BYTES = 256 * 1024
LINES = 20_000
PAUSING = "(head -c 3000000; sleep 2; cat)"


@pytest.fixture
def log(group_in_thread: Group, group_in_environment: None) -> list[bytes]:
    """Entries of 10 MiB, which members send in ranges."""
    for member in group_in_thread.members.values():
        member.supports_ranges = True
    group_in_thread.log = [b"%d" % (n % 10) * BODY_BYTES for n in range(40)]
    return group_in_thread.log


def test_a_reader_that_pauses_longer_than_the_deadline_gets_every_entry(log: list[bytes]) -> None:
    """The pause is what the test is about: calls are in flight meanwhile, and their time passes."""
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$@" | {PAUSING} | wc -c',
         "bash", *PROGRAM, "get", "0..", "-o", "bytes", "--deadline", "1"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == sum(map(len, log))


@pytest.mark.parametrize(
    ("command", "number"),
    [
        (["get", "0.."], signal.SIGINT),
        (["tail", "--from", "0", "-o", "json"], signal.SIGINT),
        (["export", "-"], signal.SIGINT),
        (["export", "-"], signal.SIGTERM),
    ],
)
@pytest.mark.usefixtures("log")
def test_a_signal_ends_a_command_whose_output_nobody_takes(
    command: list[str], number: signal.Signals
) -> None:
    with Unread(*command) as unread:
        code, err = unread.ended_by(number)

    assert code == 128 + number
    assert b"exported" not in err


@pytest.mark.usefixtures("log")
def test_an_export_that_a_signal_cuts_says_that_it_has_no_end() -> None:
    with Unread("export", "-") as unread:
        _, err = unread.ended_by(signal.SIGTERM)

    assert err == (
        b"dledger: the export has no end, since its reader takes nothing\n"
        b"dledger: ended by a signal; run the command again to go on\n"
    )


@pytest.mark.usefixtures("group_in_environment")
def test_an_export_of_an_idle_log_ends_once_its_reader_has_gone(group_in_thread: Group) -> None:
    group_in_thread.log = [b"a"]
    command = [*PROGRAM, "export", "--follow", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as export:
        assert export.stdout is not None
        assert export.stderr is not None
        head, _ = pack_head(Head(group="g0", first_index=0))
        read_exactly(export.stdout.fileno(), len(head) + RECORD.size + 1 + CHECKSUM.size)
        export.stdout.close()
        try:
            assert export.wait(timeout=20) == 1
        finally:
            export.kill()
        assert export.stderr.read() == b"dledger: the export is not whole: its reader has gone\n"


@pytest.mark.usefixtures("group_in_environment")
def test_a_signal_ends_append_whose_outcomes_nobody_takes(
    group_in_thread: Group, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("x\n" * LINES)
    with Unread("append", "-o", "json", str(tmp_path / "lines")) as unread:
        code, err = unread.ended_by(signal.SIGTERM)

    assert code == 128 + signal.SIGTERM
    assert b"acknowledged    " in err
    assert 0 < len(group_in_thread.log) <= LINES


async def test_a_file_takes_what_it_holds_in_order_once_it_is_read() -> None:
    reader, writer = os.pipe()
    file = PacedFile(writer)
    for _ in range(4):
        file.put(b"a" * PIPE_BYTES)
    await file.write(b"b" * (HELD_BYTES_MAX - 4 * PIPE_BYTES))  # waits for nothing yet
    flushing = asyncio.ensure_future(file.flush())
    read = await asyncio.to_thread(read_exactly, reader, HELD_BYTES_MAX)
    await flushing
    file.close()

    assert (read, os.read(reader, 1)) == (b"a" * 4 * PIPE_BYTES, b"")
    os.close(reader)


async def test_a_write_waits_while_much_is_held_and_ends_with_the_error() -> None:
    reader, writer = os.pipe()
    file = PacedFile(writer)
    writing = asyncio.ensure_future(file.write(b"a" * (HELD_BYTES_MAX + 1)))
    await asyncio.to_thread(wait_for, lambda: held_bytes(reader) == PIPE_BYTES, "the pipe is full")
    assert not writing.done()

    os.close(reader)
    with pytest.raises(BrokenPipeError):
        await writing
    with pytest.raises(BrokenPipeError):
        file.put(b"b")
    file.close()


async def test_a_file_that_another_program_made_non_blocking_is_written_whole() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    file = PacedFile(writer)
    file.put(b"a" * 4 * PIPE_BYTES)
    await asyncio.to_thread(read_exactly, reader, 4 * PIPE_BYTES)
    await file.flush()
    file.close()
    os.close(reader)


class Unread:
    """A command whose output goes to a pipe that nobody reads."""

    def __init__(self, *arguments: str) -> None:
        self._reader, self._writer = os.pipe()
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments], stdout=self._writer, stderr=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._reader)
        os.close(self._writer)
        self.process.kill()
        self.process.communicate()

    def is_full(self) -> bool:
        return not select.select([], [self._writer], [], 0)[1]

    def ended_by(self, number: signal.Signals) -> tuple[int, bytes]:
        """Send a signal once the pipe is full; return the exit code and standard error."""
        wait_for(self.is_full, "the pipe is full")
        self.process.send_signal(number)
        code = self.process.wait(timeout=10)
        assert self.process.stderr is not None
        return code, self.process.stderr.read()


def held_bytes(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def read_exactly(pipe: int, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += os.read(pipe, size - len(found))
    return found
