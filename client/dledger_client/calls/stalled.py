"""Leaving a leader, or the server of a client that does not follow it, that does not respond."""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from dledger_client.cluster.connection import Connection
from dledger_client.cluster.members import Members
from dledger_client.errors import ClientError, ConnectionLostError, RefusedError


class LeaderFinder(Protocol):
    """Knows and finds the leader; implemented by Dispatcher."""

    members: Members

    @property
    def leader(self) -> Connection | None:
        """The connection to the leader."""

    def follow(self, connection: Connection) -> None:
        """Send all further calls on this connection."""

    def connection_lost(self, connection: Connection) -> None:
        """Forget the leader if this is the connection to it."""

    async def find_while(
        self, is_wanted: Callable[[], bool], *, silent: Connection | None = None
    ) -> Connection | ClientError | None:
        """Search the leader as long as it is wanted."""


async def leave_stalled(finder: LeaderFinder, stalled: Connection) -> None:
    """Leave the connection of all calls, which is stalled, once there is a better one.

    That is one to the next leader. Or it is a new one to the same member, if the old one answers
    nothing at all: the member's host may have vanished, and the member be at another address.
    """
    if finder.members.follow_leader:
        await _follow_another(finder, stalled)
        return
    with suppress(ConnectionLostError, RefusedError):
        await finder.members.metadata(stalled.address)
    if stalled.is_retired and finder.leader is stalled:
        finder.connection_lost(stalled)  # a Service may lead to another pod by now
        stalled.return_unsent(f"{stalled} stopped responding")


async def _follow_another(finder: LeaderFinder, stalled: Connection) -> None:
    found = await finder.find_while(
        lambda: finder.leader is stalled and stalled.is_stalled, silent=stalled
    )
    if not isinstance(found, Connection) or finder.leader is not stalled:
        return
    finder.follow(found)
    reason = f"{stalled} stopped responding; the leader is now {found}"
    if found.member_id == stalled.member_id:
        stalled.return_unsent(reason)  # it may still answer the other requests
    else:
        stalled.abort(reason)
