"""`dledger append`: append lines, texts or whole files, and report the outcomes."""

import argparse
import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from dledger_client.append.outcomes import Acknowledged, Outcome
from dledger_client.client import IN_FLIGHT, DLedgerClient
from dledger_client.commands import (
    append_report,
    bodies,
    group_client,
    options,
    printing,
    progress,
    streams,
)
from dledger_client.commands.bodies import InputError, OpenInputError
from dledger_client.commands.exits import ExitCode, UsageError
from dledger_client.commands.named_producer import IN_FLIGHT_MAX, NamedProducer
from dledger_client.commands.producer_record import RecordError
from dledger_client.commands.signals import EXIT_ON_SIGNAL, cancelled_by_signals
from dledger_client.commands.tally import Tally
from dledger_client.errors import ClientError
from dledger_formats import console
from dledger_formats.console import OutputError
from dledger_formats.protocol.codes import DLedgerResponseCode

END_WAIT_S: Final = 0.5
"""How long an append that must take no further input waits for the end of the input, and how long
one that was ended by a signal waits for the reader of its outcomes.
"""


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger append`."""
    parser = options.new_parser(
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
            "dledger append --producer p a.txt": "the same, even if the command is run again",
            "dledger append --whole a.bin b.bin": "append each file as one entry",
        },
        exit_codes="0 all acknowledged; 1 the outcomes could not be written, and what was not read "
        "by then was not appended; 2 usage error, or an input that could not be read to its end; 3 "
        "some outcomes unknown; 4 some refused; 5 group unreachable; 128 + n ended by signal n "
        "(130 for Ctrl-C).",
    )
    bodies.add_arguments(parser)
    options.add_group_options(parser)
    parser.add_argument(
        "--in-flight",
        metavar="N",
        type=options.in_flight,
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
        "--quiet",
        action="store_true",
        help="print nothing unless an append fails; has no effect on -o json (default: no)",
    )
    options.add_output_option(
        parser,
        "text: the index of a single entry, or a summary on standard error; json: one line for "
        "each entry, then one for the summary",
    )
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Append until the input ends, a signal arrives or the group is unreachable or full.

    Returns the exit code.
    """
    with contextlib.closing(streams.Output()) as output:
        return await _run(arguments, output)


async def _run(arguments: argparse.Namespace, output: streams.Output) -> int:
    tally = Tally()
    signals: list[int] = []
    problem: Exception | None = None
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    began_s = loop.time()
    arguments.idempotent |= arguments.producer is not None
    opened = group_client.open_client(
        arguments, at_least_once=arguments.at_least_once, idempotent=arguments.idempotent
    )
    async with opened as client:
        given = bodies.from_arguments(arguments)
        if bodies.is_terminal(arguments) and not arguments.quiet:
            printing.complain("dledger: reading from the terminal; Ctrl-D ends the input")
        with cancelled_by_signals(task, signals):
            try:
                if arguments.producer is None:
                    await _Appending(client, arguments, tally, output).run(given)
                else:
                    await _append_once(client, arguments, tally, output, given)
            except (InputError, OutputError, BrokenPipeError) as error:
                problem = error
                tally.is_cut_short |= _is_broken(error)
            except (ClientError, RecordError, UsageError) as error:
                if not tally.taken:
                    raise
                problem = error
                tally.is_cut_short |= not tally.ended.is_set()
            except asyncio.CancelledError:
                if not signals:
                    raise
            if signals:
                task.uncancel()
                tally.is_ended_by_signal = True
                tally.is_cut_short |= not tally.ended.is_set()
    # While closing, the client has counted the appends that it dropped unsent as refused.
    tally.are_unfinished_unsent = client.statistics.refused - tally.refused >= tally.unfinished
    elapsed_s = loop.time() - began_s
    is_read = not isinstance(problem, OutputError | BrokenPipeError)
    summary = tally.summary(client.statistics, elapsed_s)
    wait_s = END_WAIT_S if signals else None
    unwritten = await append_report.report(
        summary, tally, arguments, output if is_read else None, wait_s
    )
    problem = problem or unwritten
    left_out = append_report.left_out(tally, arguments)
    code = EXIT_ON_SIGNAL + signals[0] if signals else tally.exit_code
    if isinstance(problem, OutputError | BrokenPipeError):
        unwritten_code = _exit_code_unwritten(problem, tally, left_out)
        return code if signals else unwritten_code
    if _is_broken(problem):
        problem = InputError(f"{problem}; {left_out}")
    elif left_out:
        printing.complain(f"dledger: {tally.end_reason}; {left_out}")
    return code if problem is None else _exit_code_after(problem, code)


def _is_broken(problem: Exception | None) -> bool:
    """Return whether the input could not be read to its end, so its rest was not appended."""
    return isinstance(problem, InputError) and not isinstance(problem, OpenInputError)


def _exit_code_after(problem: Exception, code: int) -> int:
    """Print the problem and return the code of the outcomes; raise it if its own code applies."""
    if isinstance(problem, InputError):
        problem = UsageError(str(problem))
    if code == ExitCode.OK or (code == ExitCode.REFUSED and isinstance(problem, ClientError)):
        raise problem
    printing.complain(f"dledger: {problem}")
    return code


def _exit_code_unwritten(problem: Exception, tally: Tally, left_out: str) -> int:
    """Return the exit code after the output could not be written."""
    console.discard_output()
    what = problem if isinstance(problem, OutputError) else "the reader of the outcomes has gone"
    if left_out or isinstance(problem, OutputError):
        printing.complain(f"dledger: {what}; {left_out}" if left_out else f"dledger: {what}")
        return tally.exit_code or ExitCode.FAILED
    return tally.exit_code


async def _append_once(
    client: DLedgerClient,
    arguments: argparse.Namespace,
    tally: Tally,
    output: streams.Output,
    given: AsyncIterator[bytes],
) -> None:
    """Append the bodies that no earlier run with this producer's name has appended."""
    noun = bodies.noun(arguments)
    with NamedProducer.opened(arguments.producer, client.group, noun) as producer:
        await producer.begin(client, may_register_again=True)
        tally.skipped = producer.skipped
        arguments.in_flight = min(arguments.in_flight, IN_FLIGHT_MAX)
        is_open: OpenInputError | None = None
        try:
            try:
                appending = _Appending(client, arguments, tally, output, producer)
                await appending.run(producer.numbered(given))
            except OpenInputError as error:
                is_open = error
            is_whole = not producer.has_failed and not tally.unfinished and not tally.is_cut_short
            if is_whole and producer.has_read_record:
                try:
                    await producer.complete(client, tally.last_index)
                except ClientError as error:
                    printing.complain(
                        "dledger: everything is acknowledged; the record could not be completed, "
                        f"so the next run will compare the log: {error}"
                    )
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
        output: streams.Output,
        producer: NamedProducer | None = None,
    ) -> None:
        self._client = client
        self._producer = producer
        self._arguments = arguments
        self._tally = tally
        self._output = output
        self._output_error: Exception | None = None
        # The bodies' sizes, for the progress bar, until their outcomes are known.
        self._sizes: deque[int] = deque()

    async def run(self, given: AsyncIterator[bytes]) -> None:
        """Append the bodies. Raises InputError, OutputError or BrokenPipeError.

        If an outcome cannot be written, the group is unreachable or full, or the producer has
        failed, no further body is taken, and the run ends once all bodies that were taken have
        their outcomes.
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
                    tally.add(outcome)
                    size = self._sizes.popleft()
                    bar.update(size if isinstance(outcome, Acknowledged) else 0)
                    if client.leader_id != shown_leader_id:
                        shown_leader_id = client.leader_id
                        bar.set_postfix_str(f"leader {shown_leader_id}", refresh=False)
                    if as_json and self._output_error is None:
                        await self._write(outcome)
                    if self._producer is not None:
                        await self._producer.note(outcome)
                    if self._must_end and not tally.unfinished:
                        break
                # Only the end of the input can follow, unless the input stays open.
                with contextlib.suppress(TimeoutError, StopAsyncIteration):
                    async with asyncio.timeout(END_WAIT_S):
                        await anext(outcomes)
                tally.is_cut_short |= not tally.ended.is_set()
        if self._output_error is not None:
            raise self._output_error

    @property
    def _must_end(self) -> bool:
        """Whether no further body may be appended."""
        has_failed = self._producer is not None and self._producer.has_failed
        is_unwritten = self._output_error is not None
        return self._tally.unreachable or self._tally.is_full or has_failed or is_unwritten

    def _bar(self) -> progress.Bar:
        # A bar would be drawn over what a person types.
        is_typed = bodies.is_terminal(self._arguments)
        wanted = False if self._arguments.quiet or is_typed else None
        if self._arguments.progress is not None:
            wanted = self._arguments.progress
        return progress.bar(wanted, bodies.total_bytes(self._arguments))

    async def _write(self, outcome: Outcome) -> None:
        try:
            await self._output.write(printing.json_bytes(append_report.plain(outcome)))
            if not self._tally.unfinished:  # there may be no later write that reports an error
                await self._output.flush()
        except (OutputError, BrokenPipeError) as error:
            self._output_error = error

    async def _counted(self, given: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Count and yield the bodies, until no further one may be appended."""
        tally = self._tally
        async for body in given:
            if self._must_end:
                tally.is_cut_short = True
                break
            tally.taken += 1
            self._sizes.append(len(body) + 1)
            yield body
        tally.ended.set()
