"""Requests to the leaders of one group, with its administration token.

If the operator may not read the token, requests go out without one: a group may demand none. A
member that demands one answers ADMIN_TOKEN_MISSING.
"""

import logging
from typing import Protocol

from dledger_formats.protocol.leadership_transfer import LeadershipTransferResponse
from dledger_formats.protocol.membership_change import ChangeKind, ChangeMembershipResponse
from dledger_operator.clients.errors import NotFoundError, RefusedError
from dledger_operator.clients.member_remoting import MemberRemotingClient
from dledger_operator.observed_state import Leader

logger = logging.getLogger(__name__)


class TokenClient(Protocol):
    """The API request that reads a token."""

    async def token(self, namespace: str, group: str) -> str:
        """Return the token to send; empty if the group has none."""


class AuthorizedRequests:
    """The requests to the leaders of one group, each sent with the current token."""

    def __init__(
        self, requests: MemberRemotingClient, tokens: TokenClient, namespace: str, group: str
    ) -> None:
        self._requests = requests
        self._tokens = tokens
        self._namespace = namespace
        self._group = group

    async def change(
        self,
        ip: str,
        group: str,
        leader: Leader,
        kind: ChangeKind,
        member_id: str,
        *,
        identity: str = "",
    ) -> ChangeMembershipResponse:
        """Ask for a membership change; errors as in `MemberRemotingClient.change`.

        Raises KubeError if the API server does not answer the read of the token.
        """
        requests = await self._authorized()
        return await requests.change(ip, group, leader, kind, member_id, identity=identity)

    async def transfer(
        self, ip: str, group: str, leader: Leader, to: str, *, identity: str = ""
    ) -> LeadershipTransferResponse:
        """Ask for a leadership transfer; errors as in `change`."""
        requests = await self._authorized()
        return await requests.transfer(ip, group, leader, to, identity=identity)

    async def _authorized(self) -> MemberRemotingClient:
        """Return a client with the token to send now, or without one if there is none, or the
        operator may not read it.
        """
        try:
            token = await self._tokens.token(self._namespace, self._group)
        except (NotFoundError, RefusedError) as error:
            logger.warning(
                "%s/%s: the request has no administration token: %s",
                self._namespace,
                self._group,
                error,
            )
            token = ""
        return self._requests.with_token(token)
