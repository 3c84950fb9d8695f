"""Every run of a small group, not some: a search of the production core to the end.

The network is a set: a message once sent may arrive at any time, any number of times, or never,
which covers loss, delay, doubling and disorder. Time is abstract: an election timeout or a
heartbeat may come at any moment, and so may a crash. What an input does to a member is computed
once (`members`); the search itself moves small numbers about:

    python -m dledger_sim.search.exhaustive --members 3 --terms 2 --entries 2 --crashes 1
"""

import argparse
import gc
import sys
import time
from collections import defaultdict
from itertools import count
from typing import Final

from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.member_state import Role
from dledger_sim.judges.violation import ViolationError
from dledger_sim.search.judge import Terms, judge
from dledger_sim.search.members import Members
from dledger_sim.search.moves import (
    CRASH_BITS,
    CRASH_MASK,
    STATE_BITS,
    STATE_MASK,
    Move,
    MoveTable,
)
from dledger_sim.search.result import Limits, Result
from dledger_sim.search.scope import Scope
from dledger_sim.search.way import told

WAITS: Final = 1
"""In the set of messages that belongs to a state of the group: it is to be visited."""
VISITS_BETWEEN_LOOKS: Final = 4096


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
        self._table = MoveTable(self._members, self._shifts, self._crash_shift)
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
            self._table.add(state)
            first |= state << shift
        self._networks[first] = WAITS
        self._waiting[0].append(first)
        visit_count, transition_count, complete = 0, 0, False
        for visit_count in count():
            if visit_count % VISITS_BETWEEN_LOOKS == 0 and limits.reached(visit_count, started_s):
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
                rule = "the core's invariants hold"
                raise ViolationError(rule, f"{error}{self._way(group)}") from error
        return self._result(visit_count, transition_count, complete, started_s)

    def _visit(self, group: int, rank: int) -> int:
        """Do all that can happen in a state of the group; returns in how many ways."""
        states = [group >> shift & STATE_MASK for shift in self._shifts]
        kept, relevant = self._table.kept, self._table.relevant
        network = self._networks[group] ^ WAITS
        while True:
            said, all_moves = network, []
            for state in states:
                moves = kept[state].get(network & relevant[state])
                if moves is None:
                    moves = self._table.find(state, network)
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
            raise ViolationError(
                "committed entries are the same on all members", f"{known} and {learnt}"
            )
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

    # -- the judge ---------------------------------------------------------------------------------

    def _judge(self, group: int) -> None:
        """Judge a state that is new; most look to the judge like one that it has seen."""
        states = [group >> shift & STATE_MASK for shift in self._shifts]
        seen, kinds = self._members.seen, self._table.kinds
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
