"""Every run of a small group, not some: a search of the production core to the end.

The network is a set: a message once sent may arrive at any time, any number of times, or never,
which covers loss, delay, doubling and disorder. Time is abstract: an election timeout or a
heartbeat may come at any moment, and so may a crash. What an input does to a member is computed
once (`members`); the search itself moves small numbers about:

    python -m dledger_sim.search.exhaustive --members 3 --terms 2 --entries 2 --crashes 1
"""

import argparse
import gc
import resource
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.member_state import Role
from dledger_sim.judges.violation import ViolationError
from dledger_sim.search.judge import Terms, judge
from dledger_sim.search.members import Members, Scope
from dledger_sim.search.way import told

STATE_BITS: Final = 20
STATE_MASK: Final = (1 << STATE_BITS) - 1
CRASH_BITS: Final = 4
CRASH_MASK: Final = (1 << CRASH_BITS) - 1
RESTART_RANK: Final = 24
"""A crash sets a member back: this lets searches that are not ended see some, and not only them."""
WAITS: Final = 1
"""In the set of messages that belongs to a state of the group: it is to be visited."""
VISITS_BETWEEN_LOOKS: Final = 4096
MOVES_KEPT_MAX: Final = 8_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a search stops unless it is complete before."""

    visits_max: int = sys.maxsize
    seconds_max: float = float("inf")
    memory_max_bytes: int = 6 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a search came to."""

    state_count: int
    """What the members can be together."""
    crashed_count: int
    """How many of these come after a crash."""
    visit_count: int
    """A state is visited again when more messages can be on their way there."""
    transition_count: int
    """Inputs, and crashes, that change a member, for each visit."""
    member_state_count: int
    message_count: int
    complete: bool
    elapsed_s: float
    leaders_seen: int
    committed_max: int
    changes_committed: int
    """In how many states of a member a change of the membership is committed."""

    def __str__(self) -> str:
        return (
            f"{'complete' if self.complete else 'not complete'}: {self.state_count:,} states, "
            f"{self.crashed_count:,} of them after a crash, {self.visit_count:,} visits, "
            f"{self.transition_count:,} transitions, {self.elapsed_s:.0f} s; "
            f"{self.member_state_count:,} states of a member, {self.message_count:,} messages"
        )


Move = tuple[int, int, int, int]
"""What an input does to the group's number, which messages it sends, what it does to the rank, and
the member's state after it if that knows more to be committed, otherwise -1.
"""


class Moves(NamedTuple):
    """All that can happen to a member in a state, with some messages on their way to it.

    Inputs that lead to the same state are one move.
    """

    said: int
    """What it sends without a change of its state."""
    change_count: int
    moves: list[Move]
    death_count: int
    deaths: list[Move]
    """Crashes."""


