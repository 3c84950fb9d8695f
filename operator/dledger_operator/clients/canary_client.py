"""Appends canaries to a group and reads them back, as a client that knows only the master Service.

Each request uses a new connection, because an open one outlives a change of the endpoints.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from dledger_formats.json_objects import FormatError
from dledger_formats.log.disk import ENTRY_SIZE_MAX
from dledger_formats.net.exchange import conversation
from dledger_formats.protocol.canary import APPEND_CANARY, AppendCanaryRequest
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode, SystemCode
from dledger_formats.protocol.frames import FrameError
from dledger_formats.protocol.requests import (
    AppendEntryResponse,
    GetEntriesRequest,
    GetEntriesResponse,
    MetadataRequest,
    MetadataResponse,
    Request,
    Response,
)
from dledger_operator import names
from dledger_operator.clients.errors import CanaryUnsupportedError, MemberSilentError

ANSWER_S_MAX: Final = 3.0
"""A member answers within 2 s."""
ANSWER_BYTES_MAX: Final = 2 * ENTRY_SIZE_MAX
"""Enough for any entry in a canary's place: its body as base64, and the rest of the frame."""

Answer = TypeVar("Answer", bound=Response)


def service_address(namespace: str, group: str) -> tuple[str, int]:
    """Return host and port of a group's master Service."""
    return f"{names.master_service(group)}.{namespace}.svc", names.REMOTING_PORT


class CanaryClient:
    """Sends requests to the member that the master Service leads to."""

    def __init__(
        self,
        address: Callable[[str, str], tuple[str, int]] = service_address,
        *,
        answer_s_max: float = ANSWER_S_MAX,
    ) -> None:
        """`address` returns host and port for a namespace and a group."""
        self._address = address
        self._answer_s_max = answer_s_max

    async def append(self, namespace: str, group: str, identity: str) -> AppendEntryResponse:
        """Append a canary; the answer may be a refusal. `identity` is empty if it is not known.

        Raises MemberSilentError if the Service leads to no leader, or no answer comes in time: the
        canary may have been appended. Raises CanaryUnsupportedError if the leader's release does
        not support canaries.
        """

        def request(member_id: str) -> AppendCanaryRequest:
            return AppendCanaryRequest(group=group, remote_id=member_id, group_identity=identity)

        return await self._ask(
            namespace, group, APPEND_CANARY, request, AppendEntryResponse.from_json
        )

    async def read(self, namespace: str, group: str, index: int) -> GetEntriesResponse:
        """Read the entry at an index from the leader; errors as in `append`."""

        def request(member_id: str) -> GetEntriesRequest:
            return GetEntriesRequest(group=group, remote_id=member_id, begin_index=index)

        return await self._ask(
            namespace, group, RequestCode.GET, request, GetEntriesResponse.from_json
        )

    async def _ask(
        self,
        namespace: str,
        group: str,
        code: int,
        request: Callable[[str], Request],
        read: Callable[[bytes], Answer],
    ) -> Answer:
        host, port = self._address(namespace, group)
        try:
            async with (
                asyncio.timeout(self._answer_s_max),
                conversation(host, port, answer_bytes_max=ANSWER_BYTES_MAX) as member,
            ):
                found = await member.ask(
                    RequestCode.METADATA, MetadataRequest(group=group).to_json()
                )
                member_id = _leader(host, MetadataResponse.from_json(found.body))
                answer = await member.ask(code, request(member_id).to_json())
            if answer.code == SystemCode.REQUEST_CODE_NOT_SUPPORTED:
                raise CanaryUnsupportedError(f"{member_id} does not know request {code}")
            if answer.code != SystemCode.SUCCESS:
                raise MemberSilentError(
                    f"{member_id} answered with code {answer.code}: {answer.remark or ''}"
                )
            return read(answer.body)
        except (OSError, TimeoutError, FrameError, FormatError) as error:
            raise MemberSilentError(f"{host}:{port}: {error or type(error).__name__}") from error


def _leader(host: str, metadata: MetadataResponse) -> str:
    """Return the id of the member that the Service leads to, which must lead."""
    if metadata.code is not DLedgerResponseCode.SUCCESS:
        raise MemberSilentError(f"{host} leads to a member that answers {metadata.code.name}")
    if metadata.local_id is None or metadata.leader_id != metadata.local_id:
        raise MemberSilentError(
            f"{host} leads to {metadata.local_id}, and the leader is {metadata.leader_id}"
        )
    return metadata.local_id
