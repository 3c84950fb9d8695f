"""The client that a command's options select."""

import argparse
import contextlib
from collections.abc import AsyncIterator

from dledger_client.calls.member_reads import ReadFrom
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.commands import notice
from dledger_client.commands.exits import UsageError
from dledger_client.commands.profiles import GROUP_VARIABLE, SERVERS_VARIABLE
from dledger_formats.protocol.requests import Consistency


@contextlib.asynccontextmanager
async def open_client(
    arguments: argparse.Namespace,
    *,
    at_least_once: bool = False,
    idempotent: bool = False,
    admin_token: str = "",
) -> AsyncIterator[DLedgerClient]:
    """Open a client for the group options, with a notice while the group cannot be used.

    Raises UsageError if the options do not select a group.
    """
    opened = new_client(
        arguments,
        at_least_once=at_least_once,
        idempotent=idempotent,
        admin_token=admin_token,
    )
    async with opened as client:
        deadline_s: float = arguments.deadline
        async with notice.shown(client.group, deadline_s, lambda: client.trouble):
            yield client


def new_client(
    arguments: argparse.Namespace,
    *,
    at_least_once: bool = False,
    idempotent: bool = False,
    admin_token: str = "",
) -> DLedgerClient:
    """Create the client for the group options. Raises UsageError if they do not select a group."""
    _require_group(arguments)
    try:
        return DLedgerClient(
            [arguments.servers],
            arguments.group,
            follow_leader=not arguments.no_follow,
            at_least_once=at_least_once,
            idempotent=idempotent,
            read_from=getattr(arguments, "read_from", ReadFrom.LEADER.value),
            consistency=getattr(arguments, "consistency", Consistency.LINEARIZABLE.value),
            timing=Timing(deadline_s=arguments.deadline),
            admin_token=admin_token,
        )
    except ValueError as error:  # AddressError is one
        raise UsageError(str(error)) from error


def _require_group(arguments: argparse.Namespace) -> None:
    """Raise UsageError if the servers, the name of the group, or both are missing."""
    if not arguments.servers and not arguments.group:
        raise UsageError(
            f"no group given: use --servers and --group, set {SERVERS_VARIABLE} and "
            f"{GROUP_VARIABLE}, or name a --profile that has both"
        )
    if not arguments.servers:
        raise UsageError(
            f"no servers given: use --servers, set {SERVERS_VARIABLE}, or name a --profile that "
            "has them"
        )
    if not arguments.group:
        raise UsageError(
            f"no name of the group given: use --group, set {GROUP_VARIABLE}, or name a --profile "
            "that has it"
        )
