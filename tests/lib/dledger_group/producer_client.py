"""A client of one member that sends idempotent appends, also malformed ones."""

import json
import socket
from typing import Self

from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import DLedgerResponseCode, SystemCode
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.protocol.producers import (
    APPEND_IDEMPOTENT,
    APPEND_IDEMPOTENT_BATCH,
    REGISTER_PRODUCER,
    IdempotentBatchRequest,
)
from dledger_group.wire import connect
from tools.groups.node_group import NodeGroup

Code = DLedgerResponseCode


class ProducerClient:
    """One connection to a member; every request names the member and the group `g`."""

    def __init__(self, group: NodeGroup, member: str) -> None:
        self.member = member
        self._socket: socket.socket = connect(group, member)
        self._decoder = FrameDecoder()
        self._answers: dict[int, RemotingCommand] = {}
        self._opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, code: int, **fields: object) -> int:
        """Send one request and return its opaque."""
        self._opaque += 1
        body = {"group": "g", "remoteId": self.member, "code": 200, "term": -1, **fields}
        command = RemotingCommand(
            code=code, opaque=self._opaque, body=json.dumps(body, separators=(",", ":")).encode()
        )
        self._socket.sendall(frames.encode(command))
        return self._opaque

    def answer(self, opaque: int) -> RemotingCommand:
        while opaque not in self._answers:
            data = self._socket.recv(65536)
            assert data, "the connection was closed"
            self._answers |= {command.opaque: command for command in self._decoder.feed(data)}
        return self._answers.pop(opaque)

    def ask(self, code: int, **fields: object) -> dict[str, object]:
        answer = self.answer(self.send(code, **fields))
        assert answer.code == SystemCode.SUCCESS, answer.remark
        decoded: dict[str, object] = json.loads(answer.body)
        return decoded

    def register(self) -> int:
        answer = self.ask(REGISTER_PRODUCER)
        assert answer["code"] == Code.SUCCESS
        producer = answer["producer"]
        assert isinstance(producer, int)
        return producer

    def append(self, producer: int, sequence: int, body: str = "AAAA") -> dict[str, object]:
        return self.ask(APPEND_IDEMPOTENT, body=body, producer=producer, sequence=sequence)

    def send_batches(self, producer: int, *batches: tuple[int, int]) -> list[int]:
        """Send batches, given as first sequence and number of bodies, in one write."""
        frames_ = []
        for sequence, count in batches:
            self._opaque += 1
            request = IdempotentBatchRequest(
                group="g",
                remote_id=self.member,
                producer=producer,
                sequence=sequence,
                bodies=[b"%d" % (sequence + at) for at in range(count)],
            )
            frames_.append((self._opaque, request.to_bytes()))
        self._socket.sendall(frames.encode_requests(APPEND_IDEMPOTENT_BATCH, frames_))
        return [opaque for opaque, _ in frames_]

    def append_batches(self, producer: int, *batches: tuple[int, int]) -> list[dict[str, object]]:
        """Send batches in one write and return their answers."""
        opaques = self.send_batches(producer, *batches)
        return [json.loads(self.answer(opaque).body) for opaque in opaques]
