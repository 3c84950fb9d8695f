"""How often reads that wait for the next entry are answered: the more of them, the less often.

Such an answer, with the request that follows it, costs the loop about as much for one entry as for
a hundred. A leader that commits a thousand times a second would have no time left for appends if a
hundred readers were answered each time. So every answer uses up time of a budget. Within the budget
reads are answered at once. Otherwise they wait for their turn, and their answers have more entries.

They are then answered in small groups, one after the other: appends that arrive meanwhile wait for
a group and not for all readers. Where very many wait, the groups are larger, so that none waits
much longer than `PAUSE_S_MAX`.
"""

from typing import Final

ANSWER_S: Final = 0.000_2
"""Time of the budget that one answer uses, four to six times what it costs the loop."""
AT_ONCE_S: Final = 0.004
"""Time that may be used in advance: 20 reads are answered at once."""
GROUP_S: Final = 0.002
"""Time of the budget that one group of answers uses."""
GROUP_MIN: Final = round(GROUP_S / ANSWER_S)
PAUSE_S_MAX: Final = 0.1
"""Longest wait for the budget, reached by 330 reads that wait for the same entry."""
GROUPS_MAX: Final = 33
"""Groups within the longest pause. A timer for `GROUP_S` fires up to 1 ms later."""
_ROUNDING: Final = 1e-6


class AnswerPace:
    """The budget of the reads that wait; the caller passes in the time."""

    def __init__(self) -> None:
        self._used_until_s = 0.0
        """The time until which the budget is used up."""
        self._group = GROUP_MIN
        """Number of reads in a group."""
        self._group_until_s = 0.0
        """The time until which groups do not become smaller: waiting reads rely on their size."""

    def adapt(self, waiting_count: int, now_s: float) -> None:
        """Choose the size of groups for the number of reads that wait."""
        group = max(GROUP_MIN, waiting_count // GROUPS_MAX)
        if group >= self._group or now_s >= self._group_until_s:
            self._group, self._group_until_s = group, now_s + PAUSE_S_MAX

    def room(self, due_count: int, now_s: float) -> int:
        """Return how many of the due reads may be answered now: a whole group or more, or none."""
        unused_s = AT_ONCE_S - max(0.0, self._used_until_s - now_s)
        room = int(unused_s / self._answer_s + _ROUNDING)
        return min(due_count, room) if room >= min(due_count, self._group) else 0

    def use(self, answer_count: int, now_s: float) -> None:
        """Use up the budget of `answer_count` answers."""
        self._used_until_s = max(self._used_until_s, now_s) + answer_count * self._answer_s

    def wait_s(self, due_count: int, now_s: float) -> float:
        """Return how long the next group of the due reads must wait."""
        group_s = min(due_count, self._group) * self._answer_s
        return max(0.0, self._used_until_s + group_s - AT_ONCE_S - now_s)

    @property
    def _answer_s(self) -> float:
        """Time of the budget that one answer uses now."""
        return GROUP_S / self._group