class Search:
    """One search; `run` raises ViolationError where a rule is broken, and tells the way there if
    `keeps_ways`, which takes memory.

    The group's state is a number: from its low end, each member's state, how many have crashed, and
    the longest log that any member has ever known as committed. That is no part of any member after
    a crash, and yet must not be lost.
    """

    def __init__(self, scope: Scope, *, keeps_ways: bool = False) -> None:
        self._scope = scope
        self._members = Members(scope)
        self._shifts = [STATE_BITS * number for number in range(scope.member_count)]
        self._crash_shift = STATE_BITS * scope.member_count
        self._committed_shift = self._crash_shift + CRASH_BITS
        self._committed: list[Terms] = [()]
        self._committed_numbers: dict[Terms, int] = {(): 0}
        self._judged: set[tuple[int, ...]] = set()
        self._kinds: list[int] = []
        """What the judge sees of a state of a member, as a number."""
        self._kind_numbers: dict[object, int] = {}
        self._heeded: list[int] = []
        """For each state of a member, all messages that may do something."""
        self._moves: list[dict[int, Moves]] = []
        self._moves_kept = 0
        self._networks: dict[int, int] = {}
        """For each state of the group, all messages that may be on their way; and `WAITS`."""
        self._same: dict[int, int] = {}
        """Each such set of messages once: many states have the same, and memory is what ends."""
        self._waiting: defaultdict[int, list[int]] = defaultdict(list)
        """States of the group by rank."""
        self._came_from: dict[int, int] | None = {} if keeps_ways else None

    def run(self, limits: Limits) -> Result:
        """Visit every state, or stop at a limit.

        What the members are together is visited once for all ways that lead there, with every
        message that any of them sends. So more may arrive than in any one run: a search that finds
        nothing has looked at every run and at some that cannot be. Whoever has come least far is
        visited first: then nearly all ways to a state are known before it is visited, and few are
        visited again. Any order finds the same.
        """
        collects = gc.isenabled()
        gc.disable()  # it would look at millions of values, none of which is ever part of a cycle
        try:
            return self._run(limits)
        finally:
            if collects:
                gc.enable()

    def _run(self, limits: Limits) -> Result:
        started_s = time.perf_counter()
        first = 0
        for number, shift in enumerate(self._shifts):
            state = self._members.first_state(number)
            self._state_found(state)
            first |= state << shift
        self._networks[first] = WAITS
        self._waiting[0].append(first)
        visit_count, transition_count, complete = 0, 0, False
        for visit_count in count():
            if visit_count % VISITS_BETWEEN_LOOKS == 0 and _is_over(limits, visit_count, started_s):
                break
            while self._waiting and not self._waiting[lowest := min(self._waiting)]:
                del self._waiting[lowest]
            if not self._waiting:
                complete = True
                break
            group = self._waiting[lowest].pop()
            try:
                transition_count += self._visit(group, lowest)
            except ViolationError as violation:
                detail = str(violation).removeprefix(f"{violation.rule}: ")
                raise ViolationError(violation.rule, f"{detail}{self._way(group)}") from None
            except InvariantError as error:
                rule = "a core finds what it relies on"
                raise ViolationError(rule, f"{error}{self._way(group)}") from error
        return self._result(visit_count, transition_count, complete, started_s)

    def _visit(self, group: int, rank: int) -> int:
        """Do all that can happen in a state of the group; returns in how many ways."""
        states = [group >> shift & STATE_MASK for shift in self._shifts]
        kept, heeded = self._moves, self._heeded
        network = self._networks[group] ^ WAITS
        while True:
            said, all_moves = network, []
            for state in states:
                moves = kept[state].get(network & heeded[state])
                if moves is None:
                    moves = self._find_moves(state, network)
                said |= moves.said
                all_moves.append(moves)
            if said == network:
                break
            network = said
        self._networks[group] = self._same.setdefault(network, network)
        may_die = (group >> self._crash_shift & CRASH_MASK) < self._scope.crashes_max
        transition_count = 0
        for moves in all_moves:
            transition_count += moves.change_count
            self._go(group, network, rank, moves.moves)
            if may_die:
                transition_count += moves.death_count
                self._go(group, network, rank, moves.deaths)
        return transition_count

    def _go(self, group: int, network: int, rank: int, moves: list[Move]) -> None:
        networks = self._networks
        for change, sent, further, told_by in moves:
            following = group + change
            if told_by >= 0:
                following = self._told(following, told_by)
            on_its_way = network | sent
            known = networks.get(following)
            if known is None:
                self._judge(following)
                if self._came_from is not None:
                    self._came_from[following] = group
            else:
                on_its_way |= known
                if on_its_way == known:
                    continue
                if known & WAITS:
                    networks[following] = self._same.setdefault(on_its_way, on_its_way)
                    continue
            on_its_way |= WAITS
            networks[following] = self._same.setdefault(on_its_way, on_its_way)
            self._waiting[rank + further].append(following)

    def _told(self, group: int, state: int) -> int:
        """Remember what a member knows as committed; the judge looks whether all agree on it."""
        number = group >> self._committed_shift
        known, learnt = self._committed[number], self._members.seen[state].committed
        if len(learnt) <= len(known):
            return group
        if learnt[: len(known)] != known:
            raise ViolationError("committed is the same everywhere", f"{known} and {learnt}")
        if learnt not in self._committed_numbers:
            self._committed_numbers[learnt] = len(self._committed)
            self._committed.append(learnt)
        return group + (self._committed_numbers[learnt] - number << self._committed_shift)

    def _way(self, group: int) -> str:
        way: list[list[int]] = []
        at: int | None = group
        while at is not None and self._came_from is not None:
            way.append([at >> shift & STATE_MASK for shift in self._shifts])
            at = self._came_from.get(at)
        return "".join(f"\n  {line}" for line in told(self._members, way[::-1]))

    # -- one member --------------------------------------------------------------------------------

    def _state_found(self, state: int) -> None:
        """Make room for what is kept for each state of a member."""
        seen, whose = self._members.seen[state], self._members.whose[state]
        self._kinds.append(self._kind_numbers.setdefault(seen, len(self._kind_numbers)))
        self._heeded.append(self._members.addressed[whose])
        self._moves.append({})

    def _find_moves(self, state: int, network: int) -> Moves:
        messages = network & self._heeded[state]
        inputs = list(self._members.inputs[state])
        while messages:
            lowest = messages & -messages
            messages ^= lowest
            inputs.append(lowest.bit_length() - 1)
        said, change_count, death_count = 0, 0, 0
        moves: dict[int, int] = {}
        deaths: dict[int, int] = {}
        for input_ in inputs:
            step = self._members.step(state, input_)
            if step.state != state:
                change_count += 1
                moves[step.state] = moves.get(step.state, 0) | step.sent
            elif step.sent:
                said |= step.sent
            elif input_ >= 0 and not step.dies:
                self._heeded[state] &= ~(1 << input_)
            for start in step.dies:
                death_count += 1
                deaths[start.state] = deaths.get(start.state, 0) | start.sent
        if self._scope.crashes_max:
            for start in self._members.starts(state):
                death_count += 1
                deaths[start.state] = deaths.get(start.state, 0) | start.sent
        for new in range(len(self._moves), len(self._members.seen)):
            self._state_found(new)
        found = Moves(
            said,
            change_count,
            [self._move(state, after, sent, 0, 0) for after, sent in moves.items()],
            death_count,
            [
                self._move(state, after, sent, 1 << self._crash_shift, RESTART_RANK)
                for after, sent in deaths.items()
            ],
        )
        self._keep(state, network & self._heeded[state], found)
        return found

    def _keep(self, state: int, messages: int, moves: Moves) -> None:
        if self._moves_kept > MOVES_KEPT_MAX:
            self._moves_kept = 0
            for kept in self._moves:
                kept.clear()
        self._moves_kept += 1 + len(moves.moves) + len(moves.deaths)
        self._moves[state][messages] = moves

    def _move(self, state: int, after: int, sent: int, crash: int, further: int) -> Move:
        members = self._members
        assert after <= STATE_MASK
        rises = members.seen[after].committed_index > members.seen[state].committed_index
        return (
            (after - state << self._shifts[members.whose[state]]) + crash,
            sent,
            members.ranks[after] - members.ranks[state] + further,
            after if rises else -1,
        )

    # -- the judge ---------------------------------------------------------------------------------

    def _judge(self, group: int) -> None:
        """Judge a state that is new; most look to the judge like one that it has seen."""
        states = [group >> shift & STATE_MASK for shift in self._shifts]
        seen, kinds = self._members.seen, self._kinds
        committed = group >> self._committed_shift
        key = (committed, *[kinds[state] for state in states])
        if key not in self._judged:
            self._judged.add(key)
            members = [seen[state] for state in states]
            judge(self._members.ids, self._members.first, members, self._committed[committed])

    def _result(
        self, visit_count: int, transition_count: int, complete: bool, started_s: float
    ) -> Result:
        seen = self._members.seen
        crashes = CRASH_MASK << self._crash_shift
        return Result(
            state_count=len(self._networks),
            crashed_count=sum(1 for group in self._networks if group & crashes),
            visit_count=visit_count,
            transition_count=transition_count,
            member_state_count=len(seen),
            message_count=len(self._members.messages),
            complete=complete,
            elapsed_s=time.perf_counter() - started_s,
            leaders_seen=sum(one.role is Role.LEADER for one in seen),
            committed_max=max(one.committed_index for one in seen),
            changes_committed=sum(0 <= one.changed_at <= one.committed_index for one in seen),
        )


