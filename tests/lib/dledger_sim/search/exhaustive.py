"""An exhaustive search of the runs of a small group of production cores.

The network is a set: a message may arrive at any time, any number of times, or never, which covers
loss, delay, duplication and reordering. Time is abstract: an election timeout, a heartbeat or a
crash may occur at any moment. The effect of an input on a member is computed once (`members`), so
the search itself only adds and compares integers:

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
from dledger_sim.search.judge import Terms, judge, judge_stranger
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
"""Bit in the message set of a state of the group: the state waits for a visit."""
VISITS_BETWEEN_LOOKS: Final = 4096


class Search:
    """One search. With `keeps_ways`, a ViolationError includes the path to the broken rule, which
    takes memory.

    The state of the group is an integer. From its low end, it holds each member's state, the number
    of crashes, and the longest log that any member ever knew to be committed. After a crash, no
    member may know of that log, but the group must not lose it.
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
        """For each state of the group, the messages that may be in transit, and `WAITS`."""
        self._same: dict[int, int] = {}
        """Each set of messages once: many states share a set, and memory is the limit."""
        self._waiting: defaultdict[int, list[int]] = defaultdict(list)
        """States of the group by rank."""
        self._came_from: dict[int, int] | None = {} if keeps_ways else None

    def run(self, limits: Limits) -> Result:
        """Visit every state, or stop at a limit. Raises ViolationError if a rule is broken.

        A state of the group is visited once for all paths to it, with the messages of all these
        paths. More messages may therefore arrive than in any single run: the search covers every
        run, and some that are impossible. The state with the least progress is visited first, so
        that nearly all paths to a state are known before its visit, and few states are visited
        again. The order does not affect what the search finds.
        """
        collects = gc.isenabled()
        gc.disable()  # it would traverse millions of values without any cycle
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
        """Follow everything that can happen in a state; return the number of transitions."""
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
        """Remember what a member knows to be committed; raises ViolationError on a disagreement."""
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
        """Judge a new state, unless the judge has seen an equivalent one."""
        states = [group >> shift & STATE_MASK for shift in self._shifts]
        seen, kinds = self._members.seen, self._table.kinds
        committed = group >> self._committed_shift
        key = (committed, *[kinds[state] for state in states])
        if key not in self._judged:
            self._judged.add(key)
            members = [seen[state] for state in states]
            ids = self._members.ids
            if self._scope.stranger_entries:
                judge_stranger(members.pop(), self._scope.stranger_entries)
                ids = ids[:-1]
            judge(ids, self._members.first, members, self._committed[committed])

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
    """Search one scope within the limits; return 1 if a rule was broken."""
    parser = argparse.ArgumentParser(
        prog="dledger_sim.search.exhaustive",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--members", type=int, default=3, help="group size")
    parser.add_argument("--terms", type=int, default=1, help="highest term")
    parser.add_argument(
        "--entries",
        type=int,
        default=2,
        help="entries in one log, including the first entry of each leader",
    )
    parser.add_argument("--heartbeats", type=int, default=1, help="heartbeat rounds of one leader")
    parser.add_argument(
        "--candidates", type=int, default=3, help="members that may stand for election"
    )
    parser.add_argument("--crashes", type=int, default=0, help="crashes of all members together")
    parser.add_argument(
        "--flush-apart",
        action="store_true",
        help="allow other inputs between a write and its flush",
    )
    parser.add_argument("--recalls", action="store_true", help="a restarted member asks its peers")
    parser.add_argument(
        "--stranger", type=int, default=0, help="committed entries of another group in the last log"
    )
    parser.add_argument("--ways", action="store_true", help="print the path to a broken rule")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="time limit")
    parser.add_argument("--gib", type=float, default=6.0, help="memory limit")
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
        stranger_entries=arguments.stranger,
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
