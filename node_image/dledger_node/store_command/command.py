"""The command line `dledger-node store {verify,dump,repair-tail,adopt} FOLDER`."""

import argparse
import enum
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dledger_formats import console
from dledger_formats.command_lines import Parser
from dledger_formats.log import disk
from dledger_formats.peers import PeersError, parse_peers
from dledger_formats.settings import HTTP_PORT
from dledger_node.errors import StoreError
from dledger_node.store.log.entry_walk import Cursor
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.formats import check_formats
from dledger_node.store_command import adopt, output
from dledger_node.store_command.log_folder import LogFolder, list_folder
from dledger_node.store_command.report import Report, Verdict
from dledger_node.store_command.verify import lock_holder, verify
from dledger_node.store_command.walk import Batch, LogWalk, Stop, first_cursor, resume_after

INDEX_SEGMENT_BYTES: Final = 32 * 5 * 1024 * 1024  # DLedger's default, used without index files
_INDEX: Final = re.compile(r"[0-9]{1,19}")


class ExitCode(enum.IntEnum):
    """The exit codes of the command."""

    OK = 0
    FAILED = 1
    """The folder cannot be read or is in use, or the output cannot be written."""
    USAGE = 2
    REPAIRABLE = 3
    DAMAGED = 4


_OF_VERDICT: Final = {
    Verdict.SOUND: ExitCode.OK,
    Verdict.REPAIRABLE: ExitCode.REPAIRABLE,
    Verdict.DAMAGED: ExitCode.DAMAGED,
}
_EPILOG: Final = (
    "Exit codes: 0 sound or done; 1 the folder cannot be read or is in use, has no such entry, or "
    "the output cannot be written; 2 usage error, or no member's folder; 3 repairable: a node "
    "repairs it when it starts (torn tail, index units); 4 damaged entries or term; "
    "130 ended by Ctrl-C."
)
_ADOPT_EPILOG: Final = (
    "Exit codes: 0 adopted; 1 nothing was changed: without --yes, or because it is refused or the "
    "folder cannot be read; 2 usage error, or no member's folder; 4 damaged; 130 ended by Ctrl-C."
)


def parser() -> Parser:
    """Build the parser of the arguments after `dledger-node store`."""
    top = Parser(
        prog="dledger-node store",
        description="Inspect a member's folder, written by dledger-node or Java DLedger. "
        "Changes nothing without --yes.",
        epilog=_EPILOG,
    )
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    check = commands.add_parser(
        "verify",
        help="check the store and describe its content",
        description="Check every record of the store, and describe its content.",
        epilog=_EPILOG,
    )
    check.set_defaults(run=_verify)
    dump = commands.add_parser(
        "dump", help="print the entries", description="Print the entries.", epilog=_EPILOG
    )
    dump.add_argument(
        "--first",
        type=_index,
        metavar="N",
        help="first index to print (default: the first of the log)",
    )
    dump.add_argument(
        "--last",
        type=_index,
        metavar="M",
        help="last index to print (default: the last of the log)",
    )
    dump.add_argument("--bodies", action="store_true", help="print whole bodies (default: no)")
    dump.set_defaults(run=_dump, parser=dump)
    cut = commands.add_parser(
        "repair-tail",
        help="cut the torn tail that a crash left",
        description="Repair the store as a node does when it starts: cut a torn tail and rewrite "
        "wrong index units. Refuses other damage, and a store that a process has open.",
        epilog=_EPILOG,
    )
    cut.add_argument(
        "--yes", action="store_true", help="repair (default: only report what would be repaired)"
    )
    cut.set_defaults(run=_repair_tail)
    for command in (check, dump, cut, _add_adopt(commands)):
        command.add_argument("folder", type=Path, metavar="FOLDER", help=".../dledger-MEMBER")
        command.add_argument(
            "-o",
            "--output",
            choices=["text", "json"],
            default="text",
            help="output format; json writes one object per line (default: %(default)s)",
        )
    return top


