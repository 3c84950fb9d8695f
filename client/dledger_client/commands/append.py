"""`dledger append`: append lines, texts or whole files, and report the outcomes."""

import argparse
import asyncio
import contextlib
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from tqdm import tqdm

from dledger_client.append.outcomes import Acknowledged, Outcome, Refused, Unknown
from dledger_client.client import IN_FLIGHT, DLedgerClient
from dledger_client.commands import bodies, common
from dledger_client.commands.bodies import InputError
from dledger_client.commands.common import ExitCode, UsageError
from dledger_formats.protocol.codes import DLedgerResponseCode

REASONS_MAX: Final = 10
"""Maximum number of distinct reasons in the summary."""
EXIT_ON_SIGNAL: Final = 128


def add_parser(commands: common.Commands) -> None:
    """Define the arguments of `dledger append`."""
    parser = common.new_parser(
        commands,
        "append",
        summary="append lines, texts or whole files",
        description="Append each line of the FILEs, or of standard input, as one entry. The "
        "newline is not part of the entry.",
        examples={
            "dledger append --body hello --body world": "append two entries",
            "dledger append flights.jsonl": "append each line",
            "tail -f log | dledger append": "append each line as it arrives",
            "dledger append --idempotent a.txt": "append each line once, despite failures",
            "dledger append --whole a.bin b.bin": "append each file as one entry",
        },
        exit_codes="0 all acknowledged, 2 usage error, 3 some outcomes unknown, 4 some refused, "
        "5 group unreachable, 128 + n ended by signal n (130 for Ctrl-C).",
    )
    bodies.add_arguments(parser)
    common.add_group_options(parser)
    parser.add_argument(
        "--in-flight",
        metavar="N",
        type=common.positive_int,
        default=IN_FLIGHT,
        help="maximum number of appends in flight (default: %(default)s)",
    )
    retries = parser.add_mutually_exclusive_group()
    retries.add_argument(
        "--at-least-once",
        action="store_true",
        help="resend appends whose outcome is unknown; entries may appear more than once",
    )
    retries.add_argument(
        "--idempotent",
        action="store_true",
        help="resend appends whose outcome is unknown; each entry appears once "
        "(not supported by Java servers)",
    )
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show a progress bar on standard error (default: only if it is a terminal)",
    )
    common.add_output_option(
        parser,
        "text: a summary; json: one line for each entry, then one for the summary",
    )
    parser.set_defaults(run=run)


