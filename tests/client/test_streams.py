"""`dledger` with standard streams that are closed, full, or no longer read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dledger_fake_server.behavior import Fault
from dledger_fake_server.group import Group

pytestmark = pytest.mark.usefixtures("group_in_environment")
LINES = 20_000
PROGRAM = f"{sys.executable} -c 'import sys; from dledger_client.cli import main; sys.exit(main())'"

UNREAD = ">&$unread"
"""Sends output to a pipe whose reader has gone. That of `| true` may go later than it is needed."""


@pytest.fixture
def lines_file(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.write_text("".join(f"{number}\n" for number in range(LINES)))
    return path


def run_in_shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `dledger` is the program; return its exit code and output."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    reader, unread = os.pipe()
    os.close(reader)
    with os.fdopen(unread, "wb"):
        return subprocess.run(
            ["bash", "-c", f"dledger() {{ {PROGRAM} \"$@\"; }}; set -o pipefail; {command}"],
            capture_output=True, text=True, timeout=60, check=False, pass_fds=[unread],
            env=kept | environment | {"unread": str(unread)},
        )  # fmt: skip


def test_append_whose_outcomes_nobody_reads_stops_and_fails(
    group_in_thread: Group, lines_file: Path
) -> None:
    done = run_in_shell(f"dledger append -o json {lines_file} | head -1")

    assert json.loads(done.stdout)["number"] == 0
    assert done.returncode == 1
    assert 0 < len(group_in_thread.log) < LINES
    assert f"acknowledged    {len(group_in_thread.log)}\n" in done.stderr
    assert "the rest of the input was not appended" in done.stderr


def test_append_succeeds_if_nobody_reads_the_outcomes_of_the_whole_input(
    group_in_thread: Group,
) -> None:
    done = run_in_shell(f"seq 3 | dledger append -o json {UNREAD}")

    assert (done.returncode, len(group_in_thread.log)) == (0, 3)
    assert "acknowledged    3\n" in done.stderr


def test_an_unknown_outcome_shows_in_the_exit_code_although_nobody_reads_it(
    group_in_thread: Group,
) -> None:
    group_in_thread["n0"].script.append(Fault.DISCONNECT)

    done = run_in_shell(f"dledger append --body x -o json {UNREAD}")

    assert done.returncode == 3


@pytest.mark.parametrize("option", ["", "-o json"])
def test_append_to_a_full_device_fails_and_says_so(group_in_thread: Group, option: str) -> None:
    done = run_in_shell(f"dledger append --body x {option} > /dev/full")

    assert done.returncode == 1
    assert "cannot write to standard output: No space left on device" in done.stderr
    assert "internal error" not in done.stderr
    assert group_in_thread.log == [b"x"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--body x", "dledger: appended entry 0\n"),
        ("--body x --quiet", ""),
        ("--body x -o json", "dledger: appended entry 0\n"),
        ("--body x --body y -o json", "acknowledged    2\nunknown         0\n"),
    ],
)
@pytest.mark.usefixtures("group_in_thread")
def test_append_to_a_full_device_says_what_need_not_be_appended_again(
    arguments: str, told: str
) -> None:
    done = run_in_shell(f"dledger append {arguments} > /dev/full")

    assert done.stderr.startswith(told)


@pytest.mark.parametrize("command", ["get 0", "get 0 -o json", "group", "--help", "get --help"])
def test_output_to_a_full_device_fails_and_says_so(group_in_thread: Group, command: str) -> None:
    group_in_thread.log = [b"x"]

    done = run_in_shell(f"dledger {command} > /dev/full")

    assert (done.returncode, done.stderr) == (
        1,
        "dledger: cannot write to standard output: No space left on device\n",
    )


@pytest.mark.parametrize("command", ["--help", "get --help", "--version"])
def test_help_to_a_full_device_fails_without_a_buffer_too(command: str) -> None:
    done = run_in_shell(f"dledger {command} > /dev/full", PYTHONUNBUFFERED="1")

    assert (done.returncode, done.stderr) == (
        1,
        "dledger: cannot write to standard output: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("command", "told"), [("append --body y", "dledger: appended entry 1\n"), ("get 0", "")]
)
def test_output_to_a_closed_standard_output_fails_and_says_so(
    group_in_thread: Group, command: str, told: str
) -> None:
    group_in_thread.log = [b"x"]

    done = run_in_shell(f"dledger {command} >&-")

    problem = "dledger: cannot write to standard output: Bad file descriptor\n"
    assert (done.returncode, done.stderr) == (1, f"{told}{problem}")


def test_append_from_a_closed_standard_input_appends_nothing(group_in_thread: Group) -> None:
    done = run_in_shell("dledger append - <&-")

    assert (done.returncode, done.stderr) == (
        2,
        "dledger: cannot read -: standard input is closed; nothing was appended\n",
    )
    assert not group_in_thread.log


def test_commands_work_with_closed_output_and_error(group_in_thread: Group) -> None:
    assert run_in_shell("dledger append --quiet --body x >&- 2>&-").returncode == 0
    assert group_in_thread.log == [b"x"]


def test_the_reason_why_a_file_cannot_be_read_is_given(tmp_path: Path) -> None:
    done = run_in_shell(f"dledger append {tmp_path}")

    assert (done.returncode, done.stderr) == (
        2,
        f"dledger: cannot read {tmp_path}: Is a directory; nothing was appended\n",
    )


@pytest.mark.usefixtures("group_in_thread")
def test_an_import_of_a_folder_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    done = run_in_shell(f"dledger import --append {tmp_path}")

    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        f"dledger: cannot read {tmp_path}: Is a directory\n",
    )


def test_an_export_may_go_to_the_null_device(group_in_thread: Group) -> None:
    group_in_thread.log = [b"x"]

    done = run_in_shell("dledger export /dev/null")

    assert (done.returncode, done.stderr) == (0, "exported 1 entry, 0 to 0\n")


def test_a_folder_without_a_name_is_not_the_current_one() -> None:
    done = run_in_shell("dledger group local --data ''")

    assert done.returncode == 2
    assert "argument --data: '' is no folder" in done.stderr


@pytest.mark.parametrize(("shell", "begins"), [("bash", False), ("zsh", True)])
def test_only_the_completion_of_zsh_has_the_mark_of_zsh(shell: str, begins: bool) -> None:
    done = run_in_shell(f"dledger completion {shell}")

    assert done.stdout.startswith("#compdef dledger\n") is begins
    assert "complete " in done.stdout


def test_text_that_the_locale_cannot_express_is_escaped(group_in_thread: Group) -> None:
    group_in_thread.log = ["ü".encode()]

    done = run_in_shell("dledger get 0 -o json", PYTHONIOENCODING="ascii")

    assert json.loads(done.stdout)["body"] == "ü"


def test_a_group_name_that_is_no_text_is_a_usage_error() -> None:
    done = run_in_shell("dledger get 0 --group $'\\xff'")

    assert done.returncode == 2
    assert "group is '\\xff', which is not valid UTF-8" in done.stderr


@pytest.mark.parametrize("name", ["a b", "-", "ü", "x" * 64])
def test_a_local_group_does_not_start_under_a_wrong_name(name: str) -> None:
    done = run_in_shell(f"dledger group local --group '{name}'")

    assert done.returncode == 2
    assert "a group cannot have the name" in done.stderr


@pytest.mark.parametrize("command", ["get 0", "group", "append --body x", "tail", "bench"])
def test_a_command_says_within_two_seconds_what_it_tries(command: str) -> None:
    done = run_in_shell(f"dledger {command} --servers 127.0.0.1:1 --deadline 1.9")

    assert done.returncode == 5
    first = done.stderr.splitlines()[0]
    assert first.startswith("dledger: waiting for group g0, 1 s of 1.9 s: 127.0.0.1:1 cannot be")
    assert done.stderr.count("waiting for") == 1


def test_a_command_says_that_the_leader_does_not_answer(group_in_thread: Group) -> None:
    for member in group_in_thread.members.values():
        member.is_frozen = True
    done = run_in_shell("dledger append --body x --deadline 3")

    assert done.returncode == 5
    assert "dledger: waiting for group g0" in done.stderr


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("get 0", 0),
        ("get 99", 4),
        ("get nonsense", 2),
        ("get 0 --servers 127.0.0.1:1 --deadline 0.2", 5),
        ("get 0 --deadline 0", 2),
        ("append --body x --progress", 0),
        ("group > /dev/full", 1),
    ],
)
@pytest.mark.parametrize("errors", ["2> /dev/full", f"{UNREAD} 2>&1"])
def test_an_error_that_cannot_be_written_does_not_change_the_exit_code(
    group_in_thread: Group, command: str, code: int, errors: str
) -> None:
    group_in_thread.log = [b""]

    assert run_in_shell(f"dledger {errors} {command}").returncode == code


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("health --servers 127.0.0.1:1 --deadline 0.2", 5),
        ("wait --servers 127.0.0.1:1 --deadline 0.2", 5),
        ("health --all-members --http 127.0.0.1:1", 1),
        ("health", 0),
        ("status --http 127.0.0.1:1", 5),
        ("member list", 0),
    ],
)
@pytest.mark.usefixtures("group_in_thread")
def test_what_nobody_reads_does_not_change_the_exit_code(
    command: str, code: int, output: str, unbuffered: str
) -> None:
    """The images set PYTHONUNBUFFERED."""
    done = run_in_shell(f"dledger {command} -o {output} {UNREAD}", PYTHONUNBUFFERED=unbuffered)

    assert done.returncode == code


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_index_that_nobody_reads_goes_to_standard_error(
    group_in_thread: Group, unbuffered: str
) -> None:
    done = run_in_shell(f"dledger append --body x {UNREAD}", PYTHONUNBUFFERED=unbuffered)

    assert (done.returncode, done.stderr) == (0, "dledger: appended entry 0\n")
    assert group_in_thread.log == [b"x"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_watched_status_ends_once_nobody_reads_it(unbuffered: str) -> None:
    watched = "dledger status --watch 0.1 --http 127.0.0.1:1"

    done = run_in_shell(f"{watched} | head -1", PYTHONUNBUFFERED=unbuffered)

    assert done.returncode == 0