def _add_adopt(commands: "argparse._SubParsersAction[Parser]") -> Parser:
    survivor = commands.add_parser(
        "adopt",
        help="make a group of this one survivor, after the majority was lost for good",
        description="Make this member the only voter of a group with an identity of its own. Says "
        "what may be lost. Refuses while another member of the group answers, and a folder that is "
        "damaged or in use.",
        epilog=_ADOPT_EPILOG,
    )
    survivor.add_argument(
        "--peers",
        type=_peers,
        required=True,
        metavar="ID-HOST:PORT;...",
        help="all members of the group with their addresses, this one too, as in DLEDGER_PEERS",
    )
    survivor.add_argument(
        "--http-peers",
        type=_peers,
        default={},
        metavar="ID-HOST:PORT;...",
        help=f"where members serve HTTP (default: on port {HTTP_PORT} of their host)",
    )
    survivor.add_argument(
        "--group", default="", help="name of the group (default: the one that its folder says)"
    )
    survivor.add_argument(
        "--yes", action="store_true", help="adopt (default: only report what would be lost)"
    )
    survivor.set_defaults(run=_adopt)
    return survivor


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. Raises OutputError."""
    options = parser().parse_args(arguments)
    first, last = getattr(options, "first", None), getattr(options, "last", None)
    if first is not None and last is not None and first > last:
        options.parser.error(f"--first {first} is above --last {last}")
    try:
        return int(_run(options))
    except PermissionError as error:
        output.complain(
            f"{_named(error)}; run this as a user who may read the folder, such as its owner"
        )
    except OSError as error:
        output.complain(_named(error))
    except StoreError as error:
        output.complain(str(error))
    return ExitCode.FAILED


def _run(options: argparse.Namespace) -> ExitCode:
    if not (options.folder / disk.DATA_FOLDER).is_dir():
        if not options.folder.exists():
            output.complain(f"{options.folder} does not exist")
            return ExitCode.FAILED
        output.complain(
            f"{options.folder} is not a member's folder: it has no {disk.DATA_FOLDER}/. Pass the "
            "folder below store_base_dir, for example dledger-n0"
        )
        return ExitCode.USAGE
    check_formats(options.folder)
    return ExitCode(options.run(options))


def _named(error: OSError) -> str:
    """Return the file of an error, and what is wrong with it."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def _verify(options: argparse.Namespace) -> ExitCode:
    report = output.with_progress("verify", lambda advance: verify(options.folder, advance))
    output.write_report(report, as_json=options.output == "json")
    return _OF_VERDICT[report.verdict]


def _dump(options: argparse.Namespace) -> ExitCode:
    as_json = options.output == "json"
    data = list_folder(options.folder / disk.DATA_FOLDER)
    index = list_folder(options.folder / disk.INDEX_FOLDER)
    code = ExitCode.OK
    begin, end, has_entries = -1, -1, False
    for found in _batches(data, index, options.first or 0):
        if console.is_unread():
            return code
        if isinstance(found, Stop):
            if found.index < 0 or options.last is None or found.index <= options.last:
                problem = " ".join((found.reason or "zeros", found.detail)).strip()
                output.complain(f"cannot read from entry {found.index} on: {problem}")
                code = ExitCode.DAMAGED
            continue
        begin = found.first_index if begin < 0 else begin
        if options.last is not None and found.first_index > options.last:
            break
        end = found.last_index
        if end >= (options.first or 0):
            if not (as_json or has_entries):
                output.write_entry_titles()
            has_entries = True
            _dump_batch(found, options)
    if has_entries or code is not ExitCode.OK:
        return code
    if options.first is options.last is None:
        if not as_json:
            output.write_entry_titles()
        return code
    output.complain(_no_entry(options, begin, end))
    return ExitCode.FAILED


