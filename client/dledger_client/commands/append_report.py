"""What `dledger append` writes about its outcomes: each as JSON, and the summary."""

import argparse
import asyncio
import time
from typing import Any

import msgspec

from dledger_client.append.outcomes import Outcome, Refused
from dledger_client.commands import bodies, printing, streams
from dledger_client.commands.exits import ExitCode
from dledger_client.commands.tally import Tally
from dledger_formats import console
from dledger_formats.console import OutputError, ReaderGoneError


def plain(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome with the current time, for JSON."""
    fields = msgspec.structs.asdict(outcome)
    number = fields.pop("number")
    if isinstance(outcome, Refused):
        fields["code"] = outcome.code.value
    kind = type(outcome).__name__.lower()
    return {"number": number, "outcome": kind, "time": round(time.time(), 4), **fields}


async def report(
    summary: dict[str, Any],
    tally: Tally,
    arguments: argparse.Namespace,
    output: streams.Output | None,
    reader_wait_s: float | None,
) -> Exception | None:
    """Write the summary: as JSON to the output if it has a reader, else to standard error.

    If standard output does not take the summary, or not within `reader_wait_s`, the summary goes to
    standard error, so that users do not append the bodies again. Returns the error of standard
    output, if any.
    """
    as_json = arguments.output == "json"
    single = f"appended entry {tally.first_index}" if tally.taken == tally.acknowledged == 1 else ""
    is_success = tally.exit_code is ExitCode.OK and not tally.is_cut_short
    if arguments.quiet and is_success and not (as_json and output):
        return None
    problem: Exception | None = None
    try:
        if as_json and output:
            async with asyncio.timeout(reader_wait_s):
                await output.write(printing.json_bytes({"summary": summary}))
                await output.flush()
            return None
        if single and not as_json:
            printing.write_line(single)
            console.flush()
            if not console.is_unread():
                return None
            problem = ReaderGoneError()
    except (OutputError, BrokenPipeError) as error:
        problem = error
    except TimeoutError:
        pass
    if single:
        printing.complain(f"dledger: {single}")
        return problem
    hint = "" if arguments.idempotent else " With --idempotent, each entry is in the log once."
    refused_hint = ""
    if arguments.producer is not None:
        hint = refused_hint = " Run the command again: it continues where it ended."
        hint = tally.remedy or hint
    if tally.taken == 1 and tally.reasons:
        # An earlier run appended the lines before: the number says which one is the only one left.
        what = f"{bodies.noun(arguments)} {tally.skipped + 1}" if tally.skipped else "the entry"
        outcome = "may be in the log" if tally.unknown else "was not appended"
        reason = next(iter(tally.reasons))
        end = f".{hint.removesuffix('.')}" if tally.unknown and hint else ""
        printing.complain(f"dledger: {what} {outcome}: {reason}{end}")
        return problem
    for line in tally.lines(summary, bodies.noun(arguments), hint, refused_hint):
        printing.complain(line)
    return problem


def left_out(tally: Tally, arguments: argparse.Namespace) -> str:
    """Return a text on the rest of an input that was cut short; empty if all of it was taken.

    A refused body belongs to the rest unless a later one is in the log or may be: the summary then
    names it.
    """
    if not tally.is_cut_short:
        return ""
    count = tally.end_number
    if not count:
        return "nothing was appended"
    noun = bodies.noun(arguments)
    counted = ", counted over all files" if noun == "line" and len(arguments.files) > 1 else ""
    return f"the rest of the input was not appended: what follows {noun} {count}{counted}"
