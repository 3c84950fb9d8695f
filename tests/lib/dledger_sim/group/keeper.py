"""The keeper of a member's state: applies entries, and saves, fetches and sends snapshots.

It replaces `StateKeeper`, `Applying` and `Installs` of `dledger_node.state_machine`; their threads
are events here. The node's own `restore`, `fetch`, `send` and `store.log.retention` make
the decisions.
"""

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple, TypeAlias

from dledger_node.errors import StoreDamagedError, StoreFullError
from dledger_node.raft.messages import InstallSnapshotRequest, Message
from dledger_node.raft.yielding import ReportedCommit
from dledger_node.remoting.snapshot_messages import SnapshotChunk, SnapshotChunkRequest
from dledger_node.state_machine.catching_up import CatchingUp
from dledger_node.state_machine.fetch import Fetching, Part
from dledger_node.state_machine.machine import CommittedEntry
from dledger_node.state_machine.restore import (
    Applied,
    covered_index,
    next_to_apply,
    restore,
    save_is_due,
)
from dledger_node.state_machine.send import Sending, SentSnapshot
from dledger_node.store.log.retention import Policy, SealedSegment, Situation, decide
from dledger_sim.group.conditions import TICK_US, Conditions
from dledger_sim.group.disk import Entry, KeptSnapshot, SimDisk
from dledger_sim.group.moments import Moment
from dledger_sim.group.snapshots import SimSnapshots, kept_snapshot
from dledger_sim.group.world import World

NAME: Final = "digest"
BATCH_ENTRIES_MAX: Final = 8
FEW_ENTRIES: Final = BATCH_ENTRIES_MAX
ASK_AGAIN_HEARTBEATS: Final = 3
SAVES_RATE: Final = 0.5
"""Probability that a due snapshot begins at once; otherwise it begins after a later batch."""
SEGMENT_ENTRIES: Final = 3
"""Entries per segment; the front is removed by whole segments."""
_FORCED: Final = Policy(
    reserved_s=None, delete_hours=(), check_expired_percent=100, force_clean_percent=90, bytes_max=0
)
"""The policy on a nearly full volume: remove every segment that may go."""

ForShell: TypeAlias = SnapshotChunkRequest | SnapshotChunk


class LogView(NamedTuple):
    """A member's log as `state_machine.restore` reads it."""

    disk: SimDisk

    @property
    def begin_index(self) -> int:
        """See `dledger_node.state_machine.restore.Log`."""
        return self.disk.begin_index

    @property
    def end_index(self) -> int:
        """See `dledger_node.state_machine.restore.Log`."""
        return len(self.disk.cached) - 1

    def position(self, index: int) -> Entry:
        """See `dledger_node.state_machine.restore.Log`."""
        return self.disk.cached[index]


class Save(NamedTuple):
    """A snapshot that is being written, and the snapshots in use by peers at its begin."""

    kept: KeptSnapshot
    in_use: Collection[int]


