"""METADATA, asked of other members by one that is not in service and has no links to them."""

import asyncio
from collections.abc import Mapping
from typing import Final

from dledger_formats import frames, requests
from dledger_formats.frames import FrameDecoder, FrameError
from dledger_formats.json_objects import FormatError
from dledger_formats.requests import (
    DLedgerResponseCode,
    MetadataRequest,
    MetadataResponse,
    RequestCode,
)

ANSWER_BYTES_MAX: Final = 64 * 1024
_READ_BYTES: Final = 4096
_OPAQUE: Final = 1


async def ask_all(
    addresses: Mapping[str, tuple[str, int]], group: str, timeout_s: float
) -> dict[str, MetadataResponse]:
    """What members, given as host and port by id, say who leads; those that answer in time."""

    async def ask(member_id: str, host: str, port: int) -> MetadataResponse | None:
        try:
            async with asyncio.timeout(timeout_s):
                return await _ask(member_id, host, port, group)
        except (OSError, FrameError, FormatError):  # TimeoutError is an OSError
            return None

    answers = await asyncio.gather(*(ask(each, *at) for each, at in addresses.items()))
    return {each: said for each, said in zip(addresses, answers, strict=True) if said is not None}


async def _ask(member_id: str, host: str, port: int, group: str) -> MetadataResponse | None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        request = MetadataRequest(group=group, remote_id=member_id)
        body = request.to_json()
        writer.write(frames.encode_requests(RequestCode.METADATA, [(_OPAQUE, body)]))
        decoder = FrameDecoder(ANSWER_BYTES_MAX)
        while data := await reader.read(_READ_BYTES):
            for command in decoder.feed(data):
                if command.code != requests.SystemCode.SUCCESS:
                    return None
                answer = MetadataResponse.from_json(command.body)
                return answer if answer.code is DLedgerResponseCode.SUCCESS else None
        return None
    finally:
        writer.close()
