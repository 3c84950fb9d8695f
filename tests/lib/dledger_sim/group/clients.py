"""Requests of clients and administrators, and their history."""

from collections.abc import Callable, Mapping
from functools import partial

from dledger_sim.faults.reshaping import change_of, leaves_enough
from dledger_sim.group.events import Events
from dledger_sim.group.member import SimMember
from dledger_sim.judges.history import Answer, Asked, Operation


class Clients:
    """Sends requests to members, and records each client request in the history."""

    def __init__(
        self,
        events: Events,
        members: Mapping[str, SimMember],
        turn: Callable[[SimMember, str, Callable[[], None]], None],
        asked: Callable[[SimMember, int, Callable[[], None]], None],
        *,
        told: bool,
    ) -> None:
        """`turn` runs one turn of a member's loop, with a description if `told`. `asked` lets a
        member handle a request of a client, now or later.
        """
        self.history: list[Operation] = []
        self._events = events
        self._members = members
        self._turn = turn
        self._asked = asked
        self._told = told
        self._proposed_count = 0

    def propose(self, member_id: str, count: int, client: int = 0) -> Operation:
        """Send an append to a member, which need not lead."""
        bodies = tuple(range(self._proposed_count + 1, self._proposed_count + count + 1))
        self._proposed_count += count
        operation = Operation(client, Asked.APPEND, self._events.now_us, bodies)
        return self._ask(member_id, operation, SimMember.propose)

    def read(self, member_id: str, index: int, client: int = 0) -> Operation:
        """Send a read of the entry `index` to a member."""
        operation = Operation(client, Asked.READ, self._events.now_us, index=index)
        return self._ask(member_id, operation, SimMember.read)

    def read_index(self, member_id: str, client: int = 0) -> Operation:
        """Send a linearizable read to a member."""
        operation = Operation(client, Asked.READ_INDEX, self._events.now_us)
        return self._ask(member_id, operation, SimMember.read_index)

    def transfer(self, member_id: str, transferee_id: str) -> None:
        """Request a leadership transfer from a member."""
        member = self._members[member_id]
        if member.raft is not None and self._events.now_us >= member.paused_until_us:
            ask = partial(member.raft.transfer_leadership, transferee_id)
            what = f"is asked to hand over to {transferee_id}"
            self._turn(member, what, partial(member.loop.turn, ask))

    def change(self, member_id: str, kind: str, target: str) -> None:
        """Request a membership change from a member, unless too few disks would remain."""
        member, change = self._members[member_id], change_of(kind, target)
        paused = self._events.now_us < member.paused_until_us
        if member.raft is None or paused or member.disk.full:
            return
        if leaves_enough(self._members, member, change):
            ask = partial(member.raft.change_membership, change)
            self._turn(member, f"is asked to {kind} {target}", partial(member.loop.turn, ask))

    def _ask(
        self, member_id: str, operation: Operation, ask: Callable[[SimMember, Operation], None]
    ) -> Operation:
        """Deliver a client's request to a member, if the member is running and not paused."""
        self.history.append(operation)
        member, now_us = self._members[member_id], self._events.now_us
        if member.raft is None:
            operation.answer(Answer.REFUSED, now_us)
        elif now_us < member.paused_until_us:
            operation.answer(Answer.UNKNOWN, now_us)
        else:
            self._asked(member, operation.client, partial(self._handle, member, operation, ask))
        return operation

    def _handle(
        self, member: SimMember, operation: Operation, ask: Callable[[SimMember, Operation], None]
    ) -> None:
        if member.raft is None:
            operation.answer(Answer.UNKNOWN, self._events.now_us)
            return
        what = f"is asked to {operation.told()}" if self._told else ""
        self._turn(member, what, partial(member.loop.turn, partial(ask, member, operation)))
