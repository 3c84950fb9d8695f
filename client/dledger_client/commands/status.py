"""`dledger status`: print the status of each member, fetched over HTTP."""

import argparse
import asyncio
import json
import os
from dataclasses import dataclass
from typing import Any, Final

from dledger_client.cluster.addresses import ServerAddress, parse_servers
from dledger_client.cluster.pages import PageError, get_page
from dledger_client.commands import common
from dledger_client.commands.common import ExitCode, UsageError
from dledger_client.errors import AddressError
from dledger_formats.http.status import MembershipRole, NodeStatus, Role
from dledger_formats.json_objects import FormatError
from dledger_formats.settings import HTTP_PORT

TIMEOUT_S: Final = 2.0


def add_parser(commands: common.Commands) -> None:
    """Define the arguments of `dledger status`."""
    parser = common.new_parser(
        commands,
        "status",
        summary="print the status of each member",
        description="Fetch /status from the addresses in --http or, without it, from --http-port "
        "of every member that METADATA names, and print the results side by side.",
        examples={
            "dledger status": "all members that METADATA names, on the default HTTP port",
            "dledger status --http n0:40912,n1:40912": "these two members",
        },
        exit_codes="0 at least one member answered, 2 usage error, 5 no member answered.",
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT,…",
        default=os.environ.get(common.HTTP_VARIABLE),
        help=f"HTTP addresses of the members (default: ${common.HTTP_VARIABLE})",
    )
    parser.add_argument(
        "--http-port",
        metavar="PORT",
        type=common.positive_int,
        default=HTTP_PORT,
        help="HTTP port of the members that METADATA names (default: %(default)s)",
    )
    common.add_group_options(parser)
    common.add_output_option(parser, "text: a table; json: one line with the members' responses")
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result for one address: a status, or a problem."""

    address: ServerAddress
    status: NodeStatus | None = None
    raw: dict[str, Any] | None = None
    problem: str = ""


async def run(arguments: argparse.Namespace) -> int:
    """Fetch and print the status of each member, and return the exit code."""
    addresses = await _addresses(arguments)
    answers = await asyncio.gather(*(_ask(address) for address in addresses))
    if arguments.output == "json":
        common.write_json([_plain(answer) for answer in answers])
    else:
        common.write_table(_rows(answers))
    return ExitCode.OK if any(answer.status for answer in answers) else ExitCode.UNREACHABLE


async def _addresses(arguments: argparse.Namespace) -> list[ServerAddress]:
    try:
        if arguments.http:
            return parse_servers([arguments.http])
        async with common.open_client(arguments) as client:
            metadata = await client.metadata()
        peers = parse_servers([f"{key}={value}" for key, value in sorted(metadata.peers.items())])
    except AddressError as error:
        raise UsageError(str(error)) from error
    port = arguments.http_port
    return [ServerAddress(host=peer.host, port=port, member_id=peer.member_id) for peer in peers]


async def _ask(address: ServerAddress) -> Answer:
    try:
        body = await get_page(address, "/status", TIMEOUT_S)
        return Answer(address=address, status=NodeStatus.from_json(body), raw=json.loads(body))
    except (PageError, FormatError) as error:
        return Answer(address=address, problem=str(error))


def _plain(answer: Answer) -> dict[str, Any]:
    plain: dict[str, Any] = {"address": str(answer.address)}
    return plain | (answer.raw if answer.raw is not None else {"problem": answer.problem})


def _role(status: NodeStatus) -> str:
    if status.master:
        return "master"
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
            rows.append([name, *["-"] * 7, f"{answer.address}: {answer.problem}"])
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
                "yes" if status.ready else f"no: {status.reason}",
                str(answer.address),
            ]
        )
    return rows
