"""`dledger` as a separate process: standard input, signals and closed pipes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dledger_fake_server.behavior import Fault
from dledger_fake_server.group import Group
from dledger_formats.protocol.codes import DLedgerResponseCode
from tools.groups.waiting import wait_for

Code = DLedgerResponseCode
REST = b"the rest of the input was not appended: what follows line 2\n"
pytestmark = pytest.mark.usefixtures("group_in_environment")


def start_dledger(*arguments: str, begin: str = "") -> subprocess.Popen[bytes]:
    """Start `dledger` with a buffered output, as users do, even where tests run without buffers.

    `begin` is run before all else.
    """
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return subprocess.Popen(
        [sys.executable, "-c",
         f"{begin}import sys; from dledger_client.cli import main; sys.exit(main())", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    )  # fmt: skip


def test_append_reads_standard_input(group_in_thread: Group) -> None:
    with start_dledger("append", "-") as process:
        _, err = process.communicate(b"a\nb", timeout=60)

    assert process.returncode == 0
    assert err.startswith(b"acknowledged    2\n")
    assert group_in_thread.log == [b"a", b"b"]


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ([], b"dledger: the log is empty; waiting for entry 5\n"),
        ([b"a", b"b"], b"dledger: the log ends with entry 1; waiting for entry 5\n"),
    ],
)
def test_tail_from_beyond_the_end_says_what_it_waits_for(
    group_in_thread: Group, log: list[bytes], told: bytes
) -> None:
    group_in_thread.log = log
    with start_dledger("tail", "--from", "5") as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == told
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_append_after_printing_the_summary(
    group_in_thread: Group, number: signal.Signals
) -> None:
    group_in_thread["n0"].script.extend([Code.SUCCESS, Fault.NO_ANSWER])
    with start_dledger("append", "--output", "json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"answered\nnot answered\n")
        process.stdin.flush()
        first = json.loads(process.stdout.readline())
        process.send_signal(number)
        process.wait(timeout=60)  # its input stays open
        out, err = process.communicate()

    assert first["outcome"] == "acknowledged"
    summary = json.loads(out.splitlines()[-1])["summary"]
    assert (summary["acknowledged"], summary["unfinished"]) == (1, 1)
    assert (process.returncode, err) == (128 + number, b"dledger: ended by a signal; " + REST)


@pytest.mark.parametrize("options", [[], ["--quiet"], ["-o", "json"]])
def test_an_append_that_a_signal_ends_says_after_which_line_the_input_was_left(
    group_in_thread: Group, options: list[str]
) -> None:
    with start_dledger("append", *options) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"1\n2\n")
        process.stdin.flush()
        wait_for(lambda: group_in_thread.log == [b"1", b"2"], "both lines are appended")
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
        process.wait(timeout=60)

    assert process.returncode == 130
    assert err.endswith(b"dledger: ended by a signal; " + REST)


def test_an_append_that_was_started_to_ignore_ctrl_c_goes_on(group_in_thread: Group) -> None:
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    with start_dledger("append", "-o", "json", begin=ignoring) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"before\n")
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(b"after\n", timeout=60)

    assert (process.returncode, group_in_thread.log) == (0, [b"before", b"after"])


def test_a_signal_before_anything_was_sent_says_that_nothing_was_appended() -> None:
    options = ["--servers", "127.0.0.1:1", "--deadline", "60"]
    with start_dledger("append", "--body", "x", *options) as process:
        assert process.stderr is not None
        assert b"waiting for group" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert b"These were not appended: the last 1 that were read.\n" in err
    assert b"may or may not be in the log" not in err


def test_a_signal_after_an_append_was_sent_leaves_its_outcome_open(group_in_thread: Group) -> None:
    group_in_thread["n0"].script.append(Fault.NO_ANSWER)
    with start_dledger("append", "--body", "x") as process:
        wait_for(lambda: group_in_thread["n0"].append_received.is_set(), "the append is sent")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert b"These may or may not be in the log: --body 1." in err


def test_a_closed_output_pipe_is_not_an_error(group_in_thread: Group) -> None:
    group_in_thread.log = [b"x" * 1000] * 1000
    with start_dledger("get", "--first", "0", "--last", "end") as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
        process.wait(timeout=60)

    assert (process.returncode, err) == (0, b"")


def test_a_tail_ends_as_soon_as_nobody_reads_it_although_no_entry_comes(
    group_in_thread: Group,
) -> None:
    group_in_thread.log = [b"x"]
    with start_dledger("tail", "--from", "0") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x\n"
        process.stdout.close()
        try:
            process.wait(timeout=20)
        finally:
            process.kill()
        assert process.stderr is not None
        assert (process.returncode, process.stderr.read()) == (0, b"")


@pytest.mark.parametrize(
    "arguments", [["append"], ["append", "--whole"], ["import", "--append"], ["export"]]
)
def test_a_signal_ends_a_command_that_waits_for_the_other_end_of_a_named_pipe(
    arguments: list[str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with start_dledger(*arguments, str(tmp_path / "pipe")) as process:
        wait_for(lambda: catches(process.pid, signal.SIGTERM), "the command takes signals")
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=10)
        finally:
            process.kill()

    assert process.returncode == 128 + signal.SIGTERM


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has its own handler of a signal."""
    words = Path(f"/proc/{pid}/status").read_text().split()
    return bool(int(words[words.index("SigCgt:") + 1], 16) >> (number - 1) & 1)


def test_whole_reads_a_named_pipe_to_its_end(group_in_thread: Group, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with start_dledger("append", "--whole", str(tmp_path / "pipe")) as process:
        (tmp_path / "pipe").write_bytes(b"x\n" * 100_000)
        process.communicate(timeout=60)

    assert process.returncode == 0
    assert group_in_thread.log == [b"x\n" * 100_000]


def test_a_watched_status_goes_on_while_the_group_is_away() -> None:
    options = ["--watch", "0.1", "--servers", "127.0.0.1:1", "--deadline", "0.2"]
    with start_dledger("status", *options) as process:
        assert process.stderr is not None
        output = [process.stderr.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)

    assert all(line.startswith(b"dledger: no member of group g0 answered") for line in output)
    assert process.returncode == 130


def test_a_watched_status_of_another_group_ends(group_in_thread: Group) -> None:
    with start_dledger("status", "--watch", "0.1", "--group", "other") as process:
        _, err = process.communicate(timeout=60)

    assert (process.returncode, err.count(b"\n")) == (4, 1)
