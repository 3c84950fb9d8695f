"""Entries of a program that is built on this member: proposed together, and followed to their end.

A draft has bodies whose last bytes may depend on their places in the log; the program's stamp
writes those when the entries are written, in the order of the log. Each draft ends once: committed,
refused (it is not in the log and never will be), or unknown (it may still be committed later).

A draft may have numbers (docs/idempotent-appends.md). It is refused if the log has one of them when
the draft would be written; so the log holds every number once, whichever member leads.

All drafts of one turn of the event loop become one proposal. A draft's deadline counts from its
arrival: the longer it waits to be proposed, the less time remains to wait for its quorum.
"""

import asyncio
import enum
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from dledger_formats.log.disk import Buffer
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.settings import NodeSettings
from dledger_node.raft.core import Raft
from dledger_node.services.draft_numbers import Numbers, NumbersCheck, channels_of
from dledger_node.services.next_proposal import PROPOSE_AT_BYTES, PROPOSE_AT_ENTRIES
from dledger_node.services.proposed import ProposedEntries
from dledger_node.services.proposing import Proposer
from dledger_node.services.refusals import Room
from dledger_node.services.waiting import ANSWER_WAIT_S, CommitWaiters, Waiter
from dledger_node.store.log.log_store import LogStore

HOLD_S: Final = ANSWER_WAIT_S
"""Longest time from the arrival of a draft until it is proposed."""
WAIT_S: Final = 2.5
"""Longest time from the arrival of a draft until it is committed. RocketMQ's clients time out
after 3 s, and learn less from a timeout than from an answer.
"""
TOGETHER_S: Final = 0.05
"""Drafts whose arrivals differ by less may share a deadline."""


class Outcome(enum.Enum):
    """How drafts ended."""

    COMMITTED = "committed"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Draft:
    """Bodies of consecutive entries that a program wants in the log."""

    __slots__ = ("arrived_s", "bodies", "numbers", "refusal")

    def __init__(self, bodies: Sequence[Buffer]) -> None:
        """The lengths of the bodies must not change."""
        self.bodies = bodies
        self.arrived_s = math.inf
        """When its request arrived, as a time of the event loop; set by `Drafts.propose`."""
        self.numbers: Numbers | None = None
        self.refusal: DLedgerResponseCode | None = None
        """Why the draft was refused."""

    @property
    def body_bytes(self) -> int:
        """Bytes of all bodies."""
        return sum(map(len, self.bodies))


class Stamper(Protocol):
    """What the drafts need from the program."""

    def is_ready(self) -> bool:
        """Return whether drafts can be stamped in the term that this member leads."""

    def may_be_written(self, draft: Draft) -> bool:
        """Return whether a draft may still be written, now that all earlier drafts are, or ended.

        It is refused otherwise.
        """

    def stamp(self, term: int, drafts: Sequence[Draft], positions: Sequence[int]) -> None:
        """Complete the bodies: they are being written now, at these positions."""

    def ended(self, drafts: Sequence[Draft], outcome: Outcome) -> None:
        """Handle drafts that have ended."""


