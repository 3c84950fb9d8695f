"""`dledger health` and `dledger wait`: whether a group serves, as an exit code."""

import argparse
import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from dledger_client.admin import GroupMembership
from dledger_client.client import DLedgerClient
from dledger_client.commands import group_client, notice, options, printing, status
from dledger_client.commands.exits import ExitCode
from dledger_client.errors import ClientError
from dledger_formats.http.status import Role

ATTEMPT_S: Final = 5.0
"""How long `health` looks for a leader."""
PAUSE_S: Final = 0.5
STEP_MIN_S: Final = 0.1
"""How long a step of a check may take that begins when the time is over."""


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger health` and `dledger wait`."""
    health = options.new_parser(
        commands,
        "health",
        summary="check whether the group serves",
        description="Check that the group has a leader that a majority follows, and room for "
        "entries. The leader makes sure of its majority before it says where the log ends, and its "
        "page tells whether volumes are full. Java's leaders do neither, and are believed; so is a "
        "leader whose page does not answer.",
        examples={
            "dledger health": "the group takes appends",
            "dledger health --all-members": "and every voter is up and follows the leader",
            "dledger health --max-lag 1000": "and none lags by more than 1000 entries",
        },
        exit_codes="0 healthy; 1 a member is not healthy, or there is no room; 2 usage error; "
        "4 refused: another group; 5 no leader that a majority follows.",
    )
    wait = options.new_parser(
        commands,
        "wait",
        summary="wait until the group serves",
        description="Repeat the checks of `dledger health` until they succeed.",
        examples={
            "dledger wait": "until the group takes appends, for 30 s at most",
            "dledger wait --all-members --deadline 300": "until every voter is up",
        },
        exit_codes="0 healthy; 1 a member is still not healthy, or there is no room; 2 usage "
        "error; 4 refused: another group; 5 still no leader that a majority follows.",
    )
    for parser, run in ((health, run_health), (wait, run_wait)):
        parser.add_argument(
            "--all-members",
            action="store_true",
            help="require that every voter is up and follows the leader (default: no)",
        )
        parser.add_argument(
            "--max-lag",
            metavar="N",
            type=options.index,
            help="require that every voter is up, and its log ends at most N entries before the "
            "last one that the leader has committed (default: not checked)",
        )
        status.add_page_options(parser)
        options.add_group_options(parser)
        options.add_output_option(parser, "text: a sentence for each problem; json: one line")
        parser.set_defaults(run=run)
    health.set_defaults(deadline=ATTEMPT_S)


@dataclass(slots=True, kw_only=True)
class Health:
    """The result of the checks."""

    leader_id: str | None = None
    term: int = -1
    end_index: int = -1
    """The last entry that the leader has committed."""
    problems: list[str] = field(default_factory=list)
    """What is wrong, one sentence each; empty if the group is healthy."""
    error: ClientError | None = None
    """Why no leader was found."""


async def run_health(arguments: argparse.Namespace) -> int:
    """Check once, print the result and return the exit code."""
    end_s = asyncio.get_running_loop().time() + arguments.deadline
    async with group_client.open_client(arguments) as client:
        found = await check(client, arguments, end_s)
    return _report(found, arguments)


async def run_wait(arguments: argparse.Namespace) -> int:
    """Check until the group is healthy or the time is over; return the exit code."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + arguments.deadline
    last = "no answer yet"
    async with (
        group_client.new_client(arguments) as client,
        notice.shown(client.group, arguments.deadline, lambda: client.trouble or last),
    ):
        while True:
            found = await check(client, arguments, end_s)
            left_s = end_s - loop.time()
            if not found.problems or left_s < PAUSE_S:
                break
            last = "; ".join(found.problems)
            # The last check has some time, so that it does not fail only because it has none.
            await asyncio.sleep(min(PAUSE_S, left_s - PAUSE_S))
    return _report(found, arguments)


async def check(client: DLedgerClient, arguments: argparse.Namespace, end_s: float) -> Health:
    """Find the leader, have it prove that a majority follows it, and check the members.

    All of it ends at `end_s` by the clock of the event loop.
    """
    found = Health()
    try:
        bounds = await client.bounds(deadline_s=_left_s(end_s))
        group = await client.membership(deadline_s=_left_s(end_s))
    except ClientError as error:
        found.error = error
        found.problems.append(str(error))
        return found
    found.leader_id, found.term, found.end_index = group.leader_id, group.term, bounds.end_index
    if arguments.all_members or arguments.max_lag is not None:
        found.problems += await _members_problems(arguments, found, group, end_s)
    else:
        found.problems += await _leader_problems(arguments, group, end_s)
    return found


def _left_s(end_s: float) -> float:
    """Return how much time a step has."""
    return max(STEP_MIN_S, end_s - asyncio.get_running_loop().time())


async def _leader_problems(
    arguments: argparse.Namespace, group: GroupMembership, end_s: float
) -> list[str]:
    """Return why the leader takes no appends, according to its page if that answers."""
    addresses, remarks = status.pages_of(arguments, group.addresses)
    if remarks:  # the address of its page is unknown
        return []
    leader_id = group.leader_id
    named = [each for each in addresses if each.member_id in (None, leader_id)]
    for answer in await status.ask_all(named, arguments.group, _left_s(end_s)):
        page = answer.status
        if page is None or page.self_id != leader_id or page.role is not Role.LEADER:
            continue
        if not page.ready:
            return [f"{leader_id}, the leader, is not ready: {page.reason}"]
        full = [one.peer_id for one in page.followers if one.full and one.peer_id in group.voters]
        if len(group.voters) - len(full) <= len(group.voters) // 2:
            names = ", ".join(full)
            return [f"the volumes of {names} are full, so no majority has room for another entry"]
    return []


async def _members_problems(
    arguments: argparse.Namespace, found: Health, group: GroupMembership, end_s: float
) -> list[str]:
    """Return what is wrong with the voters, according to their own pages."""
    voters = set(group.voters)
    addresses, problems = status.pages_of(arguments, group.addresses)
    if problems:
        return problems
    # A learner need not be healthy: it has no vote.
    named = [each for each in addresses if each.member_id is None or each.member_id in voters]
    answers = await status.ask_all(named, arguments.group, _left_s(end_s))
    pages = {answer.status.self_id: answer.status for answer in answers if answer.status}
    silent = [answer for answer in answers if answer.status is None]
    for answer in silent:
        whose = (
            f"the page of {answer.address.member_id}" if answer.address.member_id else "the page"
        )
        problems.append(f"{whose} at {answer.address}: {answer.problem}")
    if unnamed := voters - pages.keys() - {answer.address.member_id for answer in answers}:
        # A page without an answer whose member --http does not name may belong to one of these.
        may_be_silent = any(answer.address.member_id is None for answer in silent)
        cure = "" if may_be_silent else "; give its address in --http"
        problems.append(f"no page has answered for {', '.join(sorted(unnamed))}{cure}")
    for member_id in sorted(voters & pages.keys()):
        page = pages[member_id]
        lag = found.end_index - page.ledger_end_index
        if page.leader_id != found.leader_id and page.role is Role.LEADER:
            problems.append(f"{member_id} says that it leads term {page.term} itself")
        elif page.leader_id != found.leader_id:
            why = "" if page.ready or not page.reason else f": {page.reason}"
            problems.append(f"{member_id} follows {page.leader_id or 'no leader'}{why}")
        elif not page.ready:
            problems.append(f"{member_id} is not ready: {page.reason}")
        if arguments.max_lag is not None and lag > arguments.max_lag:
            problems.append(f"{member_id} lags by {lag} entries")
    return problems


def _report(found: Health, arguments: argparse.Namespace) -> int:
    if arguments.output == "json":
        plain: dict[str, Any] = {"healthy": not found.problems, "leader": found.leader_id}
        printing.write_json(plain | {"term": found.term, "problems": found.problems})
    elif not found.problems:
        term = f" of term {found.term}" if found.term >= 0 else ""
        printing.write_line(f"healthy: {found.leader_id} is the leader{term}")
    if found.error is not None:
        raise found.error
    for problem in found.problems if arguments.output != "json" else ():
        printing.complain(f"dledger: {problem}")
    return ExitCode.FAILED if found.problems else ExitCode.OK
