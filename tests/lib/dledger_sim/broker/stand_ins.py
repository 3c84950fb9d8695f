"""Stand-ins for the services under a simulated broker: log, state and room in the log."""

import contextlib
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Final, Protocol

from dledger_formats.log import disk
from dledger_formats.log.disk import EntryHeader
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.services.waiting import Answer
from dledger_node.state_machine.keeper import StateKeeper
from dledger_node.state_machine.machine import StateMachine
from dledger_node.store.log.stored_range import RangeMovedError
from dledger_sim.broker.bodies import Bodies
from dledger_sim.broker.numbers import SimProducers
from dledger_sim.group.disk import SimDisk

BODY_BYTES_MAX: Final = 1 << 20


def is_cached(at: int) -> bool:
    """Return whether the page cache has this position: mostly, and the same in each run."""
    return at % 7 != 1


class ProgramMember(Protocol):
    """The simulated member around the broker."""

    member_id: str
    disk: SimDisk

    @property
    def is_busy(self) -> bool:
        """Whether the log takes no entries now."""

    @property
    def applied(self) -> tuple[StateMachine, int, bool]:
        """The state machine, its applied index, and whether a batch is under way."""

    def drive(self) -> None:
        """Run a turn of the core's loop."""

    def prove(self, answer: Answer) -> None:
        """Answer once the member has proved that it leads, or has failed to."""


class SimLogStore:
    """A simulated log, as far as the broker and the services under it read it."""

    body_bytes_max = BODY_BYTES_MAX
    generation = 0
    """An entry has the same position on all members, so no truncation moves the first one."""

    def __init__(self, sim_disk: SimDisk, bodies: Bodies, producers: SimProducers) -> None:
        self.producers = producers
        self.room = SimpleNamespace(is_ample=lambda _count, _size: True)
        self._disk = sim_disk
        self._bodies = bodies

    @property
    def begin_index(self) -> int:
        """See `LogStore`."""
        return self._disk.begin_index

    @property
    def end_index(self) -> int:
        """See `LogStore`."""
        return len(self._disk.cached) - 1

    def positions(self, first_index: int, last_index: int) -> list[int]:
        """See `LogStore`."""
        log = self._disk.cached
        return [self._bodies.placed(log, at).pos for at in range(first_index, last_index + 1)]

    def entry(self, index: int) -> tuple[EntryHeader, bytes]:
        """See `LogStore`."""
        placed = self._bodies.placed(self._disk.cached, index)
        return placed.header, placed.raw[disk.ENTRY_HEADER_SIZE :]

    def read_range(
        self, first_index: int, last_index: int, bytes_max: int
    ) -> tuple[list[bytes], int]:
        """See `LogStore`. Raises IndexError."""
        log = self._disk.cached
        if not self._disk.begin_index <= first_index <= last_index < len(log):
            raise IndexError(f"the log lacks some of the entries {first_index} to {last_index}")
        runs, size, index = [], 0, first_index
        while index <= last_index and (not runs or size < bytes_max):
            runs.append(self._bodies.placed(log, index).raw)
            size += len(runs[-1])
            index += 1
        return runs, index - 1

    def cached_run(self, first_index: int, last_index: int, bytes_max: int) -> bytes | None:
        """See `LogReader`. Raises RangeMovedError."""
        try:
            runs, read_index = self.read_range(first_index, last_index, bytes_max)
        except IndexError as error:
            raise RangeMovedError(str(error)) from error
        run = b"".join(runs)
        is_short = read_index == last_index and len(run) <= bytes_max
        return run if is_short and is_cached(first_index) else None

    def stored_at(self, pos: int, size: int) -> bytes:
        """See `LogReader`. Raises LookupError."""
        log, begin = self._disk.cached, self._disk.begin_index
        indexes = range(begin, len(log))
        place = bisect_right(indexes, pos, key=lambda at: self._bodies.placed(log, at).pos) - 1
        if place < 0:
            raise LookupError(f"position {pos} is not in the log")
        at = begin + place
        skipped, found = pos - self._bodies.placed(log, at).pos, b""
        while len(found) < skipped + size and at < len(log):
            found += self._bodies.placed(log, at).raw
            at += 1
        return found[skipped : skipped + size].ljust(size, b"\0")  # nothing is written there yet

    def cached_at(self, pos: int, buffer: memoryview) -> bool:
        """See `LogReader`."""
        if not is_cached(pos):
            return False
        with contextlib.suppress(LookupError):
            buffer[:] = self.stored_at(pos, len(buffer))
            return True
        return False


class SimState(StateKeeper):
    """The state of a simulated member."""

    def __init__(self, member: ProgramMember) -> None:
        self._member = member
        self.covered: Callable[[], int] = lambda: 1 << 62
        self.listeners: list[Callable[[int], None]] = []
        self.reading = threading.Lock()

    @property
    def machine(self) -> StateMachine:
        """See `StateKeeper`."""
        return self._member.applied[0]

    @property
    def applied_index(self) -> int:
        """See `StateKeeper`."""
        return self._member.applied[1]

    @property
    def just_applied(self) -> None:
        """See `StateKeeper`."""

    @property
    def is_applying(self) -> bool:
        """See `StateKeeper`."""
        return self._member.applied[2]

    def keep_for_program(self, covered: Callable[[], int]) -> None:
        """See `StateKeeper`."""
        self.covered = covered

    def call_when_applied(self, listener: Callable[[int], None]) -> None:
        """See `StateKeeper`."""
        self.listeners.append(listener)


class SimRoom:
    """See `dledger_node.shell.room.LogRoom`; segments have room here unless the disk is full."""

    def __init__(self, member: ProgramMember) -> None:
        self._member = member

    @property
    def is_busy(self) -> bool:
        """See `LogRoom`."""
        return self._member.is_busy

    def begin(self, _: Sequence[int]) -> bool:
        """See `LogRoom`."""
        return False

    def reserve(self, _: Sequence[int]) -> DLedgerResponseCode | None:
        """See `LogRoom`."""
        if self._member.disk.full:
            return DLedgerResponseCode.DISK_FULL
        return DLedgerResponseCode.LEADER_PENDING_FULL if self.is_busy else None
