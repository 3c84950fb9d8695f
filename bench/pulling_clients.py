"""Bare clients of a broker: one that sends any request, and one that only pulls."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Final, cast

import msgspec

from bench.bare_client import frame_around_opaque
from bench.rocketmq_send import QUEUES
from dledger_formats.peers import split_address
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand, encode
from dledger_formats.rocketmq.codes import PullSysFlag, RequestCode
from dledger_formats.rocketmq.pulls import PullFields
from dledger_formats.rocketmq.sends import SendMessageFields

MESSAGES_MAX: Final = 32
_OPAQUE: Final = 1_000_000_000
_NEXT: Final = b'"nextBeginOffset":"'


class Client(asyncio.Protocol):
    """One connection. The answers to requests come in any order."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder()
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = itertools.count(1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass on the answers. Requests of the broker are ignored."""
        for command in self._decoder.feed(data):
            if not command.is_response:
                continue
            waiting = self._waiting.pop(command.opaque, None)
            if waiting is not None and not waiting.cancelled():
                waiting.set_result(command)

    def connection_lost(self, error: Exception | None) -> None:
        """End all requests without an answer."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error or ConnectionResetError("the connection has ended"))

    def ask(
        self, code: int, ext: dict[str, str], body: bytes = b""
    ) -> asyncio.Future[RemotingCommand]:
        """Send a request; return a future of its answer."""
        opaque = next(self._opaque)
        answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = answer
        command = RemotingCommand(code=code, opaque=opaque, ext_fields=ext, body=body)
        self._transport.write(encode(command))
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._transport.abort()


async def connected(address: str) -> Client:
    """Return a client of one member."""
    host, port = split_address(address)
    _, client = await asyncio.get_running_loop().create_connection(Client, host, port)
    return client


@asynccontextmanager
async def clients_of(addresses: list[str]) -> AsyncIterator[list[Client]]:
    """Connect to each address."""
    async with AsyncExitStack() as stack:
        clients = [await connected(address) for address in addresses]
        for client in clients:
            stack.enter_context(closing(client))
        yield clients


def pull_ext(
    topic: str, queue_id: int, offset: int, tags: str = "*", hold_ms: int = 0
) -> dict[str, str]:
    """Return the fields of a pull, which is held for `hold_ms` if there is no message."""
    return PullFields(
        consumer_group="bench", topic=topic, queue_id=queue_id, queue_offset=offset,
        max_msg_nums=MESSAGES_MAX,
        sys_flag=PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if hold_ms else 0),
        commit_offset=0, suspend_timeout_millis=hold_ms, sub_version=1, subscription=tags,
        expression_type="TAG",
    ).to_ext()  # fmt: skip


def send_ext(topic: str, queue_id: int) -> dict[str, str]:
    """Return the fields of a send."""
    return SendMessageFields(
        producer_group="bench", topic=topic, default_topic="TBW102",
        default_topic_queue_nums=QUEUES, queue_id=queue_id, sys_flag=0,
        born_timestamp=1_795_306_882_675, flag=0,
        properties="", reconsume_times=0, unit_mode=False, batch=False,
    ).to_ext()  # fmt: skip


class Puller(asyncio.Protocol):
    """Pulls one queue from beginning to end, repeatedly, without looking at the messages."""

    def __init__(
        self, topic: str, queue_id: int, end_offset: int, tags: str, until_s: float
    ) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.passed = self.pulls = self.received_bytes = 0
        self._ext = pull_ext(topic, queue_id, 0, tags)
        self._end_offset, self._until_s = end_offset, until_s
        self._offset = 0
        self._parts: list[bytes] = []
        self._missing = 4

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first pull."""
        self._transport = cast("asyncio.Transport", transport)
        self._pull()

    def _pull(self) -> None:
        ext = msgspec.json.encode(self._ext | {"queueOffset": str(self._offset)})
        before, after = frame_around_opaque(RequestCode.PULL_MESSAGE, ext, b"")
        self._transport.write(b"%b%d%b" % (before, _OPAQUE, after))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail, unless the time is over."""
        self._fail(error or ConnectionResetError("the connection has ended"))

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process the answer once it is complete, and send the next pull."""
        try:
            self._take(data)
        except (AssertionError, ValueError) as error:
            self._fail(error)

    def _take(self, data: bytes) -> None:
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return
        answer = b"".join(self._parts)
        size = 4 + int.from_bytes(answer[:4], "big")
        if len(answer) < size:
            self._parts, self._missing = [answer], size - len(answer)
            return
        self._parts, self._missing = [], 4
        self._answered(answer)

    def _answered(self, answer: bytes) -> None:
        at = answer.index(_NEXT) + len(_NEXT)
        offset = int(answer[at : answer.index(b'"', at)])
        assert offset > self._offset, answer[:300]
        if time.perf_counter() >= self._until_s:
            self.done.set_result(None)
            self._transport.close()
            return
        self.passed += offset - self._offset
        self.pulls += 1
        self.received_bytes += len(answer)
        self._offset = offset if offset < self._end_offset else 0
        self._pull()
