"""Readers that do almost nothing, so that only the members' work for readers is measured.

They send READ_RANGE, as the client's tails and ranges do, and look only at the last entry of an
answer. So they cost a machine about as much as the network of readers on other machines would.
"""

import asyncio
import struct
import time
from array import array
from typing import Final, cast

from dledger_formats.log import disk
from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.read_range import READ_RANGE, ReadRangeRequest, ReadRangeResponse

ANSWER_BYTES_MAX: Final = 1 << 20
GROUP: Final = "g"
WAIT_MS: Final = 10_000
SCAN_ENTRIES_A_SECOND: Final = 700_000
"""The rate of one reader of the Python client, by batches, from members that do nothing else."""
_PREFIX: Final = struct.Struct(">II")
_HANDED_S: Final = struct.Struct("d")


class BareTail(asyncio.Protocol):
    """Gets the new entries of a log whose bodies have one size, with one request in flight."""

    def __init__(
        self, member_id: str, body_bytes: int, first_index: int, times_s: "array[float]"
    ) -> None:
        """`times_s` gets the time from append to delivery of the last entry of each answer."""
        self.entry_count = 0
        self.error: str | None = None
        """Why its reading ended; None while it reads."""
        self._member_id = member_id
        self._entry_bytes = disk.ENTRY_HEADER_SIZE + body_bytes
        self._next_index = first_index
        self._times_s = times_s
        self._pending = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first entries."""
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Process an answer once it is complete, and ask for the entries after it."""
        self._pending += data
        if len(self._pending) < frames.PREFIX_BYTES:
            return
        frame_bytes, header_bytes = _PREFIX.unpack_from(self._pending)
        if len(self._pending) < frames.LENGTH_WORD_BYTES + frame_bytes:
            return
        body = bytes(memoryview(self._pending)[frames.PREFIX_BYTES + header_bytes :])
        self._pending = bytearray()
        answer = ReadRangeResponse.from_bytes(body)
        if answer.code is not DLedgerResponseCode.SUCCESS:
            self._fail(f"a member refused a read: {answer.code.name}")
        elif answer.stored:
            self._take(answer)
        else:
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        """Record that the reading has ended."""
        self._fail(f"a member closed the connection of a reader: {error}")

    def _ask(self) -> None:
        request = ReadRangeRequest(
            group=GROUP,
            remote_id=self._member_id,
            begin_index=self._next_index,
            max_size=ANSWER_BYTES_MAX,
            wait_ms=WAIT_MS,
        )
        self._transport.write(frames.encode_requests(READ_RANGE, [(1, request.to_json())]))

    def _take(self, answer: ReadRangeResponse) -> None:
        """Count the entries of an answer by the index of the last one."""
        at = len(answer.stored) - self._entry_bytes
        last = disk.unpack_header(answer.stored, max(0, at))
        if at < 0 or last.size != self._entry_bytes or last.index < self._next_index:
            self._fail(f"a member sent other entries than those from {self._next_index} on")
            return
        (handed_s,) = _HANDED_S.unpack_from(answer.stored, at + disk.ENTRY_HEADER_SIZE)
        self._times_s.append(time.perf_counter() - handed_s)
        count = last.index - self._next_index + 1
        self.entry_count += count
        self._next_index = last.index + 1
        self._go_on(count, answer.committed_index)

    def _go_on(self, count: int, committed_index: int) -> None:
        self._ask()

    def _fail(self, error: str) -> None:
        self.error = self.error or error
        self._transport.close()


class BareScan(BareTail):
    """Reads the log from its first entry, at the pace of a client, and starts over at the end."""

    def _go_on(self, count: int, committed_index: int) -> None:
        if self._next_index > committed_index:
            self._next_index = 0
        asyncio.get_running_loop().call_later(count / SCAN_ENTRIES_A_SECOND, self._ask)
