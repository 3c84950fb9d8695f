"""What the program shows of its progress: a line on a terminal, and seldom one elsewhere."""

import itertools
import re
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from dledger_audit import progress
from dledger_audit.progress import Counted, doing, text_of
from dledger_formats.audit import ExitCode
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log
from tests.client.terminals import on_terminal

PROGRAM = "import sys; from dledger_audit.console_script import main; sys.exit(main())"
MEMBERS = ("n0", "n1", "n2")


@pytest.mark.parametrize(
    ("took_s", "share", "text"),
    [
        (7.9, None, "reading, 0:07"),
        (7.9, 0.0, "reading: 0%, 0:07 so far"),
        (30.0, 0.25, "reading: 25%, 1:30 left"),
        (600.0, 0.999, "reading: 99%, 0:00 left"),
        (3600.0, 0.1, "reading: 10%, 9:00:00 left"),
    ],
)
def test_the_time_that_is_left_follows_from_the_share_that_is_done(
    took_s: float, share: float | None, text: str
) -> None:
    assert text_of("reading", took_s, share) == text


def test_the_share_of_an_unknown_number_is_unknown_and_none_exceeds_the_whole() -> None:
    counted, empty = Counted(4), Counted(0)
    shares = []
    for counted.done in (1, 4, 5):
        shares.append(counted.share())

    assert shares == [0.25, 1.0, 1.0]
    assert empty.share() is None


class Asked:
    """A share of the work that ends once it was asked for often enough."""

    def __init__(self, times: int) -> None:
        self._left = times
        self.is_enough = threading.Event()

    def share(self) -> float:
        self._left -= 1
        if self._left <= 0:
            self.is_enough.set()
        return 0.5


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DELAY_S", "EVERY_S"):
        monkeypatch.setattr(progress, name, 0.01)


@pytest.mark.usefixtures("quickly")
def test_a_terminal_shows_one_line_which_is_erased(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    asked = Asked(3)
    with doing("reading", asked.share):
        assert asked.is_enough.wait(30)

    *shown, erased, end = capsys.readouterr().err.split("\r")[1:]
    assert len(shown) >= 2
    assert all(re.fullmatch(r"dledger-audit: reading: 50%, 0:00 left *", each) for each in shown)
    assert (erased.strip(), end) == ("", "")


def test_elsewhere_lines_follow_at_distances_that_grow_to_ten_minutes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passing_s = itertools.count(0.0, 10.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(passing_s))
    monkeypatch.setattr(progress, "EVERY_S", 0)
    asked = Asked(8)
    with doing("reading", asked.share):
        assert asked.is_enough.wait(30)

    times = ["0:30", "1:00", "2:00", "4:00", "8:00", "16:00", "26:00"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[:7] == [f"dledger-audit: reading: 50%, {each} left" for each in times]


def test_short_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with doing("reading"):
        pass

    assert capsys.readouterr().err == ""


@pytest.mark.spark
def test_an_audit_shows_how_far_it_is(tmp_path: Path) -> None:
    logs = {
        member: write_log(tmp_path / member, history(600), small_shape(1 << 16))
        for member in MEMBERS
    }
    with ExitStack() as stack:
        arguments = ["--group", "g", "--master", "local[1]", "--read-rate", "14000"]
        for member, log in logs.items():
            url = stack.enter_context(served(log.root, manifest(log, member, peers=logs)))
            arguments += ["--member", f"{member}={url}"]
        code, shown = on_terminal(arguments, 60, {}, PROGRAM)

    assert code == ExitCode.SOUND, shown
    states = [state.strip() for state in re.split("[\r\n]+", shown)]
    assert any(state.startswith("dledger-audit: starting Spark, 0:0") for state in states)
    found = re.findall(r"reading the log of n0, n1, n2: (\d+)%, [\d:]+ (?:left|so far)", shown)
    assert found[0] == "0"
    assert {"33", "66"} & set(found)  # the rate is caught up with, so one may be over quickly
