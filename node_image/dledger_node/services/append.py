"""Clients' appends: gathered, proposed as one batch, and answered when their quorum holds them.

All appends of one turn of the loop become one proposal, but where there are many: what was read
first is proposed while the rest is still read, so that followers have their part to do meanwhile.

Whatever cannot be taken is refused at once, and surely not stored; whatever was taken is answered
with success, or as unknown: it may commit later. Appends that may be in the log already are sorted
out first (`once`).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dledger_formats.protocol import frames, requests
from dledger_formats.protocol.requests import DLedgerResponseCode
from dledger_formats.settings import NodeSettings
from dledger_node.raft.core import Raft
from dledger_node.raft.proposals import Proposal, Refusal
from dledger_node.remoting.service import AppendCall, BatchCall, Caller, ClientCall, IdempotentCall
from dledger_node.services.idempotent import Entries, IdempotentAppends
from dledger_node.services.pending import Batch, PendingAppends
from dledger_node.store.log.log_store import LogStore

PENDING_BYTES_MAX: Final = 64 << 20
GATHERED_MAX: Final = 128
GATHERED_BYTES_MAX: Final = 128 << 10
"""So many appends, or bytes, do not wait for the turn of the loop to end: with 1000 in flight that
made groups a third faster (docs/benchmarks.md). With fewer, each proposal costs more than it gains.
"""
APPEND_WAIT_S: Final = 2.0
"""After this an append is answered with 502; Java clients give up after 3 s."""


@dataclass(slots=True)
class _Gathered:
    """What is proposed next, in this order: all at once."""

    calls: list[AppendCall] = field(default_factory=list)
    once: list[IdempotentCall] = field(default_factory=list)
    batches: list[BatchCall] = field(default_factory=list)
    count: int = 0
    """Of bodies."""
    body_bytes: int = 0

    @property
    def is_enough(self) -> bool:
        return self.count >= GATHERED_MAX or self.body_bytes >= GATHERED_BYTES_MAX

    def all(self) -> Sequence[ClientCall]:
        """Who is answered; those of `once` are among `calls` when they are sorted out."""
        return [*self.calls, *self.batches]

    def bodies(self) -> list[bytes]:
        """The bodies of `all`."""
        bodies = [call.body for call in self.calls]
        for batch in self.batches:
            bodies += batch.bodies
        return bodies


class Appends:
    """The way of an append from its connection into the core, and of its answer back."""

    def __init__(
        self,
        settings: NodeSettings,
        core: Raft,
        store: LogStore,
        *,
        has_room: Callable[[Sequence[int]], bool],
        drive: Callable[[], None],
        prove: Callable[[Callable[[DLedgerResponseCode], None]], None],
    ) -> None:
        self._core = core
        self._store = store
        self._group = settings.group
        self._pending_requests_max = settings.pending_requests_max
        self._has_room = has_room
        self._drive = drive
        self._loop = asyncio.get_running_loop()
        self._gathered = _Gathered()
        self._drained = asyncio.Event()
        self.pending = PendingAppends()
        self.once = IdempotentAppends(
            core,
            store,
            group=settings.group,
            waiters_max=settings.pending_requests_max,
            has_room=has_room,
            drive=drive,
            prove=prove,
        )
        self.acknowledged = 0
        self.refused = 0
        self.unknown = 0

    def gather(self, calls: list[AppendCall]) -> None:
        """Keep appends until they are enough for a proposal, or this turn of the loop ends."""
        self._propose_soon()
        self._gathered.calls += calls
        self._propose_if_enough([call.body for call in calls])

    def gather_idempotent(self, calls: list[IdempotentCall]) -> None:
        """The same for appends that may be in the log already."""
        self._propose_soon()
        self._gathered.once += calls
        self._propose_if_enough([call.body for call in calls])

    def gather_batches(self, calls: list[BatchCall]) -> None:
        """The same for those that came together."""
        for call in calls:
            self._propose_soon()
            self._gathered.batches.append(call)
            self._propose_if_enough(call.bodies)

    def settle(self, committed_index: int) -> None:
        """Answer every append that is committed, with one write for each connection.

        An index says whose append is committed there only while this member still leads the term
        in which it gave the index away. Once it does not, another leader's entry may have taken
        the place, so everything that waits is answered as unknown.
        """
        self.once.settle(committed_index)
        if not self.pending.count:
            self._drained.set()
            return
        if not self._leads(self.pending.first_term):
            self.give_up()
            return
        answers: dict[Caller, list[tuple[int, bytes]]] = {}
        for batch in self.pending.take_committed(committed_index):
            calls, first_index = batch.calls, batch.first_index
            written = requests.append_successes(
                self._group,
                self._core.config.self_id,
                batch.term,
                first_index,
                # One for each call: where all entries are one call's, only the first is told.
                self._store.positions(first_index, first_index + len(calls) - 1),
            )
            for call, response in zip(calls, written, strict=True):
                mine = answers.get(call.connection)
                if mine is None:
                    mine = answers[call.connection] = []
                mine.append((call.opaque, response))
            self.acknowledged += batch.entry_count
        _send(answers)
        if not self.pending.count:
            self._drained.set()

    def expire(self) -> None:
        """Answer what has waited too long."""
        self._answer_unknown(self.pending.take_expired(self._loop.time()))
        self.once.expire()

    def give_up(self) -> None:
        """Answer everything that waits: this member leads no more, or stops."""
        self._answer_unknown(self.pending.take_all())
        self.once.give_up()

    def _leads(self, term: int | None) -> bool:
        return self._core.leads and term in (None, self._core.term)

    async def drained(self) -> None:
        """Return once nothing waits for its quorum."""
        self._drained.clear()
        if self.pending.count:
            await self._drained.wait()

    def _propose_soon(self) -> None:
        """See to it, before more is gathered, that all is proposed when this turn ends."""
        if not self._gathered.count:
            self._loop.call_soon(self._propose)

    def _propose_if_enough(self, bodies: Sequence[bytes]) -> None:
        gathered = self._gathered
        gathered.count += len(bodies)
        gathered.body_bytes += sum(map(len, bodies))
        if gathered.is_enough:
            self._propose()

    def _propose(self) -> None:
        gathered, self._gathered = self._gathered, _Gathered()
        if gathered.once:
            gathered.calls += self._sort_out(gathered.once)
        if not self._leads(None):
            self._refuse(gathered.all(), DLedgerResponseCode.NOT_LEADER)
            return
        bodies = gathered.bodies()
        sizes = list(map(len, bodies))
        if not self._may_wait(sizes):
            self._refuse_excess(gathered)
            bodies = gathered.bodies()
            sizes = list(map(len, bodies))
        if not bodies:
            return
        if not self._has_room(sizes):
            self._refuse(gathered.all(), DLedgerResponseCode.DISK_FULL)
            return
        channels = None
        if gathered.once:
            of_calls = self.once.channels(gathered.calls)
            channels = of_calls + [0] * (len(bodies) - len(of_calls))
        proposal = self._core.propose(len(bodies), Entries(bodies, channels))
        if isinstance(proposal, Refusal):
            self._refuse(gathered.all(), DLedgerResponseCode.NOT_LEADER)
            return
        self._await_quorum(proposal, gathered, sizes)
        self._drive()

    def _may_wait(self, sizes: Sequence[int]) -> bool:
        """Whether bodies of these sizes may wait for their quorum, all of them."""
        return (
            len(sizes) <= self._pending_requests_max - self.pending.count
            and sum(sizes) <= PENDING_BYTES_MAX - self.pending.body_bytes
            and max(sizes, default=0) <= self._store.body_bytes_max
        )

    def _await_quorum(self, proposal: Proposal, gathered: _Gathered, sizes: Sequence[int]) -> None:
        deadline_s = self._loop.time() + APPEND_WAIT_S
        at = 0
        parts: list[tuple[Sequence[ClientCall], int]]
        parts = [([batch], len(batch.bodies)) for batch in gathered.batches]
        if gathered.calls:
            parts.insert(0, (gathered.calls, len(gathered.calls)))
        for part, count in parts:
            self.pending.add(
                Batch(
                    first_index=proposal.first_index + at,
                    term=proposal.term,
                    calls=part,
                    entry_count=count,
                    deadline_s=deadline_s,
                    body_bytes=sum(sizes[at : at + count]),
                )
            )
            at += count

    def _sort_out(self, once: list[IdempotentCall]) -> list[IdempotentCall]:
        """Answer what is in the log already, and such; returns what is to be appended."""
        if not self._leads(None):
            return once  # to be refused with the others
        fresh, again = self.once.sort_out(once)
        if again:  # copies of what is proposed now: not before that is done
            self._propose_soon()
            self._gathered.once += again
            self._gathered.count += len(again)
        return fresh

    def _refuse_excess(self, gathered: _Gathered) -> None:
        """Refuse what is too large, and what is more than may wait; the others stay."""
        count = self._pending_requests_max - self.pending.count
        room_bytes = PENDING_BYTES_MAX - self.pending.body_bytes

        def stays(call: ClientCall, sizes: Sequence[int]) -> bool:
            nonlocal count, room_bytes
            if max(sizes) > self._store.body_bytes_max:
                self._refuse([call], DLedgerResponseCode.DISK_ERROR)  # Java's answer too
            elif len(sizes) > self._pending_requests_max:
                self._refuse([call], DLedgerResponseCode.UNSUPPORTED)  # one by one they fit
            elif len(sizes) > count or sum(sizes) > room_bytes:
                self._refuse([call], DLedgerResponseCode.LEADER_PENDING_FULL)
            else:
                count -= len(sizes)
                room_bytes -= sum(sizes)
                return True
            return False

        gathered.calls = [call for call in gathered.calls if stays(call, [len(call.body)])]
        gathered.batches = [
            batch for batch in gathered.batches if stays(batch, list(map(len, batch.bodies)))
        ]

    def _refuse(self, calls: Sequence[ClientCall], code: DLedgerResponseCode) -> None:
        if not calls:
            return
        self.refused += sum(
            len(call.bodies) if isinstance(call, BatchCall) else 1 for call in calls
        )
        self._answer(calls, code)

    def _answer_unknown(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.unknown += batch.entry_count
            self._answer(batch.calls, DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT)

    def _answer(self, calls: Sequence[ClientCall], code: DLedgerResponseCode) -> None:
        response = requests.AppendEntryResponse(
            code=code, group=self._group, leader_id=self._core.leader_id, term=self._core.term
        ).to_json()
        answers: dict[Caller, list[tuple[int, bytes]]] = {}
        for call in calls:
            answers.setdefault(call.connection, []).append((call.opaque, response))
        _send(answers)


def _send(answers: dict[Caller, list[tuple[int, bytes]]]) -> None:
    for connection, responses in answers.items():
        connection.send(frames.encode_responses(responses))
