"""Counts of the outcomes of `dledger append`, and their summary."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from dledger_client.append.outcomes import Acknowledged, Outcome, Refused, Unknown
from dledger_client.calls.statistics import AppendStatistics
from dledger_client.commands.exits import ExitCode
from dledger_client.commands.ranges import Ranges
from dledger_formats.protocol.codes import DLedgerResponseCode

REASONS_MAX: Final = 10
"""Maximum number of distinct reasons in the summary."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of the outcomes so far."""

    skipped: int = 0
    """Bodies at the beginning of the input that an earlier run of the same producer appended."""
    taken: int = 0
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    unreachable: bool = False
    is_full: bool = False
    """Whether the volumes of the group are considered full: an append was refused for that reason,
    and so were all others that were in flight then. An acknowledgement would show that there is
    room again.
    """
    first_index: int | None = None
    last_index: int | None = None
    reasons: Counter[str] = field(default_factory=Counter)
    unknown_numbers: Ranges = field(default_factory=Ranges)
    """The numbers of the bodies whose outcome is unknown, from 1 on."""
    refused_numbers: Ranges = field(default_factory=Ranges)
    _last_number: int = 0
    """The number of the last body that is acknowledged or whose outcome is unknown."""
    are_unfinished_unsent: bool = False
    """Whether no body without an outcome was sent: none of them will ever be in the log."""
    has_other_input: bool = False
    """Whether a body was refused because an earlier run of the producer had another input."""
    is_cut_short: bool = False
    """Whether the run ended early, so that bodies of the input may not have been appended."""
    is_ended_by_signal: bool = False
    remedy: str = ""
    """Advice on unknown outcomes that replaces the usual hint; empty to keep the hint."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once no further body will be taken."""
    _left_of_full_window: int | None = None
    """How many bodies that were in flight when an append was refused because of full volumes have
    no outcome yet; None unless the last outcome was such a refusal.
    """

    @property
    def unfinished(self) -> int:
        """Number of bodies that were taken and have no outcome yet."""
        return self.taken - self.acknowledged - self.unknown - self.refused

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the worst outcome."""
        if self.unknown or self.unfinished:
            return ExitCode.UNKNOWN
        if self.unreachable:
            return ExitCode.UNREACHABLE
        if self.has_other_input:
            return ExitCode.USAGE
        return ExitCode.REFUSED if self.refused else ExitCode.OK

    @property
    def end_reason(self) -> str:
        """Why no further body was taken, unless the output is the reason."""
        if self.is_ended_by_signal:
            return "ended by a signal"
        if self.is_full:
            return "the volumes of the group are full"
        if self.unreachable:
            return "the group is unreachable"
        return "an append failed" if self.unknown or self.refused else "the run has failed"

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        self._note_room(outcome)
        number = self.skipped + outcome.number + 1
        if not isinstance(outcome, Refused):
            self._last_number = number
        if isinstance(outcome, Acknowledged):
            self.acknowledged += 1
            index = outcome.index
            self.first_index = index if self.first_index is None else min(self.first_index, index)
            self.last_index = index if self.last_index is None else max(self.last_index, index)
            return
        if isinstance(outcome, Unknown):
            self.unknown += 1
            self.unknown_numbers.add(number)
        else:
            self.refused += 1
            self.refused_numbers.add(number)
            self.unreachable |= outcome.code is DLedgerResponseCode.METADATA_ERROR
        if len(self.reasons) < REASONS_MAX or outcome.reason in self.reasons:
            self.reasons[outcome.reason] += 1

    def summary(self, statistics: AppendStatistics, elapsed_s: float) -> dict[str, Any]:
        """Return the figures of the summary."""
        return {
            "acknowledged": self.acknowledged,
            "unknown": self.unknown,
            "refused": self.refused,
            "unfinished": self.unfinished,
            "skipped": self.skipped,
            "firstIndex": self.first_index,
            "lastIndex": self.last_index,
            "leader": statistics.leader_id,
            "leaderChanges": statistics.leader_changes,
            "longestGapMs": round(statistics.longest_gap_s * 1000, 1),
            "appendsPerSecond": round(self.acknowledged / elapsed_s, 1) if elapsed_s else 0.0,
            "reasons": dict(self.reasons),
        }

    def lines(
        self, summary: dict[str, Any], noun: str, hint: str, refused_hint: str = ""
    ) -> list[str]:
        """Return the summary as text; `noun` is the word for a body, such as line.

        The hints say what to do about unknown outcomes and refused bodies.
        """
        lines = [
            f"acknowledged    {self.acknowledged}",
            f"unknown         {self.unknown}",
            f"refused         {self.refused}",
        ]
        if self.first_index is not None:
            lines.append(f"indexes         {self.first_index} to {self.last_index}")
        if self.skipped:
            lines.append(f"appended before {self.skipped}")
        if self.unfinished:
            lines.append(f"unfinished      {self.unfinished}")
        lines += [
            f"leader          {summary['leader'] or '-'}",
            f"leader changes  {summary['leaderChanges']}",
            f"longest gap     {summary['longestGapMs']} ms",
            f"rate            {summary['appendsPerSecond']} appends/s",
            *(
                f"{times} time{'s' * (times > 1)}: {reason}"
                for reason, times in self.reasons.items()
            ),
        ]
        if self.unfinished and self.are_unfinished_unsent:
            lines.append(f"These were not appended: the last {self.unfinished} that were read.")
        if refused := self._refused_before_end:
            lines.append(f"These were not appended: {refused.text(noun)}.{refused_hint}")
        if self.unknown or self._in_doubt:
            lines.append(f"These may or may not be in the log: {self._unknown_text(noun)}.{hint}")
        return lines

    @property
    def end_number(self) -> int:
        """The number of the last body that is in the log or may be; 0 if there is none.

        A run that ended early has appended nothing of what follows.
        """
        if self._in_doubt:
            return self.skipped + self.taken
        return max(self.skipped, self._last_number)

    @property
    def _refused_before_end(self) -> Ranges:
        """The refused bodies, without those that belong to the rest of an input cut short."""
        return self.refused_numbers.up_to(
            self.end_number if self.is_cut_short else self.skipped + self.taken
        )

    @property
    def _in_doubt(self) -> int:
        return 0 if self.are_unfinished_unsent else self.unfinished

    def _note_room(self, outcome: Outcome) -> None:
        """Update `is_full` from an outcome that is not counted yet."""
        if not (isinstance(outcome, Refused) and outcome.code is DLedgerResponseCode.DISK_FULL):
            self._left_of_full_window = None
            return
        if self._left_of_full_window is None:
            self._left_of_full_window = self.unfinished
        self._left_of_full_window -= 1
        self.is_full |= self._left_of_full_window <= 0

    def _unknown_text(self, noun: str) -> str:
        """Name the bodies with unknown outcomes; those without an outcome are the last ones."""
        numbers = self.unknown_numbers.copy()
        if self._in_doubt:
            end = self.skipped + self.taken
            numbers.add(end - self.unfinished + 1, end)
        return numbers.text(noun)
