"""A broker's leader without a node: its proposals wait until a test writes them."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Final, cast

from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.record_draft import Place, RecordDraft
from dledger_broker.leading.state_changes import StateChanges
from dledger_broker.state.broker_state import BrokerState
from dledger_formats.rocketmq import message_record
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_node.embedding import Member
from dledger_node.services.drafts import Outcome

HOST: Final = bytes(8)
_RECORD_BYTES: Final = 10_000
"""The distance of the positions of two records."""


def new_owner() -> tuple[LogOwner, BrokerState]:
    """Return the owner of a leader's log, which proposes nothing, and its state."""
    state = BrokerState()
    member = SimpleNamespace(machine=lambda _: state, leads=True, wall_ms=lambda: 0)
    return LogOwner(cast("Member", member), lambda: HOST), state


class ProposingLeader:
    """A leader whose proposals wait in `proposed`, and its state."""

    def __init__(self) -> None:
        self.proposed: list[RecordDraft] = []
        self.written: list[bytes] = []
        """The bodies of the entries of the log."""
        self.state = state = BrokerState()
        self._has_proposed = asyncio.Event()
        drafts = SimpleNamespace(propose=lambda draft, _: self.propose(draft))
        self.member = SimpleNamespace(
            machine=lambda _: state, leads=True, master=True, has_applied_all=True, term=1,
            wall_ms=lambda: 0,
            drafts=drafts,
        )  # fmt: skip
        self.owner = LogOwner(cast("Member", self.member), lambda: HOST)
        assert self.owner.is_ready()
        self.changes = StateChanges(self.owner)

    def propose(self, draft: RecordDraft) -> None:
        """Let a draft wait until it is written."""
        self.proposed.append(draft)
        self._has_proposed.set()

    async def next_draft(self) -> RecordDraft:
        """Return the draft that is written next, once there is one."""
        async with asyncio.timeout(10):
            await self._has_proposed.wait()
        return self.proposed[0]

    def stamp(
        self, drafts: Sequence[RecordDraft], begin: int, step: int = _RECORD_BYTES
    ) -> list[int]:
        """Stamp drafts for entries from the position `begin` on; return the queue offset of each
        record.
        """
        bodies = [body for draft in drafts for body in draft.bodies]
        self.owner.stamp(1, drafts, range(begin, begin + step * len(bodies), step))
        return [message_record.decode(body).queue_offset for body in bodies]

    def write(self) -> None:
        """Write, commit and apply all proposals, including those that this causes."""
        while self.proposed:
            draft = self.proposed.pop(0)
            first = len(self.written)
            self.stamp([draft], first * _RECORD_BYTES)
            self.written += map(bytes, draft.bodies)
            self.state.apply(
                [
                    SimpleNamespace(index=index, body=body)
                    for index, body in enumerate(self.written[first:], first)
                ]
            )
            if not self.proposed:
                self._has_proposed.clear()
            self.owner.ended([draft], Outcome.COMMITTED)


def message_draft(place: Place, outcomes: list[Outcome] | None = None) -> RecordDraft:
    """Return a message for a queue, which adds its outcome to `outcomes`."""
    record = MessageRecord(place[0], place[1], 0, 0, b"x", b"", born_host=HOST, store_host=HOST)
    told = [] if outcomes is None else outcomes
    return RecordDraft(
        (), [message_record.encode(record)], place, lambda _, outcome: told.append(outcome)
    )
