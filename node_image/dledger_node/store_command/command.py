"""The command line `dledger-node store {verify,dump,repair-tail} FOLDER`."""

import argparse
import enum
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dledger_formats.log import disk
from dledger_node.errors import StoreError
from dledger_node.store.log.log_store import LogStore
from dledger_node.store_command import output
from dledger_node.store_command.log_folder import LogFolder, list_folder
from dledger_node.store_command.verify import Report, Verdict, lock_holder, verify
from dledger_node.store_command.walk import Batch, Cursor, LogWalk, Stop, beginning, go_on

INDEX_SEGMENT_BYTES: Final = 32 * 5 * 1024 * 1024  # DLedger's, where no index file shows another


class ExitCode(enum.IntEnum):
    """What the command says to the shell."""

    OK = 0
    FAILED = 1
    """The folder could not be read, or is in use."""
    USAGE = 2
    REPAIRABLE = 3
    DAMAGED = 4


_OF_VERDICT: Final = {
    Verdict.SOUND: ExitCode.OK,
    Verdict.REPAIRABLE: ExitCode.REPAIRABLE,
    Verdict.DAMAGED: ExitCode.DAMAGED,
}
_EPILOG: Final = (
    "Exit codes: 0 sound or done, 1 the folder cannot be read or is in use, 2 usage, 3 a node that "
    "starts would mend it (a torn tail, index units), 4 entries or the term are damaged."
)


def parser() -> argparse.ArgumentParser:
    """Make the parser of what follows `dledger-node store`."""
    top = argparse.ArgumentParser(
        prog="dledger-node store",
        description="Look at a member's folder, Java's too. Nothing is changed without --yes.",
        epilog=_EPILOG,
    )
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    check = commands.add_parser("verify", help="what is there, and is it sound", epilog=_EPILOG)
    check.set_defaults(run=_verify)
    dump = commands.add_parser("dump", help="print the entries", epilog=_EPILOG)
    dump.add_argument("--first", type=_index, metavar="N", help="the first index to print")
    dump.add_argument("--last", type=_index, metavar="M", help="the last index to print")
    dump.add_argument("--bodies", action="store_true", help="print bodies whole")
    dump.set_defaults(run=_dump)
    cut = commands.add_parser(
        "repair-tail",
        help="cut what a crash left behind the last sound entry",
        description="Do what a node does when it starts: cut a torn tail, write wrong index units "
        "anew. Refused when anything else is wrong, and while a process has the store open.",
        epilog=_EPILOG,
    )
    cut.add_argument("--yes", action="store_true", help="do it; without, only say what would be")
    cut.set_defaults(run=_repair_tail)
    for command in (check, dump, cut):
        command.add_argument("folder", type=Path, metavar="FOLDER", help="…/dledger-MEMBER")
        command.add_argument(
            "-o", "--output", choices=["text", "json"], default="text", help="json: one line each"
        )
    return top


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    options = parser().parse_args(arguments)
    if not (options.folder / disk.DATA_FOLDER).is_dir():
        output.complain(
            f"{options.folder} is no member's folder: it has no {disk.DATA_FOLDER}/. Name the one "
            "below store_base_dir, for example dledger-n0"
        )
        return ExitCode.USAGE
    try:
        code = int(options.run(options))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does; what is buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except (OSError, StoreError) as error:
        output.complain(str(error))
        return ExitCode.FAILED
    return code


def _verify(options: argparse.Namespace) -> ExitCode:
    report = output.with_progress("verify", lambda advance: verify(options.folder, advance))
    output.write_report(report, as_json=options.output == "json")
    return _OF_VERDICT[report.verdict]


def _dump(options: argparse.Namespace) -> ExitCode:
    as_json = options.output == "json"
    data = list_folder(options.folder / disk.DATA_FOLDER)
    index = list_folder(options.folder / disk.INDEX_FOLDER)
    if not as_json:
        output.write_entry_titles()
    code = ExitCode.OK
    for found in _batches(data, index, options.first or 0):
        if isinstance(found, Stop):
            if found.index < 0 or options.last is None or found.index <= options.last:
                why = " ".join((found.reason or "zeros", found.detail)).strip()
                output.complain(f"from entry {found.index} on: {why}")
                code = ExitCode.DAMAGED
            continue
        if options.last is not None and found.first_index > options.last:
            break
        _dump_batch(found, options)
    return code


def _dump_batch(batch: Batch, options: argparse.Namespace) -> None:
    at = 0
    while at < len(batch.data):
        header = disk.unpack_header(batch.data, at)
        body = bytes(batch.data[at + disk.ENTRY_HEADER_SIZE : at + header.size])
        at += header.size
        if header.index < (options.first or 0):
            continue
        if options.last is not None and header.index > options.last:
            return
        as_json = options.output == "json"
        output.write_entry(header, body, as_json=as_json, whole_body=options.bodies)


def _batches(data: LogFolder, index: LogFolder, first_index: int) -> Iterator[Batch | Stop]:
    """Sound entries from this one on, and a Stop at each place where there should be more."""
    cursor: Cursor | Stop | None = beginning(data)
    if isinstance(cursor, Cursor) and cursor.index < first_index:
        # The index leads there; without its help everything before is read.
        cursor = go_on(data, index, Stop(cursor.pos, first_index - 1, "", "")) or cursor
    while cursor is not None:
        if isinstance(cursor, Stop):
            stop = cursor
        else:
            walk = LogWalk(data, cursor)
            yield from walk
            stop = walk.stop
        cursor = go_on(data, index, stop)
        if stop.reason or cursor is not None:
            yield stop


def _repair_tail(options: argparse.Namespace) -> ExitCode:
    as_json = options.output == "json"
    holder = lock_holder(options.folder)
    if holder is not None:
        output.complain(f"{options.folder} is in use by process {holder}; stop that one first")
        return ExitCode.FAILED
    report = output.with_progress("verify", lambda advance: verify(options.folder, advance))
    if report.verdict is not Verdict.REPAIRABLE or not options.yes or not report.data.segments:
        output.write_report(report, as_json=as_json)
        if report.verdict is Verdict.DAMAGED:
            output.complain("nothing was changed: more is wrong than a torn tail")
        elif not options.yes and report.verdict is Verdict.REPAIRABLE:
            output.complain("nothing was changed: --yes does it")
        return _OF_VERDICT[report.verdict]
    _open_and_close(report)
    repaired = output.with_progress("verify", lambda advance: verify(options.folder, advance))
    output.write_report(repaired, as_json=as_json)
    output.complain(f"{report.tail_bytes} bytes behind entry {report.end_index} were cut")
    return _OF_VERDICT[repaired.verdict]


def _open_and_close(report: Report) -> None:
    """Let the node's own recovery do it, so that there is one way; it takes the lock."""
    LogStore.open(
        report.folder,
        segment_size_bytes=report.data.segment_size,
        index_segment_size_bytes=report.index.segment_size or INDEX_SEGMENT_BYTES,
    ).close()


def _index(text: str) -> int:
    """Read an index, for argparse."""
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number
