"""Every run of a small group, not some: a search of the production core to the end.

The network is a set: a message once sent may arrive at any time, any number of times, or never,
which covers loss, delay, doubling and disorder. Time is abstract: an election timeout or a
heartbeat may come at any moment. A core's step depends on nothing but its state and its input, so
each is computed once, and the search itself moves small numbers about.
"""

import heapq
import pickle
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core import Raft
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.log_terms import LogTerms
from dledger_node.raft.member_state import Follower, Leader, Role
from dledger_node.raft.membership import Change, Membership
from dledger_node.raft.messages import Message
from dledger_node.raft.progress import PushState
from dledger_node.raft.ready import HardState
from dledger_sim.violation import ViolationError

LONG_TICKS = 1_000_000
TIMEOUT, HEARTBEAT, PROPOSE, FLUSH, CHANGE = -1, -2, -3, -4, -5
"""Inputs that are no messages; those are numbers from 0. Below CHANGE there are further changes."""
TIME_SUFFIXES = ("_tick", "_ticks", "_due", "_since", "deadline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """How far the search goes."""

    member_count: int = 3
    terms_max: int = 1
    entries_max: int = 2
    heartbeat_rounds_max: int = 2
    candidates_max: int = 3
    """So many of the members may stand for election."""
    flush_apart: bool = True
    """Anything may happen between a write and its flush; otherwise it is flushed with the write."""
    first: Membership | None = None
    """Who belongs to the group at first; None for all, as voters."""
    changes: tuple[Change, ...] = ()
    """What leaders may be asked for, until there is one change in their log."""


class Seen(NamedTuple):
    """What the judge sees of a member."""

    role: Role
    term: int
    terms: tuple[int, ...]
    """The term of each entry."""
    committed_index: int
    durable_index: int
    changed_at: int
    """Index of the change in this log; -1 when there is none."""
    membership: Membership


class Step(NamedTuple):
    """What an input does to a member."""

    state: int
    sent: int
    """Set of messages, one bit each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a search came to."""

    state_count: int
    """What the members can be together."""
    visit_count: int
    """A state is visited again when more messages can be on their way there."""
    transition_count: int
    member_state_count: int
    message_count: int
    complete: bool
    elapsed_s: float
    leaders_seen: int
    committed_max: int
    changes_committed: int
    """In how many states of a member a change of the membership is committed."""


class Search:
    """One search; `run` raises ViolationError with the way to what it found."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._ids = tuple(f"n{number}" for number in range(scope.member_count))
        self._first = scope.first or Membership(self._ids)
        self._blobs: list[bytes] = []
        self._seen: list[Seen] = []
        self._inputs: list[tuple[int, ...]] = []
        self._ranks: list[int] = []
        self._numbers: dict[Any, int] = {}
        self._messages: list[Message] = []
        self._message_numbers: dict[Message, int] = {}
        self._addressed = [0] * scope.member_count
        self._steps: list[dict[int, Step]] = []
        self._judged: set[tuple[int, ...]] = set()
        self._committed_max = -1
        self._leader_states: set[int] = set()

    def run(self, *, visits_max: int) -> Result:
        """Visit every state, or stop after so many visits.

        What the members are together is visited once for all ways that lead there, with every
        message that any of them sends. So more may arrive than in any one run: a search that finds
        nothing has looked at every run and at some that cannot be. Whoever has come least far is
        visited first: then nearly all ways to a state are known before it is visited, and few are
        visited again. Any order finds the same.
        """
        started_s = time.perf_counter()
        first = tuple(self._first_state(number) for number in range(len(self._ids)))
        networks: dict[tuple[int, ...], int] = {first: 0}
        waiting, ordered = {first}, [(0, first)]
        visit_count, transition_count = 0, 0
        while waiting and visit_count < visits_max:
            _, members = heapq.heappop(ordered)
            waiting.remove(members)
            network = networks[members]
            visit_count += 1
            for following, sent in self._next(members, network):
                transition_count += 1
                known = networks.get(following)
                if known is None:
                    networks[following] = sent
                elif sent | known != known:
                    networks[following] = sent | known
                else:
                    continue
                if following not in waiting:
                    waiting.add(following)
                    rank = sum([self._ranks[state] for state in following])
                    heapq.heappush(ordered, (rank, following))
        return Result(
            state_count=len(networks),
            visit_count=visit_count,
            transition_count=transition_count,
            member_state_count=len(self._blobs),
            message_count=len(self._messages),
            complete=not waiting,
            elapsed_s=time.perf_counter() - started_s,
            leaders_seen=len(self._leader_states),
            committed_max=self._committed_max,
            changes_committed=sum(0 <= one.changed_at <= one.committed_index for one in self._seen),
        )

    def _next(
        self, members: tuple[int, ...], network: int
    ) -> Iterator[tuple[tuple[int, ...], int]]:
        for number, state in enumerate(members):
            steps = self._steps[state]
            for input_ in self._inputs[state]:
                step = steps.get(input_) or self._step(number, state, input_)
                yield self._after(members, network, number, step)
            waiting = network & self._addressed[number]
            while waiting:
                lowest = waiting & -waiting
                waiting ^= lowest
                input_ = lowest.bit_length() - 1
                step = steps.get(input_) or self._step(number, state, input_)
                if step.state != state or step.sent & ~network:
                    yield self._after(members, network, number, step)

    def _after(
        self, members: tuple[int, ...], network: int, number: int, step: Step
    ) -> tuple[tuple[int, ...], int]:
        if step.state != members[number]:
            members = (*members[:number], step.state, *members[number + 1 :])
            if members not in self._judged:
                self._judged.add(members)
                self._judge([self._seen[state] for state in members])
        return members, network | step.sent

    # -- one member --------------------------------------------------------------------------------

    def _first_state(self, number: int) -> int:
        raft = Raft(
            RaftConfig(
                self_id=self._ids[number],
                voters=self._first.voters,
                addable_ids=tuple(one for one in self._ids if one not in self._first.voters),
                heartbeat_ticks=1,
                election_ticks=4,
                push_entries_max=1,
            ),
            HardState(term=0, vote_for=None),
            LogTerms(),
            committed_index=-1,
            incarnation=0,
            randint=_lowest,
            memberships=LogMemberships(self._first),
        )
        return self._state(number, raft)

    def _step(self, number: int, state: int, input_: int) -> Step:
        """Let the production core take one input."""
        raft: Raft = pickle.loads(self._blobs[state])
        member = raft._member
        if input_ >= 0:
            raft.step(self._messages[input_])
        elif input_ == TIMEOUT:
            member.now_ticks = member.election_deadline = LONG_TICKS
            raft.tick()
        elif input_ == HEARTBEAT:
            raft.tick()
        elif input_ == PROPOSE:
            raft.propose(1, None)
        elif input_ == FLUSH:
            raft.persisted(raft.ledger_end_index, raft.ledger_end_term)
        else:
            raft.change_membership(self._scope.changes[CHANGE - input_])
        sent = 0
        while (ready := raft.ready()) is not None:
            for message in ready.messages:
                sent |= 1 << self._number_of(message)
            raft.advance(ready)
            if not self._scope.flush_apart:
                raft.persisted(raft.ledger_end_index, raft.ledger_end_term)
        before, step = self._seen[state], Step(self._state(number, raft), sent)
        after = self._seen[step.state]
        if after.term < before.term or after.committed_index < before.committed_index:
            raise ViolationError("nothing goes back", f"{before} became {after}")
        self._steps[state][input_] = step
        return step

    def _number_of(self, message: Message) -> int:
        number = self._message_numbers.get(message)
        if number is None:
            number = self._message_numbers[message] = len(self._messages)
            self._messages.append(message)
            self._addressed[self._ids.index(message.receiver)] |= 1 << number
        return number

    def _state(self, number: int, raft: Raft) -> int:
        """The number of a member's state, in which no time has passed."""
        _stop_clock(raft._member)
        key = (number, _frozen(raft._member), raft._saved_hard_state)
        known = self._numbers.get(key)
        if known is not None:
            return known
        state = self._numbers[key] = len(self._blobs)
        self._blobs.append(pickle.dumps(raft))
        log = raft._member.log
        seen = Seen(
            raft.role,
            raft.term,
            tuple(log.term_at(index) for index in range(log.end_index + 1)),
            raft.committed_index,
            raft.durable_index,
            raft._member.memberships.last_index,
            raft.membership,
        )
        self._seen.append(seen)
        self._ranks.append(_rank(raft._member))
        self._steps.append({})
        self._inputs.append(tuple(self._inputs_of(number, raft)))
        self._committed_max = max(self._committed_max, seen.committed_index)
        if seen.role is Role.LEADER:
            self._leader_states.add(state)
        return state

    def _inputs_of(self, number: int, raft: Raft) -> Iterator[int]:
        scope, part = self._scope, raft._member.part
        if isinstance(part, Leader):
            if part.heartbeat_round < scope.heartbeat_rounds_max:
                yield HEARTBEAT
            if raft.ledger_end_index + 1 < scope.entries_max:
                yield PROPOSE
                if not raft._member.memberships.changed:
                    yield from range(CHANGE, CHANGE - len(scope.changes), -1)
        elif raft.term < scope.terms_max and number < scope.candidates_max:
            yield TIMEOUT
        if raft.durable_index < raft.ledger_end_index:
            yield FLUSH

    # -- the judge ---------------------------------------------------------------------------------

    def _judge(self, members: list[Seen]) -> None:
        leader_terms = [one.term for one in members if one.role is Role.LEADER]
        if len(set(leader_terms)) != len(leader_terms):
            raise ViolationError("one leader a term", f"{members}")
        longest = max(members, key=lambda one: one.committed_index)
        committed = longest.terms[: longest.committed_index + 1]
        for one in members:
            if one.committed_index >= len(one.terms) or one.durable_index >= len(one.terms):
                raise ViolationError("only what is here is committed", f"{one}")
            count = min(one.committed_index + 1, len(committed))
            if one.terms[:count] != committed[:count]:
                raise ViolationError("committed is the same everywhere", f"{members}")
        if committed:
            holders = {
                member_id
                for member_id, one in zip(self._ids, members, strict=True)
                if one.durable_index + 1 >= len(committed)
                and one.terms[: len(committed)] == committed
            }
            # Before the change is committed, leaders count by it or, if they lack it, as before.
            counted = {self._first, *(one.membership for one in members)}
            if 0 <= longest.changed_at < len(committed):
                counted = {longest.membership}
            if not any(2 * len(holders & {*one.voters}) > len(one.voters) for one in counted):
                raise ViolationError("committed is durable on a majority", f"{members}")


def _lowest(low: int, high: int) -> int:
    return low


def _rank(member: Any) -> int:
    """How far a member has come: a sum of what hardly ever goes back within a term."""
    part = member.part
    rank = 3 * member.term + 4 * (
        member.log.end_index + member.committed_index + member.durable_index
    )
    if isinstance(part, Leader):
        rank += part.heartbeat_round
        for one in part.progress.values():
            rank += 2 * one.probe + 6 * one.match_index + one.next_index + one.answered_round
            rank += one.state is PushState.APPEND
    elif isinstance(part, Follower):
        rank += 2 * (part.verified_index + part.acknowledged_index) + 3 * bool(part.leader_id)
    else:
        rank += len(part.votes)
    return int(rank)


def _stop_clock(member: Any) -> None:
    """Set all that is a time to the same moment, and all that only counts to nothing: neither how
    long ago something was is explored, nor how often.
    """
    member.refusals.clear()
    member.marks.clear()  # nobody asks for them here
    member.now_ticks = 0
    member.election_deadline = LONG_TICKS
    if isinstance(member.part, Follower):
        member.part.told_index = -1
    for one in (member.part, *getattr(member.part, "progress", {}).values()):
        for name in _slots(one):
            if name.endswith(TIME_SUFFIXES):
                setattr(one, name, 0)
    if isinstance(member.part, Leader):
        rounds = [(round_, 0) for round_, _ in member.part.rounds_sent]
        member.part.rounds_sent.clear()
        member.part.rounds_sent.extend(rounds)


def _slots(value: Any) -> tuple[str, ...]:
    return tuple(getattr(type(value), "__slots__", ()))


@dataclass
class _Mutable:
    """Stands for all that is no frozen dataclass."""


_MUTABLE = _Mutable.__dataclass_params__  # type: ignore[attr-defined]


def _frozen(value: Any) -> Any:
    """A value with the same contents that can be a key."""
    if isinstance(value, set):
        return frozenset(value)
    if getattr(value, "__dataclass_params__", _MUTABLE).frozen:
        return value
    if isinstance(value, dict):
        return tuple((key, _frozen(one)) for key, one in value.items())
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return tuple(_frozen(one) for one in value)
    if callable(value) or not _slots(value) or type(value).__hash__ is not None:
        return value if type(value).__hash__ is not None and not _slots(value) else _fields(value)
    return _fields(value)


def _fields(value: Any) -> Any:
    names = _slots(value)
    return (type(value).__name__, *(_frozen(getattr(value, name)) for name in names))
