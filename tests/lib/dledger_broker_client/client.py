"""`BrokerClient`: one connection to a broker, one request at a time or many."""

import socket
from collections.abc import Iterable
from typing import Self

from dledger_formats.peers import split_address
from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.rocketmq import answers, message_record
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.consumer_groups import (
    Consumer,
    ConsumerIds,
    Heartbeat,
    LockedQueues,
    LockQueues,
    MessageQueue,
    Subscription,
)
from dledger_formats.rocketmq.message_record import MessageRecord
from tools.groups.waiting import wait_for

Ext = dict[str, str]


class BrokerClient:
    """A context manager around one connection."""

    def __init__(
        self, address: str, timeout_s: float = 30.0, version: int = 0, from_host: str = ""
    ) -> None:
        """`version` is the release that this client claims to be; `from_host` is its own IP."""
        host, port = split_address(address)
        self._socket = socket.create_connection(
            (host, port), timeout=timeout_s, source_address=(from_host, 0)
        )
        self._decoder = FrameDecoder(header_bytes_max=answers.HEADER_BYTES_MAX)
        self._answers: dict[int, RemotingCommand] = {}
        self._opaque = 0
        self._version = version
        self.requests: list[RemotingCommand] = []
        """The requests that the broker has sent to this client."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def begin(self, code: int, ext: Ext | None = None, body: bytes = b"", flag: int = 0) -> int:
        """Send a request; return its opaque."""
        self._socket.sendall(self._encoded(code, ext or {}, body, flag))
        return self._opaque

    def begin_all(self, *requests: tuple[int, Ext, bytes]) -> list[int]:
        """Send requests with one write; return their opaques."""
        first = self._opaque + 1
        self._socket.sendall(b"".join([self._encoded(*each) for each in requests]))
        return list(range(first, self._opaque + 1))

    def _encoded(self, code: int, ext: Ext, body: bytes, flag: int = 0) -> bytes:
        self._opaque += 1
        command = RemotingCommand(
            code=code, opaque=self._opaque, flag=flag, ext_fields=ext, body=body,
            version=self._version,
        )  # fmt: skip
        return frames.encode(command)

    def answer(self, opaque: int) -> RemotingCommand:
        """Wait for the answer to a request. Raises ConnectionError if the connection ends."""
        while opaque not in self._answers:
            self._read()
        return self._answers.pop(opaque)

    def request(self) -> RemotingCommand:
        """Wait for the next request of the broker."""
        while not self.requests:
            self._read()
        return self.requests.pop(0)

    def _read(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("the broker closed the connection")
        for command in self._decoder.feed(data):
            if command.is_response:
                self._answers[command.opaque] = command
            else:
                self.requests.append(command)

    def ask(self, code: int, ext: Ext | None = None, body: bytes = b"") -> RemotingCommand:
        """Send a request and wait for its answer."""
        return self.answer(self.begin(code, ext, body))

    def send(self, topic: str, body: bytes = b"body", **changed: str) -> RemotingCommand:
        """Send one message to queue 0; `changed` replaces ext fields."""
        return self.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, **changed), body)

    def pull(self, name: str, offset: int = 0, **changed: str) -> RemotingCommand:
        """Pull from queue 0 of a topic, without waiting for messages; `changed` replaces fields."""
        return self.ask(RequestCode.PULL_MESSAGE, pull_ext(name, offset) | changed)

    def beat(self, client_id: str, *consumers: Consumer) -> RemotingCommand:
        """Send a heartbeat of a client."""
        heartbeat = Heartbeat(client_id=client_id, consumer_data_set=list(consumers))
        return self.ask(RequestCode.HEART_BEAT, body=heartbeat.to_json())

    def client_ids(self, group: str) -> list[str]:
        """Return the clients of a group; empty if the broker says that there are none."""
        answer = self.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        if answer.code != ResponseCode.SUCCESS:
            return []
        return ConsumerIds.from_json(answer.body).consumer_id_list

    def lock(self, client_id: str, group: str, topic: str, *queues: int) -> list[int]:
        """Ask for locks of queues; return those that the client now holds."""
        answer = self.ask(
            RequestCode.LOCK_BATCH_MQ, body=lock_body(client_id, group, topic, queues)
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return sorted(queue.queue_id for queue in LockedQueues.from_json(answer.body).locked)

    def unlock(self, client_id: str, group: str, topic: str, *queues: int) -> RemotingCommand:
        """Give queues back."""
        body = lock_body(client_id, group, topic, queues)
        return self.ask(RequestCode.UNLOCK_BATCH_MQ, body=body)

    def wait_until_visible(self, topic: str, count: int) -> None:
        """Wait until this member has `count` messages in queue 0, and can serve them.

        A message is acknowledged a little earlier, once a quorum holds it.
        """

        def served() -> bool:
            ext = pull_ext(topic, count - 1, sysFlag="6", suspendTimeoutMillis="1000")
            return self.ask(RequestCode.PULL_MESSAGE, ext).code == ResponseCode.SUCCESS

        wait_for(served, f"{count} messages of {topic} are visible")


def send_ext(topic: str, **changed: str) -> Ext:
    """Return the ext fields of a send."""
    return {
        "a": "producers", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0",
        "g": "1795306882675", "h": "0", "i": "KEYS\x01key\x02", "j": "0", "k": "false",
        "m": "false",
    } | changed  # fmt: skip


def pull_ext(topic: str, offset: int, **changed: str) -> Ext:
    """Return the ext fields of a pull."""
    return {
        "consumerGroup": "consumers", "topic": topic, "queueId": "0", "queueOffset": str(offset),
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "1", "expressionType": "TAG",
    } | changed  # fmt: skip


def consumer(group: str, *topics: str, tags: str = "*", version: int = 1) -> Consumer:
    """Return a member of a consumer group that has subscribed to topics."""
    return Consumer(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        subscription_data_set=[
            Subscription(topic=topic, sub_string=tags, sub_version=version) for topic in topics
        ],
    )


def lock_body(client_id: str, group: str, topic: str, queues: Iterable[int]) -> bytes:
    """Return the body of a request for locks of queues of the broker `g`."""
    return LockQueues(
        consumer_group=group,
        client_id=client_id,
        mq_set=[MessageQueue(topic=topic, broker_name="g", queue_id=queue) for queue in queues],
    ).to_json()


def messages(answer: RemotingCommand) -> list[MessageRecord]:
    """Return the messages of the answer to a pull."""
    return [message_record.decode(raw) for raw in message_record.divide(answer.body)]


def bodies(answer: RemotingCommand) -> list[bytes]:
    """Return the bodies of the messages of the answer to a pull."""
    return [record.body for record in messages(answer)]


def number(answer: RemotingCommand, name: str) -> int:
    """Return an ext field of an answer."""
    assert answer.ext_fields is not None, answer
    return int(answer.ext_fields[name])
