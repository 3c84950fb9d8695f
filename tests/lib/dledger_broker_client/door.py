"""`DoorClient`: a connection to the leader, as another member opens it to pass requests on."""

import socket
from typing import Self

from dledger_broker.door.between_members import door_frames
from dledger_broker.door.between_members.door_frames import (
    PRESENCE,
    REGISTER,
    DoorAnswer,
    DoorRequest,
    PresenceNote,
    Way,
)
from dledger_broker_client.client import Ext, send_ext
from dledger_formats.peers import split_address
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode
from dledger_node.remoting import native
from dledger_node.remoting.native import Hello
from tools.groups.broker_group import BrokerGroup


class DoorClient:
    """A context manager around one connection."""

    def __init__(self, group: BrokerGroup, sender: str, leader: str) -> None:
        """`sender` is a member that does not run: its real links would be cut."""
        host, port = split_address(group.peers[leader])
        self._socket = socket.create_connection((host, port), timeout=30)
        self._decoder = FrameDecoder()
        self._answers: dict[int, DoorAnswer] = {}
        self._number = 0
        hello = Hello(
            group="g",
            sender_id=sender,
            receiver_id=leader,
            segment_size_bytes=group.settings(leader).segment_size_bytes,
            incarnation=1,
            protocol=native.OLDEST_PROTOCOL,
            newest_protocol=native.NEWEST_PROTOCOL,
        )
        self._socket.sendall(native.encode_hello(hello, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def register(self) -> int:
        """Register a producer; return its identity."""
        answer = self._ask(REGISTER, {}, b"", -1, 0, 0)
        assert answer.way is Way.STORED, answer
        return door_frames.decode_identity(answer.frame)

    def send(
        self, topic: str, body: bytes, producer: int, sequence: int, count: int = 0
    ) -> tuple[Way, RemotingCommand | None]:
        """Send a message, or a batch of `count`, under numbers from `sequence` on; return its
        outcome and the client's answer.
        """
        return self.answer(self.begin_send(topic, body, producer, sequence, count))

    def begin_send(
        self, topic: str, body: bytes, producer: int, sequence: int, count: int = 0
    ) -> int:
        """Send the same without waiting; return the number of the request."""
        code = RequestCode.SEND_BATCH_MESSAGE if count else RequestCode.SEND_MESSAGE_V2
        ext = send_ext(topic, m="true" if count else "false")
        return self._begin(code, ext, body, producer, sequence, count or 1)

    def answer(self, request: int) -> tuple[Way, RemotingCommand | None]:
        """Wait for the outcome of a request."""
        answer = self._wait(request)
        found = FrameDecoder().feed(answer.frame)
        return answer.way, found[0] if found else None

    def note_presence(self) -> None:
        """Report to the leader that a member without clients is present."""
        note = door_frames.encode_presence(PresenceNote("a member", True, [], []))
        assert self._ask(PRESENCE, {}, note, -1, 0, 0).way is Way.ANSWERED

    def _ask(
        self, code: int, ext: Ext, body: bytes, producer: int, sequence: int, count: int
    ) -> DoorAnswer:
        return self._wait(self._begin(code, ext, body, producer, sequence, count))

    def _begin(
        self, code: int, ext: Ext, body: bytes, producer: int, sequence: int, count: int
    ) -> int:
        self._number += 1
        request = DoorRequest(
            self._number, code, 1, 0, 0, ext, body, bytes(8), producer, sequence, count
        )
        self._socket.sendall(door_frames.encode_requests([request]))
        return self._number

    def _wait(self, request: int) -> DoorAnswer:
        while request not in self._answers:
            self._read()
        return self._answers.pop(request)

    def _read(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("the leader closed the connection")
        for command in self._decoder.feed(data):
            if command.code == door_frames.ANSWERS_CODE:
                for answer in door_frames.decode_answers(command.body):
                    self._answers[answer.number] = answer
