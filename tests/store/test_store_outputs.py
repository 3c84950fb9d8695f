"""`dledger-node store` with outputs that are lost, folders that cannot be read, and Ctrl-C."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_node.store.log.log_store import LogStore
from dledger_node.store_command.command import ExitCode
from dledger_store_files.command import Command
from dledger_store_files.contents import flush
from dledger_store_files.damage import flip

# Background processes of a shell ignore SIGINT, and so do their children.
START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from dledger_node.console_script import main
sys.exit(main())
"""
PEERS = "n0-127.0.0.1:1;n1-127.0.0.1:1;n2-127.0.0.1:1"
UNBUFFERED = ["", "1"]
"""Values of PYTHONUNBUFFERED, which the images set."""
UNREAD = ">&$unread"
"""Sends output to a pipe whose reader has gone. That of `| true` may go later than it is needed."""
KEPT = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}


def run_in_shell(arguments: str, **environment: str) -> tuple[int, str]:
    """Run `dledger-node store` in bash; return its exit code and what it says."""
    program = f"{sys.executable} -m dledger_node store"
    reader, unread = os.pipe()
    os.close(reader)
    with os.fdopen(unread, "wb"):
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {program} {arguments}"],
            capture_output=True, text=True, timeout=60, check=False, pass_fds=[unread],
            env=KEPT | environment | {"unread": str(unread)},
        )  # fmt: skip
    return done.returncode, done.stderr


@pytest.fixture
def damaged(written: Path) -> Path:
    """The folder of a store with a damaged entry."""
    flip(written / "data", 50)
    return written


def write_many(open_store: Callable[..., LogStore]) -> None:
    """Write more entries than a pipe takes lines."""
    store = open_store(segment=1 << 20, index_segment=32 * 5000)
    store.append_bodies([b"x"] * 5000, term=0)
    flush(store)
    store.close()


@pytest.mark.parametrize("command", ["verify", "dump", "dump -o json --bodies", "--help"])
def test_a_full_standard_output_is_named(written: Path, command: str) -> None:
    assert run_in_shell(f"{command} {written} >/dev/full") == (
        ExitCode.FAILED,
        "dledger-node: cannot write to standard output: No space left on device\n",
    )


@pytest.mark.parametrize("unbuffered", UNBUFFERED)
@pytest.mark.parametrize("to", [">&-", UNREAD])
def test_a_verdict_that_nobody_reads_shows_in_the_exit_code(
    damaged: Path, to: str, unbuffered: str
) -> None:
    done = run_in_shell(f"verify {damaged} {to}", PYTHONUNBUFFERED=unbuffered)

    assert done == (ExitCode.DAMAGED, "")


@pytest.mark.parametrize("unbuffered", UNBUFFERED)
def test_damage_that_cannot_be_repaired_is_told_although_nobody_reads_the_report(
    damaged: Path, unbuffered: str
) -> None:
    assert run_in_shell(f"repair-tail {damaged} {UNREAD}", PYTHONUNBUFFERED=unbuffered) == (
        ExitCode.DAMAGED,
        "dledger-node: nothing was changed: there is damage that this command cannot repair\n",
    )


@pytest.mark.parametrize("unbuffered", UNBUFFERED)
def test_a_dump_that_nobody_reads_ends_early(
    open_store: Callable[..., LogStore], folder: Path, unbuffered: str
) -> None:
    write_many(open_store)

    # The last entry is missing, which only a dump of the whole log finds out.
    done = run_in_shell(f"dump --last 9999 {folder} | head -1", PYTHONUNBUFFERED=unbuffered)

    assert done == (ExitCode.OK, "")


@pytest.mark.parametrize("unbuffered", UNBUFFERED)
def test_a_survivor_is_adopted_although_nobody_reads_what_may_be_lost(
    written: Path, unbuffered: str
) -> None:
    arguments = f"adopt {written} --group g --peers '{PEERS}' --http-peers '{PEERS}'"

    untouched = run_in_shell(f"{arguments} {UNREAD}", PYTHONUNBUFFERED=unbuffered)
    adopted = run_in_shell(f"{arguments} --yes {UNREAD}", PYTHONUNBUFFERED=unbuffered)

    assert untouched[0] == ExitCode.FAILED
    assert adopted == (ExitCode.OK, "")
    assert list(written.glob("adoption-*.json"))


def test_ctrl_c_ends_a_dump_without_a_traceback(
    open_store: Callable[..., LogStore], folder: Path
) -> None:
    write_many(open_store)
    with subprocess.Popen(
        [sys.executable, "-c", START, "store", "dump", "-o", "json", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=KEPT,
    ) as dump:  # fmt: skip
        assert dump.stdout is not None
        first = dump.stdout.read(1)  # the rest does not fit the pipe, so it still writes
        dump.send_signal(signal.SIGINT)
        rest, err = dump.communicate(timeout=60)

    assert (dump.returncode, err) == (130, "")
    assert (first + rest).count("\n") < 5000


def forbid(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let the system refuse a path, as it does for a user that is not its owner; root may all."""
    stat = os.stat

    def refuse(asked: object, *arguments: object, **options: object) -> os.stat_result:
        if str(asked).startswith(str(path)):
            raise PermissionError(13, "Permission denied", str(asked))
        return stat(asked, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", refuse)


@pytest.mark.parametrize("command", ["verify", "dump", "repair-tail"])
def test_a_folder_that_may_not_be_read_is_named_with_what_to_do(
    store_command: Command, written: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    forbid(monkeypatch, written)

    assert store_command(command, written) == ExitCode.FAILED
    assert store_command.error == (
        f"dledger-node: {written / 'data'}: Permission denied; run this as a user who may read the "
        "folder, such as its owner\n"
    )


@pytest.mark.parametrize("command", ["verify", "dump", "repair-tail"])
def test_a_folder_that_does_not_exist_cannot_be_read(
    store_command: Command, tmp_path: Path, command: str
) -> None:
    nowhere = tmp_path / "nowhere"

    assert store_command(command, nowhere) == ExitCode.FAILED
    assert store_command.error == f"dledger-node: {nowhere} does not exist\n"
