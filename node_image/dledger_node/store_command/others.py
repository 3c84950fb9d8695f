"""Ask the other members of a group whether they are up."""

import asyncio
from collections.abc import Mapping
from typing import Final

from dledger_formats.http.status import NodeStatus
from dledger_formats.json_objects import FormatError
from dledger_formats.net.exchange import exchange
from dledger_formats.peers import split_address
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode
from dledger_formats.protocol.frames import FrameError
from dledger_formats.protocol.requests import MetadataRequest, MetadataResponse
from dledger_node.config import join_address

CONNECT_S_MAX: Final = 3.0
ANSWER_S_MAX: Final = 5.0
PAGE_BYTES_MAX: Final = 1 << 20


async def ask_others(
    group: str, addresses: Mapping[str, str], pages: Mapping[str, str]
) -> dict[str, str]:
    """Return what each member's host answers, by member id; empty for a member that is not up.

    `addresses` and `pages` are the members' host:port for requests and for HTTP. A member that is
    out of service answers only HTTP. An answer that cannot be understood counts, too: a member
    counts as up unless its host cannot be reached, or answers for a group of another name.
    """
    asked = [_ask(group, addresses[one], pages[one]) for one in addresses]
    return dict(zip(addresses, await asyncio.gather(*asked), strict=True))


async def ask_statuses(pages: Mapping[str, str]) -> dict[str, NodeStatus]:
    """Return the status of each member whose page answers with one, by member id.

    `pages` are the members' host:port for HTTP. A page that shows anything else is left out.
    """
    found = await asyncio.gather(*map(_status_of, pages.values()))
    return {one: status for one, status in zip(pages, found, strict=True) if status is not None}


async def _status_of(address: str) -> NodeStatus | None:
    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            return NodeStatus.from_json(await _get_status(*split_address(address)))
    except (OSError, TimeoutError, FormatError):
        return None


async def _ask(group: str, address: str, page: str) -> str:
    return await _ask_remoting(group, address) or await _ask_http(group, page)


async def _ask_remoting(group: str, address: str) -> str:
    host, port = split_address(address)
    if not await _accepts(host, port):
        return ""
    request = MetadataRequest(group=group).to_json()
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            answer = await exchange(host, port, RequestCode.METADATA, request)
        response = MetadataResponse.from_json(answer.body)
    except (OSError, TimeoutError, FrameError, FormatError) as error:
        return f"{address} accepts connections, but gives no answer: {error or 'timed out'}"
    if response.code is DLedgerResponseCode.UNKNOWN_GROUP:
        return ""
    return f"{address} answers as {response.local_id or 'a member'} of the group {group}"


async def _ask_http(group: str, address: str) -> str:
    host, port = split_address(address)
    if not await _accepts(host, port):
        return ""
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            status = NodeStatus.from_json(await _get_status(host, port))
    except (OSError, TimeoutError, FormatError) as error:
        return f"http://{address} accepts connections, but gives no status: {error or 'timed out'}"
    if status.group != group:
        return ""
    return f"http://{address} answers as {status.self_id} of the group {group}: {status.reason}"


async def _get_status(host: str, port: int) -> bytes:
    """Return the body of GET /status, as HTTP/1.0 without chunks. Raises OSError."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET /status HTTP/1.0\r\nHost: {join_address(host, port)}\r\n\r\n".encode())
        answer = b""
        while (chunk := await reader.read(PAGE_BYTES_MAX)) and len(answer) < PAGE_BYTES_MAX:
            answer += chunk
    finally:
        writer.close()
    return answer.partition(b"\r\n\r\n")[2]


async def _accepts(host: str, port: int) -> bool:
    """Return whether something accepts connections there."""
    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
