"""How often reads that wait for the next entry are answered: the more of them, the less often.

Such an answer, with the request that follows it, costs the loop about as much for one entry as for
a hundred. A leader that commits a thousand times a second would have no time left for appends if a
hundred readers were answered each time. So every answer uses up time of a budget. Within the budget
reads are answered at once; otherwise they wait together until there is some again, and their
answers have more entries.
"""

from typing import Final

ANSWER_S: Final = 0.000_2
"""Time of the budget that one answer uses, four to six times what it costs the loop."""
AT_ONCE_S: Final = 0.004
"""Time that may be used in advance: 20 reads are answered at once."""
PAUSE_S_MAX: Final = 0.1
"""Longest wait for the budget, reached by 520 reads that wait for the same entry."""


class AnswerPace:
    """The budget of the reads that wait; the caller passes in the time."""

    def __init__(self) -> None:
        self._used_until_s = 0.0
        """Until when the budget is used up."""

    @property
    def opens_at_s(self) -> float:
        """From when on reads may be answered."""
        return self._used_until_s - AT_ONCE_S

    def use(self, answer_count: int, now_s: float) -> None:
        """Note that so many reads are answered."""
        used_until_s = max(self._used_until_s, now_s) + answer_count * ANSWER_S
        self._used_until_s = min(used_until_s, now_s + AT_ONCE_S + PAUSE_S_MAX)