class Drafts:
    """Proposes drafts. A member without a program has none."""

    def __init__(
        self,
        settings: NodeSettings,
        core: Raft,
        store: LogStore,
        *,
        room: Room,
        drive: Callable[[], None],
    ) -> None:
        """`drive` runs the core's work after a proposal."""
        self.owner: Stamper | None = None
        self._core = core
        self._store = store
        self._drive = drive
        self._loop = asyncio.get_running_loop()
        self._proposer = Proposer(core, store, room)
        self._waiters = CommitWaiters[Draft](settings.pending_requests_max)
        self._is_draining = False
        self._next: list[Draft] = []
        self._next_entries = self._next_bytes = 0
        self._oldest_s = math.inf
        """No draft of `_next` arrived earlier."""
        self._is_held = False
        """Whether `_next` waits for room, or for its owner."""

    def take_settings(self, settings: NodeSettings) -> None:
        """Apply the limit on entries that wait. Drafts that are held, or were just collected, are
        refused if it leaves no room for them.
        """
        self._waiters.count_max = settings.pending_requests_max
        room = self._waiters.count_max - self._waiters.count
        ends = itertools.accumulate(len(draft.bodies) for draft in self._next)
        kept = sum(end <= room for end in ends)
        if kept < len(self._next):
            self._keep(self._next[:kept], self._next[kept:])

    @property
    def pending_count(self) -> int:
        """Number of entries that wait for their quorum."""
        return self._waiters.count

    @property
    def entries_max(self) -> int:
        """The number of entries that may wait for their quorum: a longer draft is never taken."""
        return self._waiters.count_max

    def propose(self, draft: Draft, arrived_s: float | None = None) -> None:
        """Propose a draft soon; the owner is notified of its end.

        Its time counts from `arrived_s`, a time of the event loop, or from now if that is None.
        """
        draft.arrived_s = self._loop.time() if arrived_s is None else arrived_s
        entries, body_bytes = len(draft.bodies), draft.body_bytes
        if not self._waiters.has_room(self._next_entries + entries, self._next_bytes + body_bytes):
            self._refuse([draft], DLedgerResponseCode.LEADER_PENDING_FULL)
            return
        if not self._next:
            self._loop.call_soon(self._propose)
        self._next.append(draft)
        self._oldest_s = min(self._oldest_s, draft.arrived_s)
        self._next_entries += entries
        self._next_bytes += body_bytes
        if self._next_entries >= PROPOSE_AT_ENTRIES or self._next_bytes >= PROPOSE_AT_BYTES:
            self._propose()

    def on_turn(self, committed_index: int) -> None:
        """End the drafts whose outcome is decided."""
        core, waiters = self._core, self._waiters
        if waiters.count:
            leading_term = core.term if core.leads else None
            committed, unknown = waiters.release(committed_index, leading_term)
            for some, outcome in ((committed, Outcome.COMMITTED), (unknown, Outcome.UNKNOWN)):
                self._end([draft for waiter in some for draft in waiter.replies], outcome)
        waiters.notice_drained()

    @property
    def next_deadline_s(self) -> float:
        """No draft's deadline is earlier than this time."""
        held_until_s = self._oldest_s + HOLD_S if self._is_held else math.inf
        return min(held_until_s, self._waiters.next_deadline_s)

    def expire(self, now_s: float) -> None:
        """End the drafts that have waited for too long."""
        late = self._waiters.take_expired(now_s)
        self._end([draft for waiter in late for draft in waiter.replies], Outcome.UNKNOWN)
        if self._is_held and now_s >= self._oldest_s + HOLD_S:
            self._refuse_late(now_s)
        if not self._core.leads:
            self.go_on()

    def go_on(self) -> None:
        """Propose the drafts that waited until the log, or their owner, takes them."""
        if self._is_held:
            self._propose()

    def give_up(self) -> None:
        """End every draft: those not proposed yet are refused."""
        self._refuse_next(DLedgerResponseCode.NOT_LEADER)
        waiting = self._waiters.take_all()
        self._end([draft for waiter in waiting for draft in waiter.replies], Outcome.UNKNOWN)

    async def drained(self) -> None:
        """Refuse all further drafts, and return once none waits for its quorum."""
        self._is_draining = True
        self._refuse_next(DLedgerResponseCode.LEADER_TRANSFERRING)
        await self._waiters.drained()

    def _propose(self) -> None:
        """Propose all collected drafts, refuse them, or keep them until they can be proposed."""
        if not self._next:
            return
        if not self._core.leads:
            self._refuse_next(DLedgerResponseCode.NOT_LEADER)
            return
        if self._is_draining:
            self._refuse_next(DLedgerResponseCode.LEADER_TRANSFERRING)
            return
        owner = self.owner
        assert owner is not None
        sizes = [len(body) for draft in self._next for body in draft.bodies]
        must_wait = self._proposer.must_wait
        if not owner.is_ready() or must_wait(len(sizes), sum(sizes), lambda: sizes):
            self._is_held = True
            return
        drafts = self._refuse_unfit(owner, self._take_next())
        if not drafts:
            return
        bodies = [body for draft in drafts for body in draft.bodies]

        def stamp(term: int, positions: Sequence[int]) -> None:
            owner.stamp(term, drafts, positions)

        numbered = [(len(draft.bodies), draft.numbers) for draft in drafts]
        channels = channels_of(numbered, self._store.producers.table)
        entries = ProposedEntries(bodies, channels, stamp=stamp)
        proposed = self._proposer.propose(entries, list(map(len, bodies)))
        if isinstance(proposed, DLedgerResponseCode):
            self._refuse(drafts, proposed)
            return
        last_index = proposed.first_index - 1
        for replies, count in _together(drafts):
            last_index += count
            body_bytes = sum(draft.body_bytes for draft in replies)
            deadline_s = replies[0].arrived_s + WAIT_S
            self._waiters.add(
                Waiter(replies, last_index, proposed.term, deadline_s, count, body_bytes)
            )
        self._drive()

    def _refuse_unfit(self, owner: Stamper, drafts: Sequence[Draft]) -> list[Draft]:
        """Refuse the drafts that may not be written now; return the others."""
        numbers = NumbersCheck(self._store.producers.table)
        fit = []
        for draft in drafts:
            refusal: DLedgerResponseCode | None = DLedgerResponseCode.LEADER_PENDING_FULL
            if owner.may_be_written(draft):
                refusal = numbers.refusal(draft.numbers)
            if refusal is None:
                fit.append(draft)
            else:  # at once: a later draft may depend on this one
                self._refuse([draft], refusal)
        return fit

    def _take_next(self) -> list[Draft]:
        drafts, self._next = self._next, []
        self._next_entries = self._next_bytes = 0
        self._oldest_s = math.inf
        self._is_held = False
        return drafts

    def _refuse_late(self, now_s: float) -> None:
        """Refuse the drafts that were held for too long; the others keep waiting."""
        kept = [draft for draft in self._next if now_s < draft.arrived_s + HOLD_S]
        late = [draft for draft in self._next if now_s >= draft.arrived_s + HOLD_S]
        self._keep(kept, late)

    def _keep(self, kept: list[Draft], refused: list[Draft]) -> None:
        """Keep some of the drafts that are not proposed yet, and refuse the others."""
        self._next = kept
        self._next_entries = sum(len(draft.bodies) for draft in kept)
        self._next_bytes = sum(draft.body_bytes for draft in kept)
        self._oldest_s = min((draft.arrived_s for draft in kept), default=math.inf)
        self._is_held = self._is_held and bool(kept)
        self._refuse(refused, DLedgerResponseCode.LEADER_PENDING_FULL)

    def _refuse_next(self, code: DLedgerResponseCode) -> None:
        self._refuse(self._take_next(), code)

    def _refuse(self, drafts: Sequence[Draft], code: DLedgerResponseCode) -> None:
        for draft in drafts:
            draft.refusal = code
        self._end(drafts, Outcome.REFUSED)

    def _end(self, drafts: Sequence[Draft], outcome: Outcome) -> None:
        if drafts and self.owner is not None:
            self.owner.ended(drafts, outcome)


def _together(drafts: Sequence[Draft]) -> list[tuple[list[Draft], int]]:
    """Return groups of drafts that wait together, each with its number of entries.

    A group is a run of one-entry drafts that arrived at about one time, or one longer draft.
    """
    runs: list[tuple[list[Draft], int]] = []
    for draft in drafts:
        entries = len(draft.bodies)
        if entries == 1 and runs:
            last, count = runs[-1]
            if len(last) == count and abs(draft.arrived_s - last[0].arrived_s) < TOGETHER_S:
                last.append(draft)
                runs[-1] = (last, count + 1)
                continue
        runs.append(([draft], entries))
    return runs
