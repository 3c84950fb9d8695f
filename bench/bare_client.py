"""A load of appends from a client that does almost nothing, so that the group is what is measured.

The client sends frames that were encoded in advance and keeps a number of them in flight on one
connection to the leader. It works with leaders of this node and of Java DLedger.
"""

import asyncio
import base64
import dataclasses
import json
import os
import time
from collections.abc import Iterator
from typing import Final, cast

from dledger_formats.peers import split_address
from dledger_formats.protocol.codes import RequestCode

WARM_UP_S: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load on a group."""

    in_flight: int
    body_bytes: int
    seconds: float


async def bare_load(address: str, group: str, member_id: str, load: Load) -> list[float]:
    """Put a leader under a load; return the latencies in seconds, without the warm-up.

    Raises SystemExit if an append is not acknowledged: the figures would then mean nothing.
    """
    return await run_load(address, BareClient(*append_frame(group, member_id, load), load))


async def run_load(address: str, client: "BareClient") -> list[float]:
    """Run a client until its load is over; return the latencies in seconds."""
    host, port = split_address(address)
    await asyncio.get_running_loop().create_connection(lambda: client, host, port)
    await client.done
    return client.latencies_s


def append_frame(group: str, member_id: str, load: Load) -> tuple[bytes, bytes]:
    """Return the frame of an APPEND before and after its opaque."""
    body = json.dumps(
        {
            "body": base64.b64encode(os.urandom(load.body_bytes)).decode(),
            "code": 200, "group": group, "remoteId": member_id, "term": -1,
        },
        separators=(",", ":"),
    ).encode()  # fmt: skip
    return frame_around_opaque(RequestCode.APPEND, b"", body)


def frame_around_opaque(code: int, ext_fields: bytes, body: bytes) -> tuple[bytes, bytes]:
    """Return a frame before and after the ten digits of its opaque.

    `ext_fields` is JSON, or empty.
    """
    ext = b',"extFields":%b' % ext_fields if ext_fields else b""
    before = b'{"code":%d%b,"flag":0,"language":"JAVA","opaque":' % (code, ext)
    after = b',"serializeTypeCurrentRPC":"JSON","version":0}'
    header_bytes = len(before) + 10 + len(after)
    lengths = (4 + header_bytes + len(body)).to_bytes(4, "big") + header_bytes.to_bytes(4, "big")
    return lengths + before, after + body


class BareClient(asyncio.Protocol):
    """Sends prepared frames that differ only in the ten digits of `opaque`."""

    FIRST_OPAQUE: Final = 1_000_000_000

    def __init__(self, before: bytes, after: bytes, load: Load) -> None:
        """`before` and `after` are the frame around its opaque."""
        self.done = asyncio.get_running_loop().create_future()
        self.latencies_s: list[float] = []
        self._before, self._after = before, after
        self._in_flight = load.in_flight
        self._begin_s = time.perf_counter() + WARM_UP_S
        self._end_s = self._begin_s + load.seconds
        self._sent_s: dict[int, float] = {}
        self._opaque = self.FIRST_OPAQUE
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first appends, as many as are kept in flight."""
        self._transport = cast("asyncio.Transport", transport)
        self._send(self._in_flight)

    def data_received(self, data: bytes) -> None:
        """Record the acknowledged appends, and send as many new ones."""
        now_s = time.perf_counter()
        counts = self._begin_s <= now_s < self._end_s
        answered = 0
        for frame in self._frames(data):
            at = frame.index(b'"opaque":') + 9
            sent_s = self._sent_s.pop(int(frame[at : at + 10]))
            if not self.is_success(frame, at):
                raise SystemExit(f"an append was not acknowledged: {frame!r}")
            if counts:
                self.latencies_s.append(now_s - sent_s)
            answered += 1
        if now_s < self._end_s:
            self._send(answered)
        elif not self.done.done():
            self._transport.close()

    def is_success(self, frame: bytes, opaque_at: int) -> bool:
        """Return whether an answer acknowledges its append."""
        return b'"code":200' in frame[opaque_at:]

    def connection_lost(self, error: Exception | None) -> None:
        """Complete the load; before its end, a lost connection is an error."""
        if time.perf_counter() < self._end_s:
            raise SystemExit(f"the leader closed the connection: {error}")
        self.done.set_result(None)

    def _send(self, count: int) -> None:
        now_s = time.perf_counter()
        before, after = self._before, self._after
        first = self._opaque
        self._opaque += count
        numbers = range(first, self._opaque)
        self._sent_s.update(dict.fromkeys(numbers, now_s))
        self._transport.write(b"".join(b"%b%d%b" % (before, each, after) for each in numbers))

    def _frames(self, data: bytes) -> Iterator[bytes]:
        data = self._pending + data
        at = 0
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            yield data[at:end]
            at = end
        self._pending = data[at:]