def _is_over(limits: Limits, visit_count: int, started_s: float) -> bool:
    return (
        visit_count >= limits.visits_max
        or time.perf_counter() - started_s >= limits.seconds_max
        or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 >= limits.memory_max_bytes
    )


def main() -> int:
    """Search one scope, as far as time and memory go; return 1 when a rule was broken."""
    parser = argparse.ArgumentParser(prog="dledger_sim.search.exhaustive", description=__doc__)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--terms", type=int, default=1)
    parser.add_argument("--entries", type=int, default=2, help="in one log, leaders' first too")
    parser.add_argument("--heartbeats", type=int, default=1, help="rounds of one leader")
    parser.add_argument("--candidates", type=int, default=3, help="how many may stand")
    parser.add_argument("--crashes", type=int, default=0, help="of all members together")
    parser.add_argument("--flush-apart", action="store_true", help="also between other inputs")
    parser.add_argument("--recalls", action="store_true", help="who starts again asks its peers")
    parser.add_argument("--ways", action="store_true", help="tell the way to a broken rule")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--gib", type=float, default=6.0, help="of memory at most")
    arguments = parser.parse_args()
    scope = Scope(
        member_count=arguments.members,
        terms_max=arguments.terms,
        entries_max=arguments.entries,
        heartbeat_rounds_max=arguments.heartbeats,
        candidates_max=arguments.candidates,
        flush_apart=arguments.flush_apart,
        crashes_max=arguments.crashes,
        recalls=arguments.recalls,
    )
    memory_max_bytes = int(arguments.gib * (1 << 30))
    limits = Limits(seconds_max=60 * arguments.minutes, memory_max_bytes=memory_max_bytes)
    try:
        print(Search(scope, keeps_ways=arguments.ways).run(limits))
    except ViolationError as violation:
        print(f"VIOLATION {violation}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
