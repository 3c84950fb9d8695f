"""Completion of member ids: a shell that completes MEMBER asks the group for its members."""

import argparse
import asyncio
from typing import Any, Final

from dledger_client.admin import GroupMembership
from dledger_client.client import DLedgerClient
from dledger_client.cluster.arguments import check_text
from dledger_client.cluster.members import Timing
from dledger_client.commands import profiles
from dledger_client.errors import ClientError

DEADLINE_S: Final = 2.0
"""How long a shell waits for the names."""


def add_argument(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Add the argument MEMBER, which a shell completes."""
    argument = parser.add_argument("member", metavar="MEMBER", type=_member_id, help=help_text)
    argument.completer = _complete  # type: ignore[attr-defined]


def _member_id(text: str) -> str:
    """Check a member id, for argparse. Java groups allow other ids than this project's."""
    try:
        return check_text(text, "the id of a member")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _complete(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    return members(parsed_args)


def members(arguments: argparse.Namespace) -> list[str]:
    """Return the ids of a group's voters, learners and addable members; none after an error."""
    try:
        profiles.resolve(arguments)
        if not arguments.servers or not arguments.group:
            return []
        found = asyncio.run(_membership(arguments))
    except (ClientError, profiles.ProfileError, ValueError):
        return []
    return sorted({*found.voters, *found.learners, *found.addable})


async def _membership(arguments: argparse.Namespace) -> GroupMembership:
    timing = Timing(deadline_s=DEADLINE_S)
    async with DLedgerClient(arguments.servers, arguments.group, timing=timing) as client:
        return await client.membership()
