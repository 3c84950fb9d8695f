"""Idempotent appends, and the registration of the producers that number them.

The store's table of producers (`store.derived.producers`) says which sequences of a producer the
log has. A duplicate of an entry in the log is not appended. It is answered with the place of that
entry as soon as the entry is committed.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, cast

from dledger_formats.log import disk
from dledger_formats.log.channels import channel_of
from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.producers import RegisterProducerRequest, RegisterProducerResponse
from dledger_formats.protocol.requests import AppendEntryResponse
from dledger_formats.settings import NodeSettings
from dledger_node.errors import StoreDamagedError, StoreError
from dledger_node.raft.core import Raft
from dledger_node.raft.proposals import Refusal
from dledger_node.remoting.connection_views import Reader
from dledger_node.remoting.service import (
    BatchCall,
    ClientCall,
    IdempotentBatchCall,
    IdempotentCall,
    Reply,
)
from dledger_node.services.disk_reads import DiskReads
from dledger_node.services.proposed import ProposedEntries
from dledger_node.services.quorum_waits import QuorumWaits
from dledger_node.services.recent_entries import RecentEntries
from dledger_node.services.refusals import PROPOSAL_CODES, Prove, Room
from dledger_node.services.waiting import ANSWER_WAIT_S, Answer, Waiter
from dledger_node.store.derived.producers import Finding
from dledger_node.store.log.log_store import LogStore

_REFUSALS: Final = {
    Finding.TOO_OLD: DLedgerResponseCode.SEQUENCE_TOO_OLD,
    Finding.TOO_NEW: DLedgerResponseCode.SEQUENCE_TOO_NEW,
}


class IdempotentAppends(QuorumWaits):
    """Answers duplicates and registers producers."""

    def __init__(
        self,
        core: Raft,
        store: LogStore,
        *,
        group: str,
        waiters_max: int,
        room: Room,
        disk_reads: DiskReads,
        drive: Callable[[], None],
        prove: Prove,
    ) -> None:
        super().__init__(core, waiters_max)
        self._store = store
        self._group = group
        self._room = room
        self._disk = disk_reads
        self._drive = drive
        self._prove = prove
        self._loop = asyncio.get_running_loop()
        self._recent = RecentEntries()
        self.repeated = 0
        """Number of duplicates that were answered with the place of an entry in the log."""

    def take_settings(self, settings: NodeSettings) -> None:
        """Apply the limit on requests that wait."""
        self._waiters.count_max = settings.pending_requests_max

    def expire(self, now_s: float) -> None:
        """Answer the requests that have timed out, and note how long the log is by now."""
        super().expire(now_s)
        self._recent.note(now_s, self._store.end_index)

    def deduplicate(
        self, calls: Sequence[IdempotentCall]
    ) -> tuple[list[IdempotentCall], list[IdempotentCall]]:
        """Answer, now or later, the calls that must not be appended.

        Returns the calls to append, and further duplicates of these calls; the caller passes the
        duplicates in again once the log has the entries.
        """
        new: list[IdempotentCall] = []
        repeated: list[IdempotentCall] = []
        taken: set[tuple[int, int]] = set()
        find = self._store.producers.table.find
        for call in calls:
            found = find(call.producer, call.sequence)
            if found is Finding.NEW:
                key = (call.producer, call.sequence)
                (repeated if key in taken else new).append(call)
                taken.add(key)
            elif found is Finding.UNKNOWN_PRODUCER:
                self._refuse_unknown_producer(call)
            elif isinstance(found, Finding):
                self._answer_append(call, _REFUSALS[found])
            else:
                self._answer_duplicate(call, found)
        return new, repeated

    def new_batches(
        self, batches: Sequence[BatchCall], singles: Sequence[ClientCall]
    ) -> list[BatchCall]:
        """Answer the idempotent batches that must not be appended whole; return all others.

        `singles` are the appends that precede the batches in the log.
        """
        last: dict[int, int] = {}
        """The highest sequence that each producer has in the same proposal."""
        for call in singles:
            if isinstance(call, IdempotentCall):
                last[call.producer] = max(last.get(call.producer, 0), call.sequence)
        new: list[BatchCall] = []
        for batch in batches:
            if isinstance(batch, IdempotentBatchCall):
                if not self._is_new(batch, last.get(batch.producer, 0)):
                    continue
                last[batch.producer] = batch.last_sequence
            new.append(batch)
        return new

    def channels(self, calls: Iterable[ClientCall]) -> list[int]:
        """Return the channels with which the bodies of appends are written; 0 for ordinary ones."""
        channel = self._store.producers.table.channel
        channels: list[int] = []
        for call in calls:
            match call:
                case IdempotentCall():
                    channels.append(channel(call.producer, call.sequence))
                case IdempotentBatchCall():
                    channels += self._store.producers.table.channels(
                        call.producer, call.sequence, len(call.bodies)
                    )
                case BatchCall():
                    channels += [0] * len(call.bodies)
                case _:
                    channels.append(0)
        return channels

    def register(self, _: RegisterProducerRequest, reply: Reply) -> None:
        """Register a new producer. Its identity is the index of the registration's entry."""
        if not self._core.leads:
            self._answer_registration(reply, DLedgerResponseCode.NOT_LEADER)
            return
        if self._is_full:
            self._answer_registration(reply, DLedgerResponseCode.LEADER_PENDING_FULL)
            return
        refused = self._room.reserve([0])
        if refused is None and self._core.lacks_room:
            refused = DLedgerResponseCode.DISK_FULL
        if refused is not None:
            self._answer_registration(reply, refused)
            return
        number = self._store.producers.table.next_number(
            recent_index=self._recent.first_index(self._loop.time())
        )
        entries = ProposedEntries([b""], [channel_of(number, 0)], disk.NOOP)
        proposal = self._core.propose(1, entries)
        if isinstance(proposal, Refusal):
            self._answer_registration(reply, PROPOSAL_CODES[proposal.reason])
            return
        index = proposal.first_index
        self._await_commit(index, lambda code: self._answer_registration(reply, code, index))
        self._drive()

    def _is_new(self, batch: IdempotentBatchCall, proposed_sequence: int) -> bool:
        """Return whether a batch may be appended whole; answer it if not.

        `proposed_sequence` is the producer's highest one in the same proposal.
        """
        found: Finding | None = None
        if batch.sequence > proposed_sequence:
            found = self._store.producers.table.find_run(
                batch.producer, batch.sequence, batch.last_sequence
            )
        if found is Finding.NEW:
            return True
        if found is Finding.UNKNOWN_PRODUCER:
            self._refuse_unknown_producer(batch)
        else:
            code = DLedgerResponseCode.SEQUENCES_NOT_NEW
            self._answer_append(batch, code if found is None else _REFUSALS[found])
        return False

    def _refuse_unknown_producer(self, call: IdempotentCall | IdempotentBatchCall) -> None:
        """Refuse a producer that this log lacks, once this member has proved that it leads.

        A deposed leader may lack a registration that the group has.
        """

        def answer(code: DLedgerResponseCode) -> None:
            proved = code is DLedgerResponseCode.SUCCESS
            self._answer_append(call, DLedgerResponseCode.UNKNOWN_PRODUCER if proved else code)

        self._prove(answer)

    def _answer_duplicate(self, call: IdempotentCall, index: int) -> None:
        """Answer a duplicate of the entry at `index` once that entry is committed."""
        if index <= self._core.readable_index:
            self._answer_with_place(call, index)
        elif self._is_full:
            self._answer_append(call, DLedgerResponseCode.LEADER_PENDING_FULL)
        else:

            def answer(code: DLedgerResponseCode) -> None:
                if code is DLedgerResponseCode.SUCCESS:
                    self._answer_with_place(call, index)
                else:
                    self._answer_append(call, code)

            self._await_commit(index, answer)

    def _await_commit(self, index: int, answer: Answer) -> None:
        deadline_s = self._loop.time() + ANSWER_WAIT_S
        self._waiters.add(Waiter([answer], index, self._core.term, deadline_s))

    def _answer_with_place(self, call: IdempotentCall, index: int) -> None:
        if index < self._store.begin_index:  # removed since, so it is committed
            self.repeated += 1
            _send(call, AppendEntryResponse(group=self._group, index=index))
            return
        try:
            unit = self._store.cached_position(index)
        except StoreDamagedError:
            # The store records the damage; this member mends it or leaves. Another one can answer.
            self._answer_unknown(call)
            return
        if unit is not None:
            self._send_place(call, index, unit)
            return
        self._disk.read(
            cast("Reader", call.connection),  # links do not carry idempotent appends
            partial(self._store.position, index),
            partial(self._place_read, call, index),
            partial(self._answer_unknown, call),
        )

    def _place_read(
        self, call: IdempotentCall, index: int, future: "asyncio.Future[disk.IndexUnit]"
    ) -> None:
        if index < self._store.begin_index:  # removed meanwhile
            future.exception()
            self._answer_with_place(call, index)
            return
        try:
            unit = future.result()
        except (StoreError, LookupError, ValueError):  # the log was closed or replaced
            self._answer_unknown(call)
        else:
            self._send_place(call, index, unit)

    def _answer_unknown(self, call: IdempotentCall) -> None:
        self._answer_append(call, DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT)

    def _send_place(self, call: IdempotentCall, index: int, unit: disk.IndexUnit) -> None:
        self.repeated += 1
        _send(
            call,
            AppendEntryResponse(
                group=self._group,
                leader_id=self._core.leader_id,
                term=unit.term,
                index=index,
                pos=unit.pos,
            ),
        )

    def _answer_append(self, call: ClientCall, code: DLedgerResponseCode) -> None:
        _send(
            call,
            AppendEntryResponse(
                code=code, group=self._group, leader_id=self._core.leader_id, term=self._core.term
            ),
        )

    def _answer_registration(
        self, reply: Reply, code: DLedgerResponseCode, producer: int = -1
    ) -> None:
        reply(
            RegisterProducerResponse(
                code=code,
                group=self._group,
                leader_id=self._core.leader_id,
                term=self._core.term,
                producer=producer if code is DLedgerResponseCode.SUCCESS else -1,
            )
        )


def _send(call: ClientCall, answer: AppendEntryResponse) -> None:
    call.connection.send(frames.encode_responses([(call.opaque, answer.to_json())]))
