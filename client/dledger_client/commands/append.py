"""`dledger append`: append lines, texts or whole files, and report the outcomes."""

import argparse
import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import msgspec

from dledger_client.append.outcomes import Acknowledged, Outcome, Refused
from dledger_client.client import IN_FLIGHT, DLedgerClient
from dledger_client.commands import bodies, common, progress
from dledger_client.commands.bodies import InputError, OpenInputError
from dledger_client.commands.common import ExitCode, UsageError
from dledger_client.commands.named_producer import IN_FLIGHT_MAX, NamedProducer
from dledger_client.commands.signals import EXIT_ON_SIGNAL, cancelled_by_signals
from dledger_client.commands.tally import Tally
from dledger_formats import console
from dledger_formats.console import OutputError
from dledger_formats.protocol.codes import DLedgerResponseCode

END_WAIT_S: Final = 0.5
"""How long an append whose outcomes nobody reads waits to see whether the input has ended."""


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
            "dledger append --producer p a.txt": "the same, also if the command is run again",
            "dledger append --whole a.bin b.bin": "append each file as one entry",
        },
        exit_codes="0 all acknowledged; 1 the outcomes could not be written, and what was not read "
        "by then was not appended; 2 usage error; 3 some outcomes unknown; 4 some refused; 5 group "
        "unreachable; 128 + n ended by signal n (130 for Ctrl-C).",
    )
    bodies.add_arguments(parser)
    common.add_group_options(parser)
    parser.add_argument(
        "--in-flight",
        metavar="N",
        type=common.in_flight,
        default=IN_FLIGHT,
        help="maximum number of appends in flight (default: %(default)s)",
    )
    retries = parser.add_mutually_exclusive_group()
    retries.add_argument(
        "--at-least-once",
        action="store_true",
        help="resend appends whose outcome is unknown; entries may appear more than once "
        "(default: report them)",
    )
    retries.add_argument(
        "--idempotent",
        action="store_true",
        help="resend appends whose outcome is unknown; each entry appears once "
        "(not supported by Java servers; default: report them)",
    )
    retries.add_argument(
        "--producer",
        metavar="NAME",
        help="like --idempotent, and skip what an earlier run with this NAME has appended: the "
        "same input, which may have grown, is in the log once, even after a crash (default: none)",
    )
    progress.add_option(parser)
    parser.add_argument(
        "--quiet", action="store_true", help="print nothing unless an append fails (default: no)"
    )
    common.add_output_option(
        parser,
        "text: the index of a single entry, or a summary on standard error; json: one line for "
        "each entry, then one for the summary",
    )
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Append until the input ends, a signal arrives or the group is unreachable or full.

    Returns the exit code.
    """
    tally = Tally()
    signals: list[int] = []
    problem: Exception | None = None
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    began_s = loop.time()
    arguments.idempotent |= arguments.producer is not None
    opened = common.open_client(
        arguments, at_least_once=arguments.at_least_once, idempotent=arguments.idempotent
    )
    async with opened as client:
        given = bodies.from_arguments(arguments)
        if bodies.is_terminal(arguments) and not arguments.quiet:
            common.complain("dledger: reading from the terminal; Ctrl-D ends the input")
        with cancelled_by_signals(task, signals):
            try:
                if arguments.producer is None:
                    await _Appending(client, arguments, tally).run(given)
                else:
                    await _append_once(client, arguments, tally, given)
            except (InputError, OutputError, BrokenPipeError) as error:
                problem = error
            except asyncio.CancelledError:
                if not signals:
                    raise
                task.uncancel()
    # The client that is closed has counted what it dropped before it sent it as refused.
    tally.are_unfinished_unsent = client.statistics.refused - tally.refused >= tally.unfinished
    elapsed_s = loop.time() - began_s
    is_read = problem is None or isinstance(problem, InputError)
    unwritten = _report(client, tally, arguments, elapsed_s, is_read=is_read)
    problem = problem or unwritten
    if isinstance(problem, InputError):
        if tally.exit_code is ExitCode.OK:
            raise UsageError(str(problem))
        common.complain(f"dledger: {problem}")
        return tally.exit_code
    if signals:
        return EXIT_ON_SIGNAL + signals[0]
    return _exit_code(tally, problem)


def _exit_code(tally: Tally, problem: Exception | None) -> int:
    """Return the exit code after the output could not be written, or if there is no problem."""
    if problem is None:
        return tally.exit_code
    console.discard_output()
    what = problem if isinstance(problem, OutputError) else "nobody reads the outcomes any longer"
    left = "; the rest of the input was not appended" if tally.is_cut_short else ""
    if left or isinstance(problem, OutputError):
        common.complain(f"dledger: {what}{left}")
        return tally.exit_code or ExitCode.FAILED
    return tally.exit_code


async def _append_once(
    client: DLedgerClient, arguments: argparse.Namespace, tally: Tally, given: AsyncIterator[bytes]
) -> None:
    """Append the bodies that no earlier run with this producer's name has appended."""
    with NamedProducer.opened(arguments.producer, client.group) as producer:
        await producer.begin(client, may_register_again=True)
        tally.skipped = producer.skipped
        arguments.in_flight = min(arguments.in_flight, IN_FLIGHT_MAX)
        is_open: OpenInputError | None = None
        try:
            try:
                await _Appending(client, arguments, tally, producer).run(producer.numbered(given))
            except OpenInputError as error:
                is_open = error
            is_whole = not producer.has_failed and not tally.unfinished and not tally.is_cut_short
            if is_whole and producer.has_read_record:
                await producer.complete(client, tally.last_index)
        finally:
            producer.save()
            tally.has_other_input = producer.was_given_other_input
        if any(DLedgerResponseCode.UNKNOWN_PRODUCER.name in reason for reason in tally.reasons):
            tally.remedy = producer.forgotten_hint(arguments.producer)
        if is_open is not None:
            raise is_open


