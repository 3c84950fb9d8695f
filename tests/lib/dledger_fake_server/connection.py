"""One client's connection to a member."""

import asyncio
from typing import Protocol, cast

from dledger_fake_server.behavior import Fault
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.protocol.go_away import GO_AWAY_FRAME, TAKES_GO_AWAY_FLAG


class Handler(Protocol):
    """The member that owns a connection."""

    largest_read: int
    connections: "set[Connection]"

    def handle(self, command: RemotingCommand, connection: "Connection") -> bytes | Fault:
        """Return the response frame, or a fault."""


class Connection(asyncio.Protocol):
    """Decodes a client's requests and writes the member's responses."""

    def __init__(self, member: Handler) -> None:
        self.member = member
        self.decoder = FrameDecoder()
        self.gone = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.member.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.member.connections.discard(self)
        self.gone.set()

    def data_received(self, data: bytes) -> None:
        commands = self.decoder.feed(data)
        self.member.largest_read = max(self.member.largest_read, len(commands))
        answers: list[bytes] = []
        for command in commands:
            answer = self.member.handle(command, self)
            if answer in (Fault.DISCONNECT, Fault.APPEND_AND_DISCONNECT):
                self.transport.write(b"".join(answers))
                self.transport.close()
                return
            if answer is Fault.GO_AWAY:
                assert command.flag & TAKES_GO_AWAY_FLAG
                self.transport.write(b"".join((*answers, GO_AWAY_FRAME)))
                self.transport.close()
                return
            if answer is Fault.SEND_GARBAGE:
                answer = b"HTTP/1.1 400 Bad Request\r\n\r\n"
            if isinstance(answer, bytes):
                answers.append(answer)
        self.transport.write(b"".join(answers))
