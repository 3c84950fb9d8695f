"""Progress bars, and the line that says what a command waits for, as a person sees them."""

import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.cli import main
from dledger_client.commands import status, streams
from dledger_client.exports.records import Head, pack_end, pack_head
from dledger_fake_server.group import Group
from dledger_formats.status_line import LINE
from tests.client.terminals import on_terminal, run

pytestmark = pytest.mark.usefixtures("group_in_environment")


def states(shown: str) -> list[str]:
    """Return what the lines of a terminal showed, one after another."""
    return [state.strip() for state in re.split("[\r\n]+", shown) if state.strip()]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_bar_says_how_much_is_done_and_what_time_is_left(columns: int) -> None:
    code, shown = on_terminal(["bench", "--seconds", "1.5", "--warm-up", "0.5"], columns, {})

    assert code == 0
    bars = [state for state in states(shown) if "%|" in state.replace("% |", "%|")]
    assert all(re.fullmatch(r"\d+% \|.*\| .*(\d\d:\d\d|\?) left", bar) for bar in bars), bars
    assert all(len(bar) <= columns for bar in bars), bars
    assert all("of 2.0 s" in bar for bar in bars) is (columns >= 80)
    assert bars[-1].startswith("100%")


def test_a_short_command_shows_no_bar() -> None:
    code, shown = on_terminal(["append", "--body", "x"], 80, {})

    assert (code, shown) == (0, "appended entry 0\n")


def test_appends_that_failed_are_no_progress(group_in_thread: Group) -> None:
    group_in_thread.leader_id = None

    code, shown = on_terminal(["append", "--progress", "--body", "x", "--deadline", "1"], 80, {})

    assert code == 5
    assert "0%" in shown
    assert "100%" not in shown


def test_a_bar_gives_way_to_the_line_that_says_what_is_waited_for(group_in_thread: Group) -> None:
    group_in_thread.leader_id = None

    _, shown = on_terminal(["append", "--progress", "--body", "x", "--deadline", "3"], 200, {})

    until_error, _, _ = shown.partition("dledger: the entry was not appended")
    assert until_error.count("\n") == 1  # after the bar
    waits = [state for state in states(until_error) if state.startswith("dledger: waiting for")]
    assert "group g0, 1 s of 3 s" in waits[0]
    assert re.search("group g0, [23] s of 3 s", waits[-1])
    assert "knows no leader" in waits[-1]
    assert states(until_error)[-1].startswith("0%")


def test_a_bar_that_nobody_asked_for_is_erased_if_nothing_was_acknowledged(
    group_in_thread: Group,
) -> None:
    group_in_thread.leader_id = None

    code, shown = on_terminal(["append", "--body", "x", "--deadline", "3"], 80, {})

    assert code == 5
    assert "0%" in shown
    until_error, _, _ = shown.partition("dledger: the entry was not appended")
    assert "\n" not in until_error
    assert re.search(r"\r +\r$", until_error)


def test_a_narrow_terminal_shows_what_is_tried() -> None:
    arguments = ["get", "0", "--servers", "127.0.0.1:1", "--deadline", "2"]
    _, shown = on_terminal(arguments, 40, {})

    waits = [state for state in states(shown) if state.startswith("waiting")]
    assert waits[0] == "waiting, 1 s of 2 s: 127.0.0.1:1 can..."


@pytest.mark.parametrize("has_terminal", [True, False])
def test_wait_says_which_member_it_waits_for(has_terminal: bool) -> None:
    arguments = ["wait", "--all-members", "--http", "127.0.0.1:1", "--deadline", "3"]
    if has_terminal:
        code, shown = on_terminal(arguments, 200, {})
    else:
        done = run(arguments, {})
        code, shown = done.returncode, done.stderr

    assert code == 1
    waits = [state for state in states(shown) if state.startswith("dledger: waiting for")]
    assert waits[0] == (
        "dledger: waiting for group g0, 1 s of 3 s: the page at 127.0.0.1:1: Connection refused; "
        "no page has answered for n0, n1, n2"
    )
    assert (len(waits) > 1) is has_terminal


@pytest.fixture
def silent_page() -> Iterator[str]:
    """The address of a page that accepts requests and never answers, as that of a frozen member."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_wait_says_again_what_it_waits_for_once_it_knows_more(silent_page: str) -> None:
    done = run(["wait", "--all-members", "--http", silent_page, "--deadline", "4"], {})

    assert done.returncode == 1
    first, second, *_ = done.stderr.splitlines()
    assert first == "dledger: waiting for group g0, 1 s of 4 s: no answer yet"
    assert second == (
        f"dledger: waiting for group g0, 2 s of 4 s: the page at {silent_page}: no response within "
        "2 s; no page has answered for n0, n1, n2"
    )


@pytest.mark.parametrize("members", [[], ["--all-members"]])
@pytest.mark.parametrize("command", ["health", "wait"])
def test_a_member_that_does_not_answer_does_not_prolong_the_deadline(
    silent_page: str, command: str, members: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "TIMEOUT_S", 60.0)
    began_s = time.monotonic()
    main([command, "--deadline", "0.6", "--http", silent_page, *members])

    assert time.monotonic() - began_s < status.TIMEOUT_S / 2


def test_wait_counts_the_whole_time(group_in_thread: Group) -> None:
    group_in_thread.leader_id = None

    code, shown = on_terminal(["wait", "--deadline", "7"], 200, {})

    assert code == 5
    assert "group g0, 6 s of 7 s" in shown
    assert "no leader of group g0 accepted the request within 7.0 s" in shown


def test_a_file_is_checked_with_a_bar_that_disappears(tmp_path: Path) -> None:
    file = tmp_path / "old.export"
    head, checksum = pack_head(Head(group="g0", first_index=0))
    file.write_bytes(head + pack_end(0, checksum))

    for command in ("import", "export"):
        _, shown = on_terminal([command, "--progress", str(file)], 80, {})

        assert any(state.startswith("checking") for state in states(shown))
        assert "checking" not in shown.rpartition("\r")[2]


def test_output_is_not_mixed_with_the_line_of_a_wait(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "11")
    LINE.show("waiting", "w")
    streams.write("entry\n")
    streams.write("entry\n")

    blank = " " * 10
    assert capsys.readouterr() == ("entry\nentry\n", f"\rwaiting   \r{blank}\r")
    assert not sys.stderr.isatty()
