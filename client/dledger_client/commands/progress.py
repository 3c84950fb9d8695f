"""The progress bar on standard error."""

import argparse
import sys
from typing import Any, Final

from tqdm import tqdm

DELAY_S: Final = 1.0
"""How long the work takes before the bar appears, so that a short command shows none."""
SECONDS: Final = " s"
"""The unit of a bar that shows time; a rate would make no sense."""
WIDE_COLUMNS: Final = 70
"""From this terminal width on, a bar shows more than the percentage and the time left."""
_COUNTS: Final = "{n_fmt} of {total_fmt}{unit}, "
_UNKNOWN: Final = "{desc}{n_fmt}{unit} in {elapsed}, {rate_noinv_fmt}{postfix}"


class Bar(tqdm):  # type: ignore[type-arg]  # the class takes no argument at run time
    """A progress bar without tqdm's monitor thread, which this program does not need."""

    monitor_interval = 0
    is_erased_at_zero = False
    """Whether the bar disappears at its end if there was no progress."""

    @property
    def format_dict(self) -> dict[str, Any]:
        """The values to show, in the format that fits the terminal as it is now."""
        found = super().format_dict
        shape = _format(found["total"], found["unit"], found["ncols"])
        return {**found, "bar_format": shape}

    @property
    def is_shown(self) -> bool:
        """Whether the bar is on the terminal."""
        return not self.disable and self.last_print_t >= self.start_t + (self.delay or 0)

    def close(self) -> None:
        """Leave the bar on the terminal or erase it."""
        if self.is_erased_at_zero and not self.n:
            self.leave = False
        super().close()

    def expect(self, total: int) -> None:
        """Set the total of a bar that was created without one."""
        self.total = total


def _format(total: float | None, unit: str, columns: int | None) -> str:
    if not total:
        return _UNKNOWN
    is_wide = columns is None or columns >= WIDE_COLUMNS
    counts = _COUNTS if is_wide else ""
    rate = "{rate_noinv_fmt}, " if is_wide and unit != SECONDS else ""
    postfix = "{postfix}" if is_wide else ""
    return "{desc}{percentage:3.0f}% |{bar}| " + f"{counts}{rate}{{remaining}} left{postfix}"


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--progress` and `--no-progress`."""
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show a progress bar on standard error (default: only on a terminal, after "
        f"{DELAY_S:g} s)",
    )


def bar(wanted: bool | None, total: float | None, unit: str = "B", *, doing: str = "") -> Bar:
    """Return a bar for `total` units, with percentage and time left if the total is known.

    `wanted` is whether to show it; None means only on a terminal, and only if the work takes
    longer than DELAY_S. A bar with a `doing` text disappears at its end, and so does one without
    progress that nobody asked for.
    """
    is_shown = sys.stderr.isatty() if wanted is None else wanted
    made = Bar(
        disable=not is_shown,
        total=total,
        unit=unit,
        unit_scale=unit != SECONDS,
        file=sys.stderr,
        dynamic_ncols=True,
        delay=0 if wanted else DELAY_S,
        desc=doing or None,
        leave=not doing,
    )
    made.is_erased_at_zero = wanted is None
    return made


def shown_bars() -> list[Bar]:
    """Return the bars that are on the terminal."""
    return [one for one in getattr(Bar, "_instances", ()) if isinstance(one, Bar) and one.is_shown]
