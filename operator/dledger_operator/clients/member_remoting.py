"""Client of DLedger's remoting protocol: membership changes and leadership transfers."""

import asyncio
from collections.abc import Callable
from typing import Final, Self, TypeVar

from dledger_formats.json_objects import FormatError
from dledger_formats.net.exchange import exchange
from dledger_formats.protocol.codes import RequestCode, SystemCode
from dledger_formats.protocol.frames import FrameError
from dledger_formats.protocol.leadership_transfer import (
    LeadershipTransferRequest,
    LeadershipTransferResponse,
)
from dledger_formats.protocol.membership_change import (
    CHANGE_MEMBERSHIP,
    ChangeKind,
    ChangeMembershipRequest,
    ChangeMembershipResponse,
)
from dledger_formats.protocol.requests import Message
from dledger_operator import names
from dledger_operator.clients.errors import MemberSilentError
from dledger_operator.observed_state import Leader

# A member answers a change within 2 s, and a transfer within two election timeouts. A request that
# times out may still take effect, so the caller must read the members' status again.
ANSWER_S_MAX: Final = 10.0

Response = TypeVar("Response", bound=Message)


class MemberRemotingClient:
    """Sends requests to a leader, one connection per request, because they are rare."""

    def __init__(
        self,
        port: int = names.REMOTING_PORT,
        *,
        answer_s_max: float = ANSWER_S_MAX,
        token: str = "",
    ) -> None:
        """Create a client that sends `token`, the group's administration token; empty for none."""
        self._port = port
        self._answer_s_max = answer_s_max
        self._token = token

    def with_token(self, token: str) -> Self:
        """Return a client that sends this token."""
        return type(self)(self._port, answer_s_max=self._answer_s_max, token=token)

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
        """Ask a leader to add, promote, demote or remove a member; the answer may be a refusal.

        A member of a group with another identity refuses; `identity` is empty if it is not known.
        So does a member that demands its administration token and gets another one.
        Raises MemberSilentError if no answer comes in time. The change may still take effect.
        """
        request = ChangeMembershipRequest(
            group=group,
            remote_id=leader.member_id,
            change=kind,
            member_id=member_id,
            group_identity=identity,
            admin_token=self._token,
        )
        return await self._ask(ip, CHANGE_MEMBERSHIP, request, ChangeMembershipResponse.from_json)

    async def transfer(
        self, ip: str, group: str, leader: Leader, to: str, *, identity: str = ""
    ) -> LeadershipTransferResponse:
        """Ask a leader to transfer its leadership to another voter; errors as in `change`."""
        request = LeadershipTransferRequest(
            group=group,
            term=leader.term,
            transferee_id=to,
            group_identity=identity,
            admin_token=self._token,
        ).addressed_to(leader.member_id)
        return await self._ask(
            ip, RequestCode.LEADERSHIP_TRANSFER, request, LeadershipTransferResponse.from_json
        )

    async def _ask(
        self, ip: str, code: int, request: Message, read: Callable[[bytes], Response]
    ) -> Response:
        what = f"{type(request).__name__} to {ip}:{self._port}"
        try:
            async with asyncio.timeout(self._answer_s_max):
                answer = await exchange(ip, self._port, code, request.to_json())
            if answer.code != SystemCode.SUCCESS:
                raise MemberSilentError(
                    f"{what} was answered with code {answer.code}: {answer.remark or ''}"
                )
            return read(answer.body)
        except (OSError, TimeoutError, FrameError, FormatError) as error:
            raise MemberSilentError(f"{what}: {str(error) or type(error).__name__}") from error
