"""A streaming query that has read all entries, and waits for new ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dledger_formats.http.status import Manifest
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import manifest
from dledger_logs.write import write_log
from dledger_scan.log_rows import members
from pyspark_dledger.copies import RefusedError
from pyspark_dledger.options import parse
from pyspark_dledger.stream import ASK_SECONDS, COMMIT_SECONDS, LogStream, Offset

COUNT = 100
END: Offset = {"index": 61, "group": ""}


@dataclass
class World:
    """A group of two members, what they have been asked, and the time that passes."""

    committed_index: int = 60
    are_away: bool = False
    now: float = 0.0
    pace: float = 1.0
    asked: list[str] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.now += self.pace * seconds

    def interrupt(self, path: str) -> int | None:
        self.asked.append(path)
        return 0 if self.are_away else None


@contextmanager
def streamed(world: World, folder: Path) -> Iterator[LogStream]:
    """Yield a query that has found no entry after `END`."""
    logs = {name: write_log(folder / name, history(COUNT), small_shape()) for name in ("n0", "n1")}

    def says(member: str, last: int) -> Manifest:
        return manifest(logs[member], member, peers=logs, committed_index=last)

    served = {"n0": lambda: says("n0", 50), "n1": lambda: says("n1", world.committed_index)}
    with members(logs, served, dict.fromkeys(logs, world.interrupt)) as path:
        stream = LogStream(parse({"path": path}), clock=lambda: world.now, sleep=world.sleep)
        assert stream.latest(END, is_bounded=True) == END
        yield stream


def test_members_list_their_files_only_once_there_are_new_entries(tmp_path: Path) -> None:
    """The list of a large log has hundreds of kilobytes, and was read four times a second."""
    world = World()
    with streamed(world, tmp_path) as stream:
        world.asked.clear()
        for _ in range(4):
            assert stream.latest(END, is_bounded=True) == END
        assert world.asked == ["/status"] * 8
        assert world.now == pytest.approx(4 * ASK_SECONDS)

        world.committed_index = 80
        assert stream.latest(END, is_bounded=True)["index"] == 81
    assert "/manifest" in world.asked


def test_members_that_stay_away_from_a_waiting_query_are_an_error_in_the_end(
    tmp_path: Path,
) -> None:
    world = World()
    with streamed(world, tmp_path) as stream:
        world.are_away, world.pace = True, COMMIT_SECONDS / ASK_SECONDS

        with pytest.raises(RefusedError, match="no member of the group can be read"):
            stream.latest(END, is_bounded=True)