def _no_entry(options: argparse.Namespace, begin: int, end: int) -> str:
    """Return the message about an entry that the log lacks; `begin` or `end` of -1 means none."""
    if options.last is not None and begin > options.last:
        return f"the log has no entry {options.last}: it begins with entry {begin}"
    where = "is empty" if end < 0 else f"ends with entry {end}"
    asked = options.last if options.first is None else options.first
    return f"the log has no entry {asked}: it {where}"


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
    """Yield the sound entries from first_index on, and a Stop wherever some are missing."""
    cursor: Cursor | Stop | None = first_cursor(data)
    if isinstance(cursor, Cursor) and cursor.index < first_index:
        # The index leads to the entry; without it, read all entries before it.
        cursor = resume_after(data, index, Stop(cursor.pos, first_index - 1, "", "")) or cursor
    while cursor is not None:
        if isinstance(cursor, Stop):
            stop = cursor
        else:
            walk = LogWalk(data, cursor)
            yield from walk
            stop = walk.stop
        cursor = resume_after(data, index, stop)
        if stop.reason or cursor is not None:
            yield stop


def _repair_tail(options: argparse.Namespace) -> ExitCode:
    as_json = options.output == "json"
    holder = lock_holder(options.folder)
    if holder is not None:
        output.complain(f"{options.folder} is in use by process {holder}; stop that process first")
        return ExitCode.FAILED
    report = output.with_progress("verify", lambda advance: verify(options.folder, advance))
    if report.verdict is not Verdict.REPAIRABLE or not options.yes or not report.data.segments:
        output.write_report(report, as_json=as_json)
        if report.verdict is Verdict.DAMAGED:
            output.complain("nothing was changed: there is damage that this command cannot repair")
        elif not options.yes and report.verdict is Verdict.REPAIRABLE:
            output.complain("nothing was changed: pass --yes to repair")
        return _OF_VERDICT[report.verdict]
    _open_and_close(report)
    repaired = output.with_progress("verify", lambda advance: verify(options.folder, advance))
    output.write_report(repaired, as_json=as_json)
    output.complain(f"cut {report.tail_bytes} bytes after entry {report.end_index}")
    return _OF_VERDICT[repaired.verdict]


def _adopt(options: argparse.Namespace) -> ExitCode:
    report = output.with_progress("verify", lambda advance: verify(options.folder, advance))
    try:
        adoption = adopt.check(report, group=options.group, peers=options.peers)
        hosts = {one: address.rpartition(":")[0] for one, address in adoption.others.items()}
        pages = {one: f"{host}:{HTTP_PORT}" for one, host in hosts.items()} | options.http_peers
        adopt.ask(adoption, pages)
    except adopt.AdoptionRefusedError as refused:
        output.complain(f"nothing was changed: {refused}")
        damaged = report.verdict is Verdict.DAMAGED
        return ExitCode.DAMAGED if damaged else ExitCode.FAILED
    as_json = options.output == "json"
    for sentence in () if as_json else adoption.describe():
        output.line(sentence)
    if not options.yes:
        output.complain("nothing was changed: pass --yes if the other members are lost for good")
        return ExitCode.FAILED
    owner = adopt.adopt(adoption)
    if as_json:
        output.json_line({"group": owner.group, "identity": owner.identity})
    else:
        output.line(
            f"{adoption.self_id} is the only voter of a new group {owner.group}. Start it and all "
            f"members that you add with DLEDGER_GROUP_IDENTITY={owner.identity}"
        )
    return ExitCode.OK


def _open_and_close(report: Report) -> None:
    """Repair the store with the node's own recovery, which also takes the lock."""
    LogStore.open(
        report.folder,
        segment_size_bytes=report.data.segment_size,
        index_segment_size_bytes=report.index.segment_size or INDEX_SEGMENT_BYTES,
    ).close()


def _index(text: str) -> int:
    """Parse an index, for argparse."""
    if not _INDEX.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no index: use the number of an entry, from 0 on"
        )
    return int(text)


def _peers(text: str) -> dict[str, str]:
    """Parse a list of members, for argparse."""
    try:
        return parse_peers(text)
    except PeersError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
