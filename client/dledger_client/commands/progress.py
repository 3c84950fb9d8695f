"""The progress bar on standard error."""

import argparse
import sys

from tqdm import tqdm


class Bar(tqdm):  # type: ignore[type-arg]  # the class takes no argument at run time
    """A progress bar without tqdm's monitor thread, which this program does not need."""

    monitor_interval = 0


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--progress` and `--no-progress`."""
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show a progress bar on standard error (default: only if it is a terminal)",
    )


def bar(wanted: bool | None, total: int | None, unit: str = "B") -> Bar:
    """Return a bar for `total` units, with percentage and time left if the total is known.

    `wanted` is whether to show it; None means only on a terminal.
    """
    is_shown = sys.stderr.isatty() if wanted is None else wanted
    return Bar(
        disable=not is_shown,
        total=total,
        unit=unit,
        unit_scale=True,
        file=sys.stderr,
        dynamic_ncols=True,
    )