class _Bar(tqdm):  # type: ignore[type-arg]  # the class takes no argument at run time
    """A progress bar without tqdm's monitor thread, which this program does not need."""

    monitor_interval = 0


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of the outcomes so far."""

    taken: int = 0
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    unreachable: bool = False
    first_index: int | None = None
    last_index: int | None = None
    reasons: Counter[str] = field(default_factory=Counter)

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
        return ExitCode.REFUSED if self.refused else ExitCode.OK

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        if isinstance(outcome, Acknowledged):
            self.acknowledged += 1
            index = outcome.index
            self.first_index = index if self.first_index is None else min(self.first_index, index)
            self.last_index = index if self.last_index is None else max(self.last_index, index)
            return
        if isinstance(outcome, Unknown):
            self.unknown += 1
        else:
            self.refused += 1
            self.unreachable |= outcome.code is DLedgerResponseCode.METADATA_ERROR
        if len(self.reasons) < REASONS_MAX or outcome.reason in self.reasons:
            self.reasons[outcome.reason] += 1


async def run(arguments: argparse.Namespace) -> int:
    """Append until the input ends, a signal arrives or the group is unreachable.

    Returns the exit code.
    """
    tally = Tally()
    signals: list[int] = []
    problem: Exception | None = None
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    began_s = loop.time()
    opened = common.open_client(
        arguments, at_least_once=arguments.at_least_once, idempotent=arguments.idempotent
    )
    async with opened as client:
        given = bodies.from_arguments(arguments)
        with _cancelled_by_signals(task, signals):
            try:
                await _append(client, _counted(given, tally), tally, arguments)
            except InputError as error:
                problem = error
            except asyncio.CancelledError:
                if not signals:
                    raise
                task.uncancel()
    _write_summary(client, tally, loop.time() - began_s, as_json=arguments.output == "json")
    if problem is not None:
        raise UsageError(str(problem))
    return EXIT_ON_SIGNAL + signals[0] if signals else tally.exit_code


async def _append(
    client: DLedgerClient,
    given: AsyncIterator[bytes],
    tally: Tally,
    arguments: argparse.Namespace,
) -> None:
    shows_progress = arguments.progress
    if shows_progress is None:
        shows_progress = sys.stderr.isatty()
    as_json = arguments.output == "json"
    # A pipe is buffered: without a flush, a reader would wait for outcomes that are known.
    write = common.write_event if common.is_output_followed() else common.write_json
    outcomes = client.append_all(given, in_flight=arguments.in_flight)
    with _Bar(disable=not shows_progress, unit=" appends", file=sys.stderr) as bar:
        async with contextlib.aclosing(outcomes):
            shown_leader_id = None
            async for outcome in outcomes:
                tally.add(outcome)
                bar.update()
                if client.leader_id != shown_leader_id:
                    shown_leader_id = client.leader_id
                    bar.set_postfix_str(f"leader {shown_leader_id}", refresh=False)
                if as_json:
                    write(_plain(outcome))


async def _counted(given: AsyncIterator[bytes], tally: Tally) -> AsyncGenerator[bytes, None]:
    """Count and yield the bodies, until the group is found to be unreachable."""
    async for body in given:
        if tally.unreachable:
            return
        tally.taken += 1
        yield body


@contextlib.contextmanager
def _cancelled_by_signals(task: asyncio.Task[Any], signals: list[int]) -> Iterator[None]:
    """Cancel the task on SIGINT and SIGTERM, and add the signal's number to `signals`."""
    loop = asyncio.get_running_loop()

    def cancel(number: int) -> None:
        signals.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, cancel, number)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _plain(outcome: Outcome) -> dict[str, Any]:
    fields = msgspec.structs.asdict(outcome)
    number = fields.pop("number")
    if isinstance(outcome, Refused):
        fields["code"] = outcome.code.value
    return {"number": number, "outcome": type(outcome).__name__.lower(), **fields}


def _write_summary(client: DLedgerClient, tally: Tally, elapsed_s: float, *, as_json: bool) -> None:
    statistics = client.statistics
    summary = {
        "acknowledged": tally.acknowledged,
        "unknown": tally.unknown,
        "refused": tally.refused,
        "unfinished": tally.unfinished,
        "firstIndex": tally.first_index,
        "lastIndex": tally.last_index,
        "leader": client.leader_id,
        "leaderChanges": statistics.leader_changes,
        "longestGapMs": round(statistics.longest_gap_s * 1000, 1),
        "appendsPerSecond": round(tally.acknowledged / elapsed_s, 1) if elapsed_s else 0.0,
        "reasons": dict(tally.reasons),
    }
    if as_json:
        common.write_json({"summary": summary})
        return
    common.write_line(f"acknowledged    {tally.acknowledged}")
    common.write_line(f"unknown         {tally.unknown}")
    common.write_line(f"refused         {tally.refused}")
    if tally.first_index is not None:
        common.write_line(f"indexes         {tally.first_index} to {tally.last_index}")
    if tally.unfinished:
        common.write_line(f"unfinished      {tally.unfinished}")
    common.write_line(f"leader          {client.leader_id or '-'}")
    common.write_line(f"leader changes  {statistics.leader_changes}")
    common.write_line(f"longest gap     {summary['longestGapMs']} ms")
    common.write_line(f"rate            {summary['appendsPerSecond']} appends/s")
    for reason, times in tally.reasons.items():
        common.write_line(f"{times} times: {reason}")