class _Appending:
    """One run of the command: bodies go in, outcomes come out."""

    def __init__(
        self,
        client: DLedgerClient,
        arguments: argparse.Namespace,
        tally: Tally,
        producer: NamedProducer | None = None,
    ) -> None:
        self._client = client
        self._producer = producer
        self._arguments = arguments
        self._tally = tally
        self._output_error: Exception | None = None
        # The bodies' sizes, for the progress bar, until their outcomes are known.
        self._sizes: deque[int] = deque()

    async def run(self, given: AsyncIterator[bytes]) -> None:
        """Append the bodies. Raises InputError, and what went wrong with writing the outcomes.

        If an outcome cannot be written, no further body is taken, and the run ends once all bodies
        that were taken have their outcomes.
        """
        tally, client, as_json = self._tally, self._client, self._arguments.output == "json"
        outcomes = client.append_all(self._counted(given), in_flight=self._arguments.in_flight)
        with self._bar() as bar:
            async with contextlib.aclosing(outcomes):
                shown_leader_id = None
                async for answered in outcomes:
                    outcome = answered
                    if self._producer is not None:
                        outcome = await self._producer.confirmed(answered)
                        await self._producer.note(outcome)
                    tally.add(outcome)
                    size = self._sizes.popleft()
                    bar.update(size if isinstance(outcome, Acknowledged) else 0)
                    if client.leader_id != shown_leader_id:
                        shown_leader_id = client.leader_id
                        bar.set_postfix_str(f"leader {shown_leader_id}", refresh=False)
                    if as_json and self._output_error is None:
                        self._write(outcome)
                    if self._output_error is not None and not tally.unfinished:
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(tally.ended.wait(), END_WAIT_S)
                        tally.is_cut_short |= not tally.ended.is_set()
                        break
        if self._output_error is not None:
            raise self._output_error

    def _bar(self) -> progress.Bar:
        # A bar would be drawn over what a person types.
        is_typed = bodies.is_terminal(self._arguments)
        wanted = False if self._arguments.quiet or is_typed else None
        if self._arguments.progress is not None:
            wanted = self._arguments.progress
        return progress.bar(wanted, bodies.total_bytes(self._arguments))

    def _write(self, outcome: Outcome) -> None:
        # A pipe is buffered: without a flush, a reader would wait for outcomes that are known.
        write = common.write_event if common.is_output_followed() else common.write_json
        try:
            write(_plain(outcome))
        except (OutputError, BrokenPipeError) as error:
            self._output_error = error

    async def _counted(self, given: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Count and yield the bodies, until no further one must be appended."""
        tally = self._tally
        async for body in given:
            if tally.unreachable:
                return
            if tally.is_full:
                common.complain(
                    "dledger: the volumes of the group are full; the rest of the input was not "
                    "appended"
                )
                return
            if self._output_error is not None or (self._producer and self._producer.has_failed):
                tally.is_cut_short = True
                break
            tally.taken += 1
            self._sizes.append(len(body) + 1)
            yield body
        tally.ended.set()


def _plain(outcome: Outcome) -> dict[str, Any]:
    fields = msgspec.structs.asdict(outcome)
    number = fields.pop("number")
    if isinstance(outcome, Refused):
        fields["code"] = outcome.code.value
    kind = type(outcome).__name__.lower()
    return {"number": number, "outcome": kind, "time": round(time.time(), 4), **fields}


def _report(
    client: DLedgerClient,
    tally: Tally,
    arguments: argparse.Namespace,
    elapsed_s: float,
    *,
    is_read: bool,
) -> Exception | None:
    """Write the summary: to standard output as JSON if somebody reads it, else to the error.

    What standard output does not take goes to the error too, so that nobody appends it again.
    Returns what went wrong with standard output.
    """
    summary = tally.summary(client.statistics, elapsed_s)
    as_json = arguments.output == "json"
    single = f"appended entry {tally.first_index}" if tally.taken == tally.acknowledged == 1 else ""
    if arguments.quiet and tally.exit_code is ExitCode.OK and not (as_json and is_read):
        return None
    problem: Exception | None = None
    try:
        if as_json and is_read:
            common.write_event({"summary": summary})
            return None
        if single and not as_json:
            common.write_line(single)
            console.flush()
            return None
    except (OutputError, BrokenPipeError) as error:
        problem = error
    if single:
        common.complain(f"dledger: {single}")
        return problem
    hint = "" if arguments.idempotent else " With --idempotent, each entry is in the log once."
    if arguments.producer is not None:
        hint = " Run the command again: it goes on where it ended."
        hint = tally.remedy or hint
    if tally.taken == 1 and tally.reasons:
        outcome = "the entry may be in the log" if tally.unknown else "the entry was not appended"
        common.complain(f"dledger: {outcome}: {next(iter(tally.reasons))}.{hint * tally.unknown}")
        return problem
    for line in tally.lines(summary, bodies.noun(arguments), hint):
        common.complain(line)
    return problem
