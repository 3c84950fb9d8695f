"""Which clients of consumer groups are still there.

The log says which clients belong to a group; the leader alone removes them. A client leaves when it
says so, 2 s after its last connection to the leader has closed, or when it was silent for 120 s. A
new leader knows the clients from the log and gives each of them 40 s: they send a heartbeat to
every member at least every 30 s.
"""

import asyncio
from typing import Final, TypeAlias

from dledger_broker.leading.log_owner import NO_TERM, LogOwner
from dledger_broker.leading.state_changes import Done, StateChanges
from dledger_formats.rocketmq.state_records import ClientLeft
from dledger_node.services.drafts import Outcome

SILENT_S: Final = 120.0
GONE_S: Final = 2.0
ADOPTED_S: Final = 40.0
TICK_S: Final = 0.5
LEAVING_MAX: Final = 500
"""Clients that are removed with one proposal."""

Membership: TypeAlias = tuple[str, str]
"""A group and a client id."""


class ClientLeases:
    """The time until which each client belongs to its groups, while this member leads."""

    def __init__(self, owner: LogOwner, changes: StateChanges) -> None:
        self._owner = owner
        self._changes = changes
        self._loop = asyncio.get_running_loop()
        self._term = NO_TERM
        self._until_s: dict[Membership, float] = {}
        self._leaving: set[Membership] = set()
        """Clients whose removal is proposed, and not applied yet."""
        self._next_tick_s = 0.0

    def seen(self, membership: Membership) -> None:
        """Take note of a heartbeat of a client that belongs to the group."""
        self._follow_term()
        self._until_s[membership] = self._loop.time() + SILENT_S

    def gone(self, membership: Membership) -> None:
        """Take note that the last connection of a client has closed."""
        until_s = self._until_s.get(membership)
        if until_s is not None:
            self._until_s[membership] = min(until_s, self._loop.time() + GONE_S)

    def is_leaving(self, membership: Membership) -> bool:
        """Tell whether the removal of a client is on its way, so that it must join again."""
        return membership in self._leaving

    def remove(self, memberships: list[Membership], done: Done) -> None:
        """Remove clients of groups; `done` is called once that is applied, or cannot be."""
        self._leaving.update(memberships)

        def ended(outcome: Outcome) -> None:
            self._leaving.difference_update(memberships)
            done(outcome)

        records = [
            self._owner.change(ClientLeft(client_id=client_id, group=group))
            for group, client_id in memberships
        ]
        self._changes.propose(records, ended)

    def tick(self) -> None:
        """Remove the clients whose time is up. Call it on the leader and on the others alike."""
        now_s = self._loop.time()
        if now_s < self._next_tick_s or not self._owner.is_proven:
            return
        self._next_tick_s = now_s + TICK_S
        self._follow_term()
        state = self._owner.state
        expired: list[Membership] = []
        for membership, until_s in list(self._until_s.items()):
            if until_s > now_s or membership in self._leaving:
                continue
            group, client_id = membership
            if state.consumer(group, client_id) is None:
                del self._until_s[membership]
            elif len(expired) < LEAVING_MAX:
                expired.append(membership)
        if expired:
            self.remove(expired, lambda _: None)

    def _follow_term(self) -> None:
        """Start with the clients of the state if this member has become the leader."""
        if self._term == self._owner.term:
            return
        self._term = self._owner.term
        until_s = self._loop.time() + ADOPTED_S
        self._until_s = dict.fromkeys(self._owner.state.memberships(), until_s)
