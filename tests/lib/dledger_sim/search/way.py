"""What happened on the way to a state of the group, for people."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from dledger_sim.search.members import FLUSH, HEARTBEAT, PROPOSE, TIMEOUT, Members

NAMES = {TIMEOUT: "times out", HEARTBEAT: "ticks", PROPOSE: "is appended to", FLUSH: "has flushed"}


def told(members: Members, way: Sequence[Sequence[int]]) -> Iterator[str]:
    """A line for each step of a way, which is made of the members' states.

    A message may be there that another way to the same state has sent.
    """
    for before, after in pairwise(way):
        changed = [number for number, state in enumerate(before) if state != after[number]]
        if not changed:
            yield "somebody crashes and is what it was"
        for number in changed:
            happened = _happened(members, before[number], after[number])
            yield f"{members.ids[number]} {happened}: {members.seen[after[number]]}"


def _happened(members: Members, before: int, after: int) -> str:
    dies = ""
    for input_, step in members.steps_of(before):
        what = NAMES.get(input_, "is asked for a change")
        if input_ >= 0:
            what = f"takes {members.messages[input_]}"
        if step.state == after:
            return what
        if any(start.state == after for start in step.dies):
            dies = f"dies while it {what}"
    return dies or "crashes"
