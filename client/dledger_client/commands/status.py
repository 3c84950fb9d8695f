"""`dledger status`: print the status of each member, fetched over HTTP."""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dledger_client.cluster.addresses import ServerAddress, parse_servers
from dledger_client.cluster.pages import PageError, get_page
from dledger_client.commands import group_client, options, printing
from dledger_client.commands.exits import ExitCode, UsageError
from dledger_client.commands.profiles import HTTP_VARIABLE
from dledger_client.errors import AddressError, ClientError
from dledger_formats import console
from dledger_formats.http.status import MembershipRole, NodeStatus, Role
from dledger_formats.json_objects import FormatError
from dledger_formats.settings import HTTP_PORT
from dledger_formats.status_line import can_be_overwritten

TIMEOUT_S: Final = 2.0
WATCH_S: Final = 2.0
CLEAR: Final = "\x1b[H\x1b[2J"
"""Clears a terminal."""


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger status`."""
    parser = options.new_parser(
        commands,
        "status",
        summary="print the status of each member",
        description="Fetch /status from the addresses in --http or, without it, from --http-port "
        "of every member that METADATA names, and print the results side by side.",
        examples={
            "dledger status": "all members that METADATA names, on the default HTTP port",
            "dledger status --http n0:40912,n1:40912": "these two members",
            "dledger status --watch": "again every two seconds",
        },
        exit_codes="0 at least one member answered; 2 usage error; 4 those that answered belong to "
        "another group; 5 no member answered.",
    )
    add_page_options(parser)
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        type=options.seconds,
        nargs="?",
        const=WATCH_S,
        help="print again every SECONDS, until Ctrl-C, also while the group is away (default: "
        f"once; {WATCH_S:g} s if no time is given)",
    )
    options.add_group_options(parser)
    options.add_output_option(parser, "text: a table; json: one line with the members' responses")
    parser.set_defaults(run=run)


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the members' pages are."""
    pages = parser.add_mutually_exclusive_group()
    pages.add_argument(
        "--http",
        metavar="HOST:PORT,...",
        type=options.addresses,
        help=f"HTTP addresses of the members (default: those of the profile, or ${HTTP_VARIABLE}, "
        "unless --http-port is given)",
    )
    pages.add_argument(
        "--http-port",
        metavar="PORT",
        type=options.port,
        help=f"HTTP port of the members that METADATA names (default: {HTTP_PORT})",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result for one address: a status, or a problem."""

    address: ServerAddress
    status: NodeStatus | None = None
    raw: dict[str, Any] | None = None
    problem: str = ""
    is_other_group: bool = False


async def run(arguments: argparse.Namespace) -> int:
    """Print the status of each member, once or until Ctrl-C, and return the exit code."""
    while arguments.watch is not None:
        try:
            remarks, answers = await _fetch(arguments)
        except ClientError as error:
            if not error.retriable:
                raise
            _begin_screen(arguments)
            printing.complain(f"dledger: {error}")  # the group may be back soon
        else:
            _begin_screen(arguments)
            _print(remarks, answers, arguments)
        console.flush()
        if console.is_unread():
            return ExitCode.OK
        await asyncio.sleep(arguments.watch)
    remarks, answers = await _fetch(arguments)
    _print(remarks, answers, arguments)
    if any(answer.status for answer in answers):
        return ExitCode.OK
    is_other = any(answer.is_other_group for answer in answers)
    return ExitCode.REFUSED if is_other else ExitCode.UNREACHABLE


def _begin_screen(arguments: argparse.Namespace) -> None:
    """Replace what is on a terminal by the time, once it is known what else to show."""
    if sys.stdout.isatty() and arguments.output != "json":
        clear = CLEAR if can_be_overwritten(sys.stdout) else ""
        printing.write_line(clear + time.strftime("%H:%M:%S"))


async def _fetch(arguments: argparse.Namespace) -> tuple[list[str], list[Answer]]:
    """Fetch the status of each member; also return remarks on their addresses."""
    addresses, remarks = await page_addresses(arguments)
    return remarks, await ask_all(addresses, arguments.group)


def _print(remarks: list[str], answers: list[Answer], arguments: argparse.Namespace) -> None:
    for remark in remarks:
        printing.complain(f"dledger: {remark}")
    if arguments.output == "json":
        printing.write_json([_plain(answer) for answer in answers])
        return
    printing.write_table(_rows(answers))
    for line in _remarks(answers):
        printing.write_line(line)


async def ask_all(
    addresses: list[ServerAddress], group: str | None, timeout_s: float = TIMEOUT_S
) -> list[Answer]:
    """Fetch the status of each member; one of another group or member counts as a problem.

    No request takes longer than `timeout_s`, nor than TIMEOUT_S.
    """
    timeout_s = min(timeout_s, TIMEOUT_S)
    return await asyncio.gather(*(_ask(address, group, timeout_s) for address in addresses))


async def page_addresses(arguments: argparse.Namespace) -> tuple[list[ServerAddress], list[str]]:
    """Return the result of `pages_of` for the members that METADATA names."""
    peers: Mapping[str, str] = {}
    if not arguments.http:
        async with group_client.open_client(arguments) as client:
            peers = (await client.metadata()).peers
    return pages_of(arguments, peers)


def pages_of(
    arguments: argparse.Namespace, peers: Mapping[str, str]
) -> tuple[list[ServerAddress], list[str]]:
    """Return where the members' pages are, and a remark for members that would share a page.

    `peers` has HOST:PORT of each member. Raises UsageError for an invalid address.
    """
    try:
        if arguments.http:
            return parse_servers([arguments.http]), []
        members = parse_servers([f"{key}={value}" for key, value in sorted(peers.items())])
    except AddressError as error:
        raise UsageError(str(error)) from error
    port, remarks = arguments.http_port or HTTP_PORT, []
    for shared, count in Counter(member.host for member in members).items():
        if count > 1:
            ids = ", ".join(str(one.member_id) for one in members if one.host == shared)
            remarks.append(
                f"{ids} would all have their pages at {ServerAddress(host=shared, port=port)}; "
                f"name the page of each with --http HOST:PORT,... or {HTTP_VARIABLE}"
            )
    pages = [ServerAddress(host=one.host, port=port, member_id=one.member_id) for one in members]
    return pages, remarks


async def _ask(address: ServerAddress, group: str | None, timeout_s: float) -> Answer:
    try:
        body = await get_page(address, "/status", timeout_s)
        status = NodeStatus.from_json(body)
    except (PageError, FormatError) as error:
        return Answer(address=address, problem=str(error))
    if group and status.group != group:
        problem = f"this is a member of group {status.group}, not {group}"
        return Answer(address=address, problem=problem, is_other_group=True)
    if address.member_id not in (None, status.self_id):
        problem = f"this is the page of {status.self_id}; give the members' pages with --http"
        return Answer(address=address, problem=problem)
    return Answer(address=address, status=status, raw=json.loads(body))


def _plain(answer: Answer) -> dict[str, Any]:
    plain: dict[str, Any] = {"address": str(answer.address)}
    return plain | (answer.raw if answer.raw is not None else {"problem": answer.problem})


def _role(status: NodeStatus) -> str:
    match status.membership:
        case MembershipRole.VOTER:
            return status.role.value.lower()
        case MembershipRole.LEARNER:
            return "learner"
        case MembershipRole.NONE:
            return "non-member"


def _rows(answers: list[Answer]) -> list[list[str]]:
    """Build the rows of the table; the lag is relative to the end of the leader's log."""
    leaders = [a.status for a in answers if a.status and a.status.role is Role.LEADER]
    leader = max(leaders, key=lambda status: status.term, default=None)
    rows = [["MEMBER", "ROLE", "TERM", "LEADER", "END", "COMMITTED", "LAG", "READY", "ADDRESS"]]
    for answer in answers:
        status = answer.status
        if status is None:
            name = answer.address.member_id or "-"
            rows.append([name, *["-"] * 7, str(answer.address)])
            continue
        lag = "-" if leader is None else str(leader.ledger_end_index - status.ledger_end_index)
        rows.append(
            [
                status.self_id,
                _role(status),
                str(status.term),
                status.leader_id or "-",
                str(status.ledger_end_index),
                str(status.committed_index),
                lag,
                "yes" if status.ready else "no",
                str(answer.address),
            ]
        )
    return rows


def _remarks(answers: list[Answer]) -> list[str]:
    """Return a line for each member without a status, and for each that is not ready."""
    lines = []
    for answer in answers:
        if answer.status is None:
            lines.append(f"{answer.address.member_id or answer.address}: {answer.problem}")
        elif not answer.status.ready:
            lines.append(f"{answer.status.self_id} is not ready: {answer.status.reason}")
    return lines