class SimKeeper:
    """Keeps the state of a member from a start to its crash."""

    def __init__(self, member_id: str, conditions: Conditions, disk: SimDisk, world: World) -> None:
        """Restore the state from the disk."""
        self.reported_commit: Callable[[], ReportedCommit] = lambda: ReportedCommit(
            index=-1, is_settled=False
        )
        """Returns what this member has learned from a leader."""
        self.snapshots = SimSnapshots(disk, conditions.snapshots_reserved)
        self._member_id = member_id
        self._conditions = conditions
        self._disk = disk
        self._log = LogView(disk)
        self._world = world
        self._states = world.states
        self._rules = world.checker.states
        self._rules_of_rot = world.checker.rot
        self._looked_at_index = -1
        self._committed_index = -1
        self._catching_up = CatchingUp(FEW_ENTRIES)
        self._applies = False
        """Whether a batch is being applied."""
        self._save: Save | None = None
        self._incoming = bytearray()
        self._adopts: KeptSnapshot | None = None
        """A fetched and verified snapshot that is being made durable."""
        self._resumes = False
        """Whether a leader's push causes the next request, rather than the previous chunk."""
        self._fetching = Fetching(
            member_id,
            self.snapshots,
            self._log,
            ask_again_s=ASK_AGAIN_HEARTBEATS * conditions.heartbeat_ticks * TICK_US / 1e6,
            now_s=self._now_s,
            send=self._ask,
        )
        self._sending = Sending(self.snapshots, self._log, now_s=self._now_s)
        self._site_state = f"state {member_id}"
        self._site_saves = f"saves a snapshot {member_id}"
        self._site_saved = f"saves a snapshot before death {member_id}"
        self.applied = restore(NAME, self.snapshots, self._log, self._states.make)
        self._rules.begins(member_id, self.applied, disk.begin_index)
        if self.applied.index >= 0:
            self._rules.counts["restarts_from_snapshot"] += 1

    # -- calls of the member ------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        """Whether the state is behind the log, as `StateKeeper` defines it."""
        return self._catching_up.is_behind

    def settle(self, committed_index: int) -> None:
        """Apply up to this index, as `Applying.settle` does."""
        self._committed_index = committed_index
        applied_index, end_index = self.applied.index, self._log.end_index
        self._catching_up.note_turn(
            committed_index, applied_index, end_index, self.reported_commit()
        )
        if self._applies or committed_index <= min(self._looked_at_index, self.applied.index):
            return
        self._looked_at_index = committed_index
        self._applies = True
        self._later("reads what is committed", self._read, committed_index)

    def takes(self, message: Message | ForShell) -> bool:
        """Handle a message about a snapshot; return False for a message to the core."""
        match message:
            case InstallSnapshotRequest():
                self._resumes = True
                lacks = self._fetching.lacks(message)
                self._resumes = False
                return lacks
            case SnapshotChunkRequest():
                sent = self._sending.grant(message)
                if sent is not None:
                    self._later("reads a chunk", self._send_chunk, sent)
                return True
            case SnapshotChunk():
                part = self._fetching.take(message)
                if part is not None:
                    self._later("writes a chunk", self._write, part)
                return True
            case _:
                return False

    def may_begin_at(self, first_index: int, committed_index: int) -> int:
        """Return the new front of the log if retention is to remove all entries before one."""
        situation = Situation(
            now_s=0.0,
            local_hour=0,
            used_percent=100,
            total_bytes=0,
            committed_index=committed_index,
            covered_index=covered_index(self.applied.index, self.snapshots),
            held_by_all_index=-1,
        )
        begin_index = self._disk.begin_index
        while begin_index + SEGMENT_ENTRIES <= first_index:
            last_index = begin_index + SEGMENT_ENTRIES - 1
            sealed = [SealedSegment(last_index=last_index, size_bytes=1, modified_s=0.0)]
            if not decide(_FORCED, situation, sealed).segments:
                break
            begin_index = last_index + 1
        if begin_index > self._disk.begin_index:
            self._rules.removes_front(self._member_id, begin_index)
        return begin_index

    def die(self) -> None:
        """Keep each snapshot in progress completely or not at all, by chance."""
        choices = self._world.choices
        if self._save is not None and choices.chance(self._site_saved, 0.5):
            pruning = choices.chance(self._site_saved, 0.5)
            self._keep(self._save, pruning=pruning)
        if self._adopts is not None and choices.chance(self._site_saved, 0.5):
            self._adopt(self._adopts)

    # -- applying ----------------------------------------------------------------------------------

    def _read(self, committed_index: int) -> None:
        """Do the first half of `Applying._apply_some`, which reads the log."""
        applied, last_index = next_to_apply(
            NAME, self.applied, committed_index, self.snapshots, self._log, self._states.make
        )
        if applied is not self.applied:
            self._rules.begins(self._member_id, applied, self._disk.begin_index)
        self.applied = applied
        end = min(last_index, applied.index + BATCH_ENTRIES_MAX) + 1
        if end > applied.index + 1:
            self._rules.reaches(self._member_id, applied.index, self._disk.begin_index)
        unread = self._disk.read(applied.index + 1, end)
        self._rules_of_rot.serves(self._member_id, applied.index + 1, unread)
        entries = self._states.applicable(unread, applied.index + 1)
        term = self._disk.cached[end - 1].term if end > 0 else -1
        self._later("applies", self._apply, entries, end - 1, term)

    def _apply(self, entries: list[CommittedEntry], last_index: int, term: int) -> None:
        """Do the second half, and the work after the thread has finished."""
        if last_index > self.applied.index:
            machine = self.applied.machine
            machine.apply(entries)
            self.applied = Applied(machine=machine, index=last_index, term=term)
            self._rules.has(self._member_id, last_index, machine.dump())
        self._batch_ends()
        self._save_if_due()
        self.settle(self._committed_index)

    def _batch_ends(self) -> None:
        self._applies = False
        self._catching_up.note_batch(self._looked_at_index, self.applied.index)

    # -- saving ------------------------------------------------------------------------------------

    def _save_if_due(self) -> None:
        """Begin a snapshot if one is due, as `StateKeeper.save_if_due` does, at a random time."""
        applied, threshold = self.applied, self._conditions.snapshot_entries
        due = save_is_due(applied.index, threshold, self.snapshots, self._log)
        if self._save is None and due and self._world.choices.chance(self._site_saves, SAVES_RATE):
            data = b"".join(applied.machine.copy().dump())
            kept = kept_snapshot(applied.index, applied.term, data)
            self._save = Save(kept, self._sending.in_use())
            self._later("saves a snapshot", self._saved)

    def _saved(self) -> None:
        assert self._save is not None
        save, self._save = self._save, None
        self._keep(save, pruning=True)

    def _keep(self, save: Save, *, pruning: bool) -> None:
        try:
            saved = self.snapshots.save(save.kept, save.in_use, pruning=pruning)
        except StoreFullError:
            return  # a later snapshot serves the same purpose
        if saved:
            self._rules.counts["snapshots"] += 1
            self._rules.keeps(self._member_id, save.kept)

    # -- fetching and sending ----------------------------------------------------------------------

    def _ask(self, request: SnapshotChunkRequest) -> None:
        if self._resumes and request.offset:
            self._rules.counts["installs_resumed"] += 1
        self._world.send(request)
        self._world.moment(Moment.FETCHES, request.receiver)

    def _write(self, part: Part) -> None:
        """Write a chunk, as `Installs._take` does."""
        if self._disk.full:
            self._fetching.restart(part)
            self._fetching.leave(part)
            return
        if part.begins:
            self._rules.counts["installs_begun"] += 1
            self._incoming.clear()
        self._incoming[part.offset :] = part.data
        self._world.moment(Moment.FETCHES, self._member_id)
        if not self._fetching.written(part):
            self._fetching.leave(part)
            return
        try:
            self.snapshots.verify(bytes(self._incoming), part.meta, self._states.make(NAME).load)
        except StoreDamagedError:
            self._fetching.restart(part)
            self._fetching.leave(part)
        else:
            self._adopts = KeptSnapshot(part.meta, bytes(self._incoming))
            self._later("adopts a snapshot", self._adopted, part, self._adopts)

    def _adopted(self, part: Part, kept: KeptSnapshot) -> None:
        self._adopts = None
        if self._disk.full:
            self._fetching.restart(part)
        else:
            self._adopt(kept)
            self._fetching.adopted(part)
        self._fetching.leave(part)

    def _adopt(self, kept: KeptSnapshot) -> None:
        self.snapshots.adopt(kept)
        self._rules.counts["installs_finished"] += 1
        self._rules.keeps(self._member_id, kept)

    def _send_chunk(self, sent: SentSnapshot) -> None:
        sent.reading = False
        if sent.offset == 0 and not self.snapshots.is_sound(sent.meta):
            self._save_if_due()
            return
        data = self.snapshots.chunk(sent.meta, sent.offset, self._conditions.chunk_bytes)
        if data is not None:
            self._world.send(sent.chunk(self._member_id, data))

    # -- helpers -----------------------------------------------------------------------------------

    def _now_s(self) -> float:
        return self._world.now_us / 1e6

    def _later(self, what: str, action: Callable[..., None], *arguments: Any) -> None:
        """Let a thread of this member act later, unless the member crashes before."""
        world = self._world
        delay_us = world.choices.delay_us(self._site_state, world.conditions.state_us)
        world.later(self._member_id, delay_us, what, action, *arguments)
