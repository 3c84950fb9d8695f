"""Real connections of the node, on loopback, without a core or a store behind them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from dledger_formats.protocol import frames, requests
from dledger_formats.protocol.codes import RequestCode
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_node.raft.messages import Message
from dledger_node.remoting import native
from dledger_node.remoting.connection import Connection
from dledger_node.remoting.connection_views import Reader
from dledger_node.remoting.dispatch import Dispatcher
from dledger_node.remoting.gate import Gate
from dledger_node.remoting.limits import Limits
from dledger_node.remoting.read_turns import ReadTurns
from dledger_node.remoting.service import AppendCall, Reply
from dledger_wire.accepting import close_accepting

HOST = "127.0.0.1"
PEERS = ("n1", "n2")


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Listener:
    """The service of member n0 of the group g, which answers at once."""

    gate: Gate
    clock: Clock
    group: str = "g"
    self_id: str = "n0"
    port: int = 0
    entry_bytes: int = 10
    appended: list[AppendCall] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    gets: int = 0
    turns: ReadTurns = field(
        default_factory=lambda: ReadTurns(asyncio.get_running_loop().call_soon)
    )
    callers: "list[Caller]" = field(default_factory=list)

    @property
    def read_turns(self) -> ReadTurns:
        """The read turns, shared by all connections, with time left in each turn."""
        return self.turns

    @property
    def appends(self) -> "Listener":
        """The listener itself."""
        return self

    @property
    def peers(self) -> "Listener":
        """The listener itself."""
        return self

    def append(self, calls: list[AppendCall]) -> None:
        """Keep the appends, and answer with success."""
        self.appended += calls
        response = requests.AppendEntryResponse(group=self.group, index=0, pos=0).to_json()
        for call in calls:
            call.connection.send(frames.encode_responses([(call.opaque, response)]))

    def metadata(self) -> requests.MetadataResponse:
        """Return a group without members."""
        return requests.MetadataResponse(group=self.group, local_id=self.self_id, peers={})

    def get(self, reader: Reader, request: requests.GetEntriesRequest, reply: Reply) -> None:
        """Answer with an entry of `entry_bytes`."""
        self.gets += 1
        entry = DLedgerEntry(
            body=bytes(self.entry_bytes), body_crc=0, chain_crc=0, channel=0,
            index=request.begin_index, magic=1, pos=0, size=48 + self.entry_bytes, term=0,
        )  # fmt: skip
        reply(requests.GetEntriesResponse(group=self.group, entries=[entry]))

    def refuse_hello(self, hello: native.Hello) -> str | None:
        """Accept only the other members of the group."""
        return None if hello.group == self.group and hello.sender_id in PEERS else "a stranger"

    def receive(self, message: Message) -> None:
        """Keep the message."""
        self.messages.append(message)

    @property
    def closed(self) -> dict[str, int]:
        """The number of connections that were closed, by reason."""
        return {reason: count for reason, count in self.gate.closed_by_reason.items() if count}

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, and let the gate sweep, as it does once a second."""
        self.clock.now_s += seconds
        list(self.gate.sweep())
        list(self.gate.sweep())

    async def connect(self, **options: object) -> "Caller":
        """Open a connection and wait until the gate has it."""
        connections = self.gate.entered
        reader, writer = await asyncio.open_connection(HOST, self.port, **options)  # type: ignore[arg-type]
        await until(lambda: self.gate.entered > connections)
        self.callers.append(Caller(reader, writer))
        return self.callers[-1]


@contextlib.asynccontextmanager
async def listening(**limits: object) -> AsyncIterator[Listener]:
    """Listen with these limits while the block runs."""
    clock = Clock()
    listener = Listener(Gate(Limits(**limits), clock), clock)  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(listener, Dispatcher(listener)), HOST, 0)
    listener.port = server.sockets[0].getsockname()[1]
    try:
        yield listener
    finally:
        await close_accepting(server)
        for guest in listener.gate.everyone():
            guest.close()
        for caller in listener.callers:
            caller.writer.transport.abort()
        await until(lambda: listener.gate.connections == 0)
        for caller in listener.callers:
            with contextlib.suppress(ConnectionError):
                await caller.writer.wait_closed()


@dataclass
class Caller:
    """The other end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    decoder: frames.FrameDecoder = field(default_factory=frames.FrameDecoder)
    answers: list[frames.RemotingCommand] = field(default_factory=list)

    async def say(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> frames.RemotingCommand:
        """Return the next answer. Raises ConnectionResetError if the connection ends before."""
        while not self.answers:
            data = await asyncio.wait_for(self.reader.read(1 << 16), 20)
            if not data:
                raise ConnectionResetError("closed by the other side")
            self.answers += self.decoder.feed(data)
        return self.answers.pop(0)

    async def is_cut(self) -> bool:
        """Wait until the other side ends the connection; False if it sends something instead."""
        with contextlib.suppress(ConnectionError):
            return not await asyncio.wait_for(self.reader.read(1), 20)
        return True

    async def is_served(self) -> bool:
        """Return whether a request is answered."""
        with contextlib.suppress(ConnectionError):
            await self.say(metadata_request())
            return (await self.answer()).is_response
        return False


def announced(frame_bytes: int) -> bytes:
    """Return the first 8 bytes of a frame of this size."""
    return (frame_bytes - 4).to_bytes(4, "big") + (100).to_bytes(4, "big")


def metadata_request(opaque: int = 1) -> bytes:
    """Return the frame of a small request."""
    body = requests.MetadataRequest(group="g", remote_id="n0").to_json()
    return frames.encode_requests(RequestCode.METADATA, [(opaque, body)])


def get_request(opaque: int) -> bytes:
    """Return the frame of a request whose answer has an entry of `entry_bytes`."""
    body = requests.GetEntriesRequest(group="g", remote_id="n0", begin_index=0).to_json()
    return frames.encode_requests(RequestCode.GET, [(opaque, body)])


def append_request(opaque: int, body: bytes) -> bytes:
    """Return the frame of an append."""
    raw = requests.AppendEntryRequest(group="g", remote_id="n0", body=body).to_json()
    return frames.encode_requests(RequestCode.APPEND, [(opaque, raw)])


def hello_to(
    receiver_id: str, *, sender_id: str = "n1", group: str = "g", incarnation: int = 1
) -> native.Hello:
    """Return a member's HELLO."""
    return native.Hello(
        group=group, sender_id=sender_id, receiver_id=receiver_id, segment_size_bytes=1 << 20,
        incarnation=incarnation, protocol=native.OLDEST_PROTOCOL,
    )  # fmt: skip


def hello(sender_id: str = "n1", group: str = "g", incarnation: int = 1) -> bytes:
    """Return the first frame of a member's link to n0."""
    greeting = hello_to("n0", sender_id=sender_id, group=group, incarnation=incarnation)
    return native.encode_hello(greeting, opaque=1)


async def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait until a condition holds."""
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline_s, "not in time"
        await asyncio.sleep(0.002)
