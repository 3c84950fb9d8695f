"""Clients' appends: collected, proposed together, and answered once a quorum holds them.

All appends of one turn of the event loop become one proposal. When many arrive in one turn, the
first ones are proposed while the rest are still being read, so that the followers can start early.

An append is only refused before it is proposed: a refused append is not in the log and never will
be. A proposed append is acknowledged, or its outcome is unknown: it may still commit later.
Idempotent appends are compared with the log first (`idempotent`).
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dledger_formats.protocol import requests
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.settings import NodeSettings
from dledger_node.errors import StoreDamagedError
from dledger_node.histogram import Histogram
from dledger_node.raft.core import Raft
from dledger_node.raft.proposals import Proposal
from dledger_node.remoting.connection_views import WritableConnection
from dledger_node.remoting.service import (
    AppendCall,
    BatchCall,
    ClientCall,
    IdempotentBatchCall,
    IdempotentCall,
)
from dledger_node.services.answering import Answering
from dledger_node.services.idempotent import IdempotentAppends
from dledger_node.services.next_proposal import (
    PROPOSE_AT_BYTES,
    PROPOSE_AT_ENTRIES,
    NextProposal,
)
from dledger_node.services.pending_by_address import PendingByAddress
from dledger_node.services.proposed import ProposedEntries
from dledger_node.services.proposing import Proposer
from dledger_node.services.refusals import Room
from dledger_node.services.waiting import ANSWER_WAIT_S, CommitWaiters, Waiter
from dledger_node.store.log.log_store import LogStore

WAIT_BOUNDS_S: Final = (
    0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0,
)  # fmt: skip


class Appends:
    """Takes appends from connections, proposes them to the core, and answers them."""

    def __init__(
        self,
        settings: NodeSettings,
        core: Raft,
        store: LogStore,
        idempotent: IdempotentAppends,
        *,
        room: Room,
        drive: Callable[[], None],
    ) -> None:
        """`drive` runs the core's work after a proposal."""
        self._core, self._store = core, store
        self._idempotent = idempotent
        self._group = settings.group
        self._drive = drive
        self._loop = asyncio.get_running_loop()
        self._proposer = Proposer(core, store, room)
        self._answering = Answering()
        self._next = NextProposal()
        self._held_until_s = math.inf
        """When `_next` stops waiting for the log to take entries; infinite if it does not wait."""
        self._waiters = CommitWaiters[ClientCall](settings.pending_requests_max)
        self._by_address = PendingByAddress(settings.client_pending_appends_max)
        self._is_draining = False
        self.is_owned_by_program = False
        """Whether a program owns the log (`embedding`): clients may append nothing."""
        self.acknowledged = 0
        self.waited_s = Histogram(WAIT_BOUNDS_S)
        """Time from the proposal of each acknowledged append to its answer."""
        self.refused = self.unknown = 0

    def take_settings(self, settings: NodeSettings) -> None:
        """Apply new limits on waiting appends to those that arrive from now on."""
        self._waiters.count_max = settings.pending_requests_max
        self._by_address.take_limit(settings.client_pending_appends_max, self._waiters.replies())

    @property
    def pending_count(self) -> int:
        """Number of entries that wait for their quorum."""
        return self._waiters.count

    @property
    def pending_bytes(self) -> int:
        """Bytes of the bodies that wait for their quorum."""
        return self._waiters.body_bytes

    def append(self, calls: list[AppendCall]) -> None:
        """Accept APPENDs; each is answered on its connection."""
        self._take([call.body for call in calls])
        self._next.singles += calls
        self._propose_if_enough()

    def append_idempotent(self, calls: list[IdempotentCall]) -> None:
        """Accept APPEND_IDEMPOTENTs, whose entries may already be in the log."""
        self._take([call.body for call in calls])
        self._next.idempotent += calls
        self._propose_if_enough()

    def append_batch(self, call: BatchCall) -> None:
        """Accept an APPEND_BATCH; it gets one answer for all of its bodies."""
        self._take(call.bodies)
        self._next.batches.append(call)
        self._propose_if_enough()

    def on_turn(self, committed_index: int) -> None:
        """Answer the appends whose outcome is decided, with one write for each connection."""
        core, waiters = self._core, self._waiters
        if waiters.count:
            leading_term = core.term if core.leads else None
            committed, unknown = waiters.release(committed_index, leading_term)
            if committed:
                try:
                    places = [self._positions(waiter) for waiter in committed]
                except StoreDamagedError:
                    self._answer_unknown([*committed, *unknown])
                    raise
                self._acknowledge(committed, places)
            if unknown:
                self._answer_unknown(unknown)
        waiters.notice_drained()

    @property
    def next_deadline_s(self) -> float:
        """No deadline of a waiting request is earlier than this time."""
        return min(self._held_until_s, self._waiters.next_deadline_s)

    def expire(self, now_s: float) -> None:
        """Answer the appends that have timed out: the outcome of those proposed is unknown."""
        self._answer_unknown(self._waiters.take_expired(now_s))
        if now_s >= self._held_until_s:
            self._refuse_all(DLedgerResponseCode.LEADER_PENDING_FULL)
        elif not self._core.leads:
            self.go_on()

    def go_on(self) -> None:
        """Propose the appends that waited until the log takes entries again."""
        if self._held_until_s < math.inf:
            self._propose()

    def give_up(self) -> None:
        """Answer every append: those not proposed yet are refused, the others unknown."""
        self._refuse_all(DLedgerResponseCode.NOT_LEADER)
        self._answer_unknown(self._waiters.take_all())
        self._answering.send_rest()

    async def drained(self) -> None:
        """Refuse all further appends, and return once none waits for its quorum.

        A member without a successor still leads, and the outcome of the last appends would be
        unknown if it took appends until it closed.
        """
        self._is_draining = True
        self._refuse_all(DLedgerResponseCode.LEADER_TRANSFERRING)
        await self._waiters.drained()

    # -- proposing -------------------------------------------------------------------------------

    def _take(self, bodies: Sequence[bytes]) -> None:
        """Count bodies of the next proposal, and schedule it for the end of this loop turn."""
        upcoming = self._next
        if not upcoming.entry_count:
            self._loop.call_soon(self._propose)
        upcoming.entry_count += len(bodies)
        upcoming.body_bytes += sum(map(len, bodies))

    def _propose_if_enough(self) -> None:
        upcoming = self._next
        if upcoming.entry_count >= PROPOSE_AT_ENTRIES or upcoming.body_bytes >= PROPOSE_AT_BYTES:
            self._propose()

    def _propose(self) -> None:
        """Propose all collected appends, or refuse them, or keep them until there is room."""
        if self.is_owned_by_program:
            self._refuse_all(DLedgerResponseCode.UNSUPPORTED)
            return
        if not self._core.leads:
            self._refuse_all(DLedgerResponseCode.NOT_LEADER)
            return
        if self._is_draining:
            self._refuse_all(DLedgerResponseCode.LEADER_TRANSFERRING)
            return
        if self._waits_for_room():
            return
        self._held_until_s = math.inf
        upcoming, self._next = self._next, NextProposal()
        if upcoming.idempotent:
            upcoming.singles += self._without_duplicates(upcoming.idempotent)
        numbered = bool(upcoming.idempotent)
        if any(isinstance(batch, IdempotentBatchCall) for batch in upcoming.batches):
            numbered = True
            upcoming.batches = self._idempotent.new_batches(upcoming.batches, upcoming.singles)
        if self._by_address.active:
            self._refuse_excess_of_addresses(upcoming)
        bodies = upcoming.bodies()
        sizes = list(map(len, bodies))
        if not self._may_wait(sizes):
            self._refuse_excess(upcoming)
            bodies = upcoming.bodies()
            sizes = list(map(len, bodies))
        if not bodies:
            return
        channels = self._idempotent.channels(upcoming.calls()) if numbered else None
        proposed = self._proposer.propose(ProposedEntries(bodies, channels), sizes)
        if isinstance(proposed, DLedgerResponseCode):
            self._refuse(upcoming.calls(), proposed)
            return
        self._await_quorum(proposed, upcoming, sizes)
        self._drive()

    def _waits_for_room(self) -> bool:
        """Return whether the collected appends must wait until a thread has made room for them.

        They are not compared with the log before that: it may change in the meantime.
        """
        upcoming = self._next
        if not self._proposer.must_wait(
            upcoming.entry_count,
            upcoming.body_bytes,
            lambda: upcoming.sizes(self._store.body_bytes_max),
        ):
            return False
        self._held_until_s = min(self._held_until_s, self._loop.time() + ANSWER_WAIT_S)
        if not self._waiters.has_room(upcoming.entry_count, upcoming.body_bytes):
            self._refuse_all(DLedgerResponseCode.LEADER_PENDING_FULL)
        return True

    def _without_duplicates(self, calls: list[IdempotentCall]) -> list[IdempotentCall]:
        """Return the appends that the log lacks; the others are answered."""
        new, repeated = self._idempotent.deduplicate(calls)
        if repeated:  # duplicates of the new ones, to be compared with the log once it has those
            self._take([call.body for call in repeated])
            self._next.idempotent += repeated
        return new

    def _may_wait(self, sizes: Sequence[int]) -> bool:
        """Return whether there is room for all bodies of these sizes to wait for their quorum."""
        fits = max(sizes, default=0) <= self._store.body_bytes_max
        return fits and self._waiters.has_room(len(sizes), sum(sizes))

    def _await_quorum(
        self, proposal: Proposal, upcoming: NextProposal, sizes: Sequence[int]
    ) -> None:
        """Add a waiter for all singles, and one for each batch."""
        deadline_s = self._loop.time() + ANSWER_WAIT_S
        parts: list[tuple[Sequence[ClientCall], int]]
        parts = [([batch], len(batch.bodies)) for batch in upcoming.batches]
        if upcoming.singles:
            parts.insert(0, (upcoming.singles, len(upcoming.singles)))
        begin = 0
        for calls, count in parts:
            end = begin + count
            self._waiters.add(
                Waiter(
                    replies=calls,
                    last_index=proposal.first_index + end - 1,
                    term=proposal.term,
                    deadline_s=deadline_s,
                    entry_count=count,
                    body_bytes=sum(sizes[begin:end]),
                )
            )
            self._by_address.add(calls)
            begin = end

    # -- answering -------------------------------------------------------------------------------

    def _positions(self, waiter: Waiter[ClientCall]) -> list[int]:
        """Return one position for each call: a batch is answered with that of its first entry."""
        first_index = waiter.first_index
        return self._store.positions(first_index, first_index + len(waiter.replies) - 1)

    def _acknowledge(self, committed: list[Waiter[ClientCall]], places: list[list[int]]) -> None:
        answers: dict[WritableConnection, list[tuple[int, bytes]]] = {}
        deadline_of_now_s = self._loop.time() + ANSWER_WAIT_S
        """The deadline of an append that is proposed now."""
        for waiter, positions in zip(committed, places, strict=True):
            calls, first_index = waiter.replies, waiter.first_index
            self._by_address.remove(calls)
            written = requests.append_successes(
                self._group,
                self._core.config.self_id,
                waiter.term,
                first_index,
                positions,
            )
            for call, response in zip(calls, written, strict=True):
                mine = answers.get(call.connection)
                if mine is None:
                    mine = answers[call.connection] = []
                mine.append((call.opaque, response))
            self.acknowledged += waiter.entry_count
            self.waited_s.observe(deadline_of_now_s - waiter.deadline_s, waiter.entry_count)
        self._answering.send(answers)

    def _refuse_all(self, code: DLedgerResponseCode) -> None:
        """Refuse the appends that are not proposed yet."""
        upcoming, self._next = self._next, NextProposal()
        self._held_until_s = math.inf
        upcoming.singles += upcoming.idempotent
        self._refuse(upcoming.calls(), code)

    def _refuse_excess(self, upcoming: NextProposal) -> None:
        """Refuse appends that are too large or for which there is no room; keep the others."""
        excess = upcoming.take_excess(
            self._store.body_bytes_max,
            count_max=self._waiters.count_max,
            count=self._waiters.count_max - self._waiters.count,
            room_bytes=self._waiters.room_bytes,
        )
        for call, code in excess:
            self._refuse([call], code)

    def _refuse_excess_of_addresses(self, upcoming: NextProposal) -> None:
        excess = self._by_address.excess(upcoming.calls())
        refused = {id(call) for call, _ in excess}
        upcoming.singles = [call for call in upcoming.singles if id(call) not in refused]
        upcoming.batches = [call for call in upcoming.batches if id(call) not in refused]
        for code in dict.fromkeys(code for _, code in excess):
            self._refuse([call for call, its_code in excess if its_code is code], code)

    def _refuse(self, calls: Sequence[ClientCall], code: DLedgerResponseCode) -> None:
        if not calls:
            return
        self.refused += sum(call.entry_count for call in calls)
        self._answer(calls, code)

    def _answer_unknown(self, waiters: Iterable[Waiter[ClientCall]]) -> None:
        for waiter in waiters:
            self.unknown += waiter.entry_count
            self._by_address.remove(waiter.replies)
            self._answer(waiter.replies, DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT)

    def _answer(self, calls: Sequence[ClientCall], code: DLedgerResponseCode) -> None:
        response = requests.AppendEntryResponse(
            code=code, group=self._group, leader_id=self._core.leader_id, term=self._core.term
        ).to_json()
        self._answering.send_to_all(calls, response)
