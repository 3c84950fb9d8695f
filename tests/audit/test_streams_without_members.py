"""A streaming query while no member of the group answers, as in a restart of all of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dledger_logs.histories import history, small_shape
from dledger_logs.write import write_log
from dledger_scan.log_rows import members
from pyspark_dledger import http_reader
from pyspark_dledger.copies import RefusedError
from pyspark_dledger.options import parse
from pyspark_dledger.stream import COMMIT_SECONDS, LogStream

COUNT = 100


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a member again at once: only the pauses of the query matter here."""
    monkeypatch.setattr(http_reader, "FIRST_PAUSE_SECONDS", 0.0)


@dataclass
class World:
    """A group of one member, and the time that passes while it is away."""

    is_away: bool = False
    now: float = 0.0
    when_waiting: Callable[[], None] = field(default=lambda: None)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.when_waiting()

    def comes_back(self) -> None:
        self.is_away = False


@contextmanager
def streamed(world: World, folder: Path) -> Iterator[LogStream]:
    log = write_log(folder / "n0", history(COUNT), small_shape())
    hangs_up = {"n0": lambda _: 0 if world.is_away else None}
    with members({"n0": log}, interrupts=hangs_up) as path:
        yield LogStream(parse({"path": path}), clock=lambda: world.now, sleep=world.sleep)


def test_a_query_waits_until_a_member_answers_again(tmp_path: Path) -> None:
    """In a group of one member, every restart is one of all members."""
    world = World()
    with streamed(world, tmp_path) as stream:
        at = stream.first()
        world.is_away, world.when_waiting = True, world.comes_back

        assert stream.latest(at, is_bounded=True)["index"] == COUNT
    assert world.now > 0


def test_a_query_that_begins_waits_too(tmp_path: Path) -> None:
    world = World(is_away=True)
    world.when_waiting = world.comes_back
    with streamed(world, tmp_path) as stream:
        assert stream.first()["index"] == 0


def test_a_query_whose_members_stay_away_is_an_error_in_the_end(tmp_path: Path) -> None:
    world = World()
    with streamed(world, tmp_path) as stream:
        at = stream.first()
        world.is_away = True

        with pytest.raises(RefusedError, match="no member of the group can be read"):
            stream.latest(at, is_bounded=True)
    assert world.now >= COMMIT_SECONDS
