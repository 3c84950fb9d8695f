"""The loop that drives the core: what ends a member, and what it does not do afterwards."""

from collections.abc import Sequence

import pytest

from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core import Raft
from dledger_node.raft.log_terms import LogTerms
from dledger_node.raft.messages import Message
from dledger_node.raft.ready import HardState, Write
from dledger_node.shell.loop import CoreLoop

DAMAGE = StoreDamagedError("entry 7 is damaged", Damage.BAD_ENTRY, 7)


class Disk:
    """Takes writes, and counts them."""

    def __init__(self) -> None:
        self.written_count = 0
        self.flush_count = 0

    def save_hard_state(self, hard_state: HardState) -> bool:
        return True

    def write(self, write: Write) -> bool:
        self.written_count += 1
        return True

    def written(self) -> tuple[int, int]:
        return -1, -1

    def begin_flush(self) -> None:
        self.flush_count += 1


class DiskThatCannotFlush(Disk):
    """Takes writes; no flush can begin."""

    def begin_flush(self) -> None:
        raise DAMAGE


class NoLinks:
    """A member without peers sends nothing."""

    def send(self, messages: Sequence[Message]) -> None:
        raise AssertionError(messages)


class Listener:
    """Raises an error once, if there is one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.turn_count = 0

    def on_turn(self, committed_index: int) -> None:
        self.turn_count += 1
        if self.error is not None:
            raise self.error


def make_loop(disk: Disk, failures: list[Exception]) -> CoreLoop:
    core = Raft(
        RaftConfig(self_id="n0", voters=("n0",), heartbeat_ticks=1, election_ticks=2),
        HardState(term=0, vote_for=None),
        LogTerms(0, [], -1),
        committed_index=-1,
        incarnation=1,
        randint=lambda low, _: low,
    )
    return CoreLoop(
        core, disk, NoLinks(), release_reads=lambda _: None, fail=failures.append
    )  # fmt: skip


def test_a_damaged_store_that_a_listener_meets_ends_the_member() -> None:
    disk, failures = Disk(), list[Exception]()
    loop = make_loop(disk, failures)
    later = Listener()
    loop.listen([Listener(DAMAGE), later])

    loop.tick()
    flushed = disk.flush_count
    loop.tick()

    assert failures == [DAMAGE]
    assert later.turn_count == 0
    assert disk.flush_count == flushed, "the loop is halted"


def test_a_flush_that_cannot_begin_ends_the_member() -> None:
    failures = list[Exception]()
    loop = make_loop(DiskThatCannotFlush(), failures)
    later = Listener()
    loop.listen([later])

    loop.tick()
    loop.tick()

    assert failures == [DAMAGE], "once: the loop is halted"
    assert later.turn_count == 0


def test_another_error_of_a_listener_reaches_the_caller_and_the_loop_goes_on() -> None:
    failures = list[Exception]()
    loop = make_loop(Disk(), failures)
    listener = Listener(ValueError("an answer cannot be encoded"))
    loop.listen([listener])

    with pytest.raises(ValueError, match="cannot be encoded"):
        loop.tick()
    listener.error = None
    loop.tick()

    assert failures == []
    assert listener.turn_count == 2


def test_a_single_member_writes_its_first_entry_within_its_election_timeout() -> None:
    disk = Disk()
    loop = make_loop(disk, [])

    for _ in range(20):
        loop.tick()

    assert disk.written_count == 1
