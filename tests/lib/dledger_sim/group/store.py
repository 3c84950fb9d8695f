"""A member's store: `dledger_node.shell.loop.Store` on a simulated disk."""

from collections.abc import Callable
from typing import Final

from dledger_node.raft.ready import (
    HardState,
    Truncate,
    Write,
    WriteMembership,
    WriteNoop,
    WriteProposal,
    WritePushed,
    WriteSnapshot,
)
from dledger_node.shell.loop import CoreLoop
from dledger_sim.group.disk import SimDisk, chained
from dledger_sim.group.membership_bodies import body_of
from dledger_sim.group.moments import Moment
from dledger_sim.group.pushed import PushedEntries
from dledger_sim.group.world import World

HARD_STATE_US: Final = 15_000
"""Duration of a slow save of the hard state."""


class DiedError(Exception):
    """The member crashed in the middle of a turn."""


class SimStore:
    """Writes of a member since its start. A save, a truncation or a replacement of the log may be
    slow, and each write may be the last.
    """

    def __init__(
        self,
        member_id: str,
        disk: SimDisk,
        world: World,
        *,
        committed_index: Callable[[], int],
        perhaps_die: Callable[[], None],
    ) -> None:
        """`committed_index` returns the core's; `perhaps_die` raises DiedError at random."""
        self.saving: HardState | None = None
        """The hard state of a save in progress."""
        self.changing: Write | None = None
        """The truncation or replacement in progress."""
        self._member_id = member_id
        self._disk = disk
        self._world = world
        self._committed_index = committed_index
        self._perhaps_die = perhaps_die
        self._site_slow = f"slow hard state {member_id}"
        self._site_change = f"slow change {member_id}"

    def save_hard_state(self, hard_state: HardState) -> bool:
        """Save at once and return True, or begin a slow save and return False."""
        self.saving = hard_state
        if self._world.choices.chance(self._site_slow, self._world.conditions.slow_hard_state):
            self._world.save_takes_a_while(self._member_id)
            return False
        self.finish_save()
        return True

    def finish_save(self) -> None:
        """Finish the save in progress."""
        hard_state, self.saving = self.saving, None
        assert hard_state is not None
        self._disk.hard_state = hard_state
        self._world.checker.promises.saved(self._member_id, hard_state)

    def written(self) -> tuple[int, int]:
        """See `Store`."""
        cached = self._disk.cached
        return len(cached) - 1, cached[-1].term if cached else -1

    def begin_flush(self) -> None:
        """Start a flush of the pending writes, unless a flush is in flight."""
        if self.changing is None and self._disk.has_unflushed and self._disk.flush is None:
            self._disk.begin_flush()
            self._world.flush_begins(self._member_id)

    def write(self, write: Write) -> bool:
        """Write at once and return True, or begin a slow change and return False."""
        if isinstance(write, Truncate | WriteSnapshot):
            rate = self._world.conditions.slow_change
            if self._world.choices.chance(self._site_change, rate):
                self.changing = write
                self._world.save_takes_a_while(self._member_id)
                return False
        self._write(write)
        return True

    @property
    def is_busy(self) -> bool:
        """Whether a save or a change is in progress."""
        return self.saving is not None or self.changing is not None

    def finish(self, loop: CoreLoop) -> None:
        """Finish the save or the change in progress, and continue the work that waited for it."""
        if self.changing is None:
            self.finish_save()
            loop.hard_state_saved()
            return
        write, self.changing = self.changing, None
        self._write(write)
        loop.log_changed()

    def _write(self, write: Write) -> None:
        """Write to the page cache, and show the write to the checker."""
        self._perhaps_die()
        world = self._world
        match write:
            case WritePushed(entries=pushed):
                assert isinstance(pushed, PushedEntries)
                skipped = write.first_index - pushed.first_index
                count = write.last_index - write.first_index + 1
                self._append(write.first_index, pushed.entries[skipped : skipped + count])
            case WriteSnapshot(first_index=first_index, entries=pushed):
                assert isinstance(pushed, PushedEntries)
                self._disk.replace(world.checker.replacing(self._member_id, first_index))
                self._append(first_index, pushed.entries)
            case WriteProposal(first_index=first_index, term=term, entries=bodies):
                assert isinstance(bodies, tuple)
                self._append(first_index, [(term, body) for body in bodies])
            case WriteNoop(index=index, term=term):
                self._append(index, [(term, -term)])
                world.moment(Moment.ELECTED, self._member_id)
            case WriteMembership(index=index, term=term, membership=membership):
                rules = world.checker.memberships
                rules.changing(self._member_id, membership, term, self._committed_index())
                self._append(index, [(term, body_of(membership))])
                world.moment(Moment.CHANGES, self._member_id)
            case Truncate(first_index=first_index):
                world.checker.truncating(self._member_id, first_index)
                self._disk.truncate(first_index)
                world.moment(Moment.TRUNCATED, self._member_id)

    def _append(self, first_index: int, entries: list[tuple[int, int]]) -> None:
        cached = self._disk.cached
        assert first_index == len(cached), f"writes at {first_index}, the log has {len(cached)}"
        for term, body in entries:
            entry = chained(cached, term, body)
            self._disk.append(entry)
            self._world.checker.wrote(self._member_id, entry)
