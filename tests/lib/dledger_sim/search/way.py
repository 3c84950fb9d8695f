"""Describes the path to a state of the group for a reader."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from dledger_sim.search.members import FLUSH, HEARTBEAT, PROPOSE, TIMEOUT, Members

NAMES = {
    TIMEOUT: "times out",
    HEARTBEAT: "ticks",
    PROPOSE: "is appended to",
    FLUSH: "finishes a flush",
}


def told(members: Members, way: Sequence[Sequence[int]]) -> Iterator[str]:
    """Yield a line for each step of a path of members' states.

    A received message may stem from another path to the same state.
    """
    for before, after in pairwise(way):
        changed = [number for number, state in enumerate(before) if state != after[number]]
        if not changed:
            yield "a member crashes and restarts in the same state"
        for number in changed:
            happened = _happened(members, before[number], after[number])
            yield f"{members.ids[number]} {happened}: {members.seen[after[number]]}"


def _happened(members: Members, before: int, after: int) -> str:
    dies = ""
    for input_, step in members.steps_of(before):
        what = NAMES.get(input_, "receives a request for a change")
        if input_ >= 0:
            what = f"receives {members.messages[input_]}"
        if step.state == after:
            return what
        if any(start.state == after for start in step.dies):
            dies = f"crashes while it {what}"
    return dies or "crashes"
