"""METADATA requests of a member that is out of service and has no links to its peers."""

import asyncio
from collections.abc import Mapping

from dledger_formats.json_objects import FormatError
from dledger_formats.net.exchange import exchange
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode, SystemCode
from dledger_formats.protocol.frames import FrameError
from dledger_formats.protocol.requests import MetadataRequest, MetadataResponse


async def ask_all(
    addresses: Mapping[str, tuple[str, int]], group: str, timeout_s: float
) -> dict[str, MetadataResponse]:
    """Ask members, given as host and port by id; return the answers that arrive in time, by id."""

    async def ask(member_id: str, host: str, port: int) -> MetadataResponse | None:
        try:
            async with asyncio.timeout(timeout_s):
                return await _ask(member_id, host, port, group)
        except (OSError, FrameError, FormatError):  # TimeoutError is an OSError
            return None

    answers = await asyncio.gather(*(ask(each, *at) for each, at in addresses.items()))
    return {
        each: response
        for each, response in zip(addresses, answers, strict=True)
        if response is not None
    }


async def _ask(member_id: str, host: str, port: int, group: str) -> MetadataResponse | None:
    request = MetadataRequest(group=group, remote_id=member_id)
    answer = await exchange(host, port, RequestCode.METADATA, request.to_json())
    if answer.code != SystemCode.SUCCESS:
        return None
    response = MetadataResponse.from_json(answer.body)
    return response if response.code is DLedgerResponseCode.SUCCESS else None
