"""Which clients of consumer groups are still there.

The log says which clients belong to a group; the leader alone removes them. Every member reports to
it which clients are connected there, and how long ago each sent its heartbeat. A client leaves when
it says so, 2 s after its last connection to the last member has closed, when it was silent for
120 s, or 40 s after its member was last heard, has started again, or was without a leader for 3 s.

A new leader knows the clients from the log and gives each of them 40 s, or 10 s from the first
report of a member about it: a report of one member does not say that no other member has the
client. Once every member has reported all of its clients, a client that none of them has leaves
after 2 s.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, repeat
from typing import Final, TypeAlias

from dledger_broker.leading.log_owner import NO_TERM, LogOwner
from dledger_broker.leading.state_changes import Done, StateChanges
from dledger_formats.rocketmq.state_records import ClientLeft
from dledger_node.services.drafts import Outcome

SILENT_S: Final = 120.0
GONE_S: Final = 2.0
ADOPTED_S: Final = 40.0
UNHEARD_S: Final = 12.0
"""A member that was not heard for so long is dead or cut off; members send a note every 5 s."""
REPORTED_S: Final = 10.0
"""A member that reports all of its clients has done so within this time."""
TICK_S: Final = 0.5
SWEPT_MAX: Final = 1000
"""Clients that one tick looks at, so that it takes a millisecond."""
LEAVING_MAX: Final = 50
"""Clients that one tick removes, so that it takes a few milliseconds."""

NOBODY: Final = ""
"""Stands for the member of a client that has joined, and that no member has reported yet."""
FROM_LOG: Final = "the log"
"""Stands for the members that may have a client of the state, and have not reported to a new
leader.
"""

Membership: TypeAlias = tuple[str, str]
"""A group and a client id."""


class ClientLeases:
    """The time until which each client belongs to its groups, while this member leads."""

    def __init__(
        self,
        owner: LogOwner,
        changes: StateChanges,
        now_s: Callable[[], float],
        members: Callable[[], Collection[str]],
    ) -> None:
        """`now_s` returns seconds that never go back, and `members` the members of the group."""
        self._owner = owner
        self._changes = changes
        self._now_s = now_s
        self._members = members
        self._term = NO_TERM
        self._unadopted: dict[str, list[str]] = {}
        """The clients of the state, by group, that a new leader has not counted yet."""
        self._adopted_until_s = 0.0
        """The time until which clients count because they are in the log."""
        self._limits: dict[str, dict[Membership, float]] = {}
        """By member: limits on its reports, which the next round over all clients applies."""
        self._until_s: dict[Membership, dict[str, float]] = {}
        """Until when each client counts, by the member that reported it, or by `NOBODY` or
        `FROM_LOG`, which are no member's id.
        """
        self._heard_s: dict[str, float] = {}
        """When each member was last heard that has begun to report all of its clients to this
        leader.
        """
        self._reported_all: set[str] = set()
        """The members that have reported all of their clients to this leader."""
        self._restarted: set[str] = set()
        """Members that may have had other clients before; they do not count as having reported all.
        """
        self._leaving: set[Membership] = set()
        """Clients whose removal is proposed, and not applied yet."""
        self._next_tick_s = 0.0
        self._unswept: list[Membership] = []
        """What is left of a round over all clients, the next one last."""

    def joined(self, membership: Membership) -> None:
        """Record that a client has joined; the member that it is connected to will report it."""
        self._follow_term()
        self._words_about(membership)[NOBODY] = self._now_s() + ADOPTED_S

    def noted(
        self,
        member: str,
        seen: Sequence[Membership],
        gone: Iterable[Membership],
        *,
        is_first: bool,
        is_new: bool = False,
        is_last: bool = False,
        ages_s: Sequence[int] = (),
    ) -> bool:
        """Take a member's note about the clients whose heartbeats it got, and those that are gone.

        `is_first` says that the member begins to report all of its clients, `is_last` that it has
        done so, and `is_new` that its process has just started, or was out of touch. `ages_s` has
        the seconds since the heartbeat of each client in `seen`; missing ages count as 0. Returns
        False if the member must report all of its clients.
        """
        self._follow_term()
        now_s = self._now_s()
        if is_first:
            # Earlier clients may be elsewhere, and send no heartbeat for 30 s.
            self._limit(member, now_s + (ADOPTED_S if is_new else REPORTED_S))
            self._reported_all.discard(member)
            if is_new:
                self._restarted.add(member)
        for membership, age_s in zip(seen, chain(ages_s, repeat(0)), strict=False):
            self._count(membership, member, now_s, max(0.0, SILENT_S - age_s))
        for membership in gone:
            self._count(membership, member, now_s, GONE_S)
        is_known = is_first or member in self._heard_s
        if is_known:
            self._heard_s[member] = now_s
            if is_last and member not in self._restarted:
                self._reported_all.add(member)
                self._end_adoption(now_s)
        return is_known

    def _end_adoption(self, now_s: float) -> None:
        """Let clients that no member has leave soon, once every member has reported all."""
        if self._reported_all.issuperset(self._members()):
            self._adopted_until_s = min(self._adopted_until_s, now_s + GONE_S)
            self._limit(FROM_LOG, now_s + GONE_S)

    def _count(self, membership: Membership, member: str, now_s: float, lease_s: float) -> None:
        """Let a member's report of a client count for `lease_s`."""
        until_s = self._words_about(membership)
        until_s.pop(NOBODY, None)
        if FROM_LOG in until_s:  # the notes of other members may still be on their way
            until_s[FROM_LOG] = min(until_s[FROM_LOG], now_s + REPORTED_S)
        until_s[member] = now_s + lease_s
        self._limits.get(member, {}).pop(membership, None)

    def _words_about(self, membership: Membership) -> dict[str, float]:
        """Return until when each report of a client counts; the first one may be the log's."""
        until_s = self._until_s.get(membership)
        if until_s is None:
            until_s = self._until_s[membership] = {}
            if self._unadopted and self._owner.state.consumer(*membership) is not None:
                until_s[FROM_LOG] = self._adopted_until_s
        return until_s

    def _limit(self, member: str, limit_s: float) -> None:
        """Let a member's reports count until `limit_s` only, unless it repeats them.

        There may be thousands of clients, so the limit is noted here, and applied by `tick`.
        """
        limits = dict.fromkeys(self._until_s, limit_s)
        for membership, earlier_s in self._limits.get(member, {}).items():
            if earlier_s < limit_s:
                limits[membership] = earlier_s
        self._limits[member] = limits

    def _apply_limits(self, membership: Membership, until_s: dict[str, float]) -> None:
        """Apply the limits to all reports about a client."""
        for member in list(self._limits):
            limits = self._limits[member]
            limit_s = limits.pop(membership, None)
            if not limits:
                del self._limits[member]
            if limit_s is not None and member in until_s:
                until_s[member] = min(until_s[member], limit_s)

    def is_leaving(self, membership: Membership) -> bool:
        """Return whether the removal of a client is on its way, so that it must join again."""
        return membership in self._leaving

    def remove(
        self, memberships: list[Membership], done: Done, arrived_s: float | None = None
    ) -> None:
        """Remove clients of groups; `done` is called once that is applied, or cannot be."""
        self._leaving.update(memberships)

        def ended(outcome: Outcome) -> None:
            self._leaving.difference_update(memberships)
            done(outcome)

        records = [
            self._owner.change(ClientLeft(client_id=client_id, group=group))
            for group, client_id in memberships
        ]
        self._changes.propose(records, ended, arrived_s=arrived_s)

    @property
    def is_sweeping(self) -> bool:
        """Return whether the next tick looks at further clients, or adopts them."""
        return self._owner.is_proven and bool(self._unswept or self._unadopted)

    def tick(self) -> None:
        """Remove the clients whose time is up. Call it on the leader and on the others alike."""
        now_s = self._now_s()
        if not self._owner.is_proven:
            return
        self._follow_term()
        if not self._adopt():
            return
        if not self._unswept:
            if now_s < self._next_tick_s:
                return
            self._next_tick_s = now_s + TICK_S
            self._limit_unheard(now_s)
            self._unswept = list(self._until_s)[::-1]
        state = self._owner.state
        expired: list[Membership] = []
        for _ in range(min(SWEPT_MAX, len(self._unswept))):
            membership = self._unswept.pop()
            until_s = self._until_s.get(membership)
            if until_s is None:
                continue
            self._apply_limits(membership, until_s)
            if max(until_s.values()) > now_s or membership in self._leaving:
                continue
            group, client_id = membership
            if state.consumer(group, client_id) is None:
                del self._until_s[membership]
            else:
                expired.append(membership)
                if len(expired) == LEAVING_MAX:
                    break  # the next tick goes on
        if expired:
            self.remove(expired, lambda _: None)

    def _limit_unheard(self, now_s: float) -> None:
        """Limit the reports of members that are dead or cut off."""
        for member, heard_s in list(self._heard_s.items()):
            if now_s - heard_s >= UNHEARD_S:
                del self._heard_s[member]
                self._limit(member, heard_s + ADOPTED_S)

    def _follow_term(self) -> None:
        """Start with the clients of the state if this member has become the leader."""
        if self._term == self._owner.term:
            return
        self._term = self._owner.term
        self._adopted_until_s = self._now_s() + ADOPTED_S
        self._heard_s, self._unswept = {}, []
        self._reported_all, self._restarted = set(), set()
        self._until_s, self._limits = {}, {}
        self._unadopted = self._owner.state.clients_by_group()

    def _adopt(self) -> bool:
        """Count further clients of the state; return whether all of them count."""
        left = SWEPT_MAX
        while self._unadopted and left:
            group, clients = next(iter(self._unadopted.items()))
            for client_id in clients[:left]:
                self._until_s.setdefault((group, client_id), {FROM_LOG: self._adopted_until_s})
            clients[:left], left = [], left - len(clients[:left])
            if not clients:
                del self._unadopted[group]
        return not self._unadopted
