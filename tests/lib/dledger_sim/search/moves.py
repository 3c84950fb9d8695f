"""Everything that can happen to one member: a cache of its moves, by state and by network."""

from typing import Final, NamedTuple

from dledger_sim.search.members import Members

STATE_BITS: Final = 20
STATE_MASK: Final = (1 << STATE_BITS) - 1
CRASH_BITS: Final = 4
CRASH_MASK: Final = (1 << CRASH_BITS) - 1
RESTART_RANK: Final = 24
"""Added to the rank at a crash, which sets a member back. With it, a search that stops early has
visited states with crashes and states without.
"""
MOVES_KEPT_MAX: Final = 8_000_000

Move = tuple[int, int, int, int]
"""The change of the group's number, the messages sent, the change of the rank, and the member's new
state if its committed index rises, otherwise -1.
"""


class Moves(NamedTuple):
    """Everything that can happen to a member in one state, with some messages in transit to it.

    Inputs that lead to the same state are one move.
    """

    said: int
    """Messages that the member sends without a change of its state."""
    change_count: int
    moves: list[Move]
    death_count: int
    deaths: list[Move]
    """Crashes."""


class MoveTable:
    """Finds the moves of a member's state once, and keeps them as long as memory allows."""

    def __init__(self, members: Members, shifts: list[int], crash_shift: int) -> None:
        """`shifts` are the positions of the members in the group's number, as `crash_shift` is that
        of the crash count; without crashes in the scope, `crash_shift` is not used.
        """
        self.kept: list[dict[int, Moves]] = []
        """For each state of a member, its moves by the relevant messages in transit."""
        self.relevant: list[int] = []
        """For each state of a member, the set of all messages that may have an effect."""
        self.kinds: list[int] = []
        """For each state of a member, a number for the part that the judge sees."""
        self._members = members
        self._shifts = shifts
        self._crash_shift = crash_shift
        self._kind_numbers: dict[object, int] = {}
        self._kept_count = 0

    def add(self, state: int) -> None:
        """Make room for the moves of a new state of a member."""
        seen, whose = self._members.seen[state], self._members.whose[state]
        self.kinds.append(self._kind_numbers.setdefault(seen, len(self._kind_numbers)))
        self.relevant.append(self._members.addressed[whose])
        self.kept.append({})

    def find(self, state: int, network: int) -> Moves:
        """Let the member take every input that is possible with these messages in transit."""
        messages = network & self.relevant[state]
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
                self.relevant[state] &= ~(1 << input_)
            for start in step.dies:
                death_count += 1
                deaths[start.state] = deaths.get(start.state, 0) | start.sent
        if self._members.crash:
            for start in self._members.starts(state):
                death_count += 1
                deaths[start.state] = deaths.get(start.state, 0) | start.sent
        for new in range(len(self.kept), len(self._members.seen)):
            self.add(new)
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
        self._keep(state, network & self.relevant[state], found)
        return found

    def _keep(self, state: int, messages: int, moves: Moves) -> None:
        if self._kept_count > MOVES_KEPT_MAX:
            self._kept_count = 0
            for kept in self.kept:
                kept.clear()
        self._kept_count += 1 + len(moves.moves) + len(moves.deaths)
        self.kept[state][messages] = moves

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
