"""A producer and a consumer of one queue, for long runs in which members die.

Each message contains its number. The producer keeps batches in flight at one member, and continues
at another one when its connection breaks; it never resends a message, so none may arrive twice.
"""

import random
import threading
import time
from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from dledger_broker_client.client import BrokerClient, messages, number, pull_ext, send_ext
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq import message_batch, message_id
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.message_batch import BatchMessage
from dledger_formats.rocketmq.message_record import MessageRecord

BATCH: Final = 32
BATCHES_IN_FLIGHT: Final = 4
BODY_BYTES: Final = 100
PULLED_MAX: Final = 256
CONNECT_S: Final = 10.0
RETRY_S: Final = 0.05
UNKNOWN: Final = -1
REFUSED: Final = -2
_DIGITS: Final = 12


def body_of(key: int) -> bytes:
    """Return the body of the message with this number."""
    return str(key).zfill(_DIGITS).encode().ljust(BODY_BYTES, b".")


def key_of(record: MessageRecord) -> int:
    """Return the number of a message."""
    return int(record.body[:_DIGITS])


class Fates:
    """The outcomes of the messages of one queue, by their numbers."""

    def __init__(self) -> None:
        self.positions = array("q")
        """The log position of each acknowledged message; UNKNOWN or REFUSED for the others."""
        self.offsets: dict[int, int] = {}
        """The queue offset of the first message of each acknowledged batch, by its number."""

    @property
    def acknowledged(self) -> int:
        """How many messages were acknowledged."""
        return sum(position >= 0 for position in self.positions)


class QueueClient(ABC, threading.Thread):
    """Works at one queue through one member after the other, until it is stopped."""

    def __init__(
        self, topic: str, queue_id: int, members: Callable[[], Sequence[str]], seed: int
    ) -> None:
        """`members` returns the addresses of the running members."""
        super().__init__(daemon=True)
        self.failures = 0
        """Connections that broke."""
        self._topic, self._queue_id, self._members = topic, queue_id, members
        self._random = random.Random(seed)
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Send no further requests, and end once all are answered."""
        self._stopping.set()

    def run(self) -> None:
        """Work; after a lost connection, at another member."""
        while not self._stopping.is_set():
            try:
                address = self._random.choice(self._members())
                with BrokerClient(address, CONNECT_S) as client:
                    self.work_at(client)
            except OSError:
                self.failures += 1
                time.sleep(RETRY_S)

    @abstractmethod
    def work_at(self, client: BrokerClient) -> None:
        """Work through one connection until stopped. Raises OSError if it breaks."""


class QueueProducer(QueueClient):
    """Sends batches to one queue."""

    def __init__(self, topic: str, queue_id: int, members: Callable[[], Sequence[str]]) -> None:
        super().__init__(topic, queue_id, members, seed=queue_id)
        self.fates = Fates()

    def work_at(self, client: BrokerClient) -> None:
        """Keep batches in flight."""
        in_flight: deque[tuple[int, int]] = deque()
        while not self._stopping.is_set() or in_flight:
            if len(in_flight) < BATCHES_IN_FLIGHT and not self._stopping.is_set():
                first = len(self.fates.positions)
                self.fates.positions.extend([UNKNOWN] * BATCH)
                in_flight.append((first, self._begin(client, first)))
            else:
                first, opaque = in_flight.popleft()
                self._note(first, client.answer(opaque))

    def _begin(self, client: BrokerClient, first: int) -> int:
        batch = [BatchMessage(0, body_of(one), b"") for one in range(first, first + BATCH)]
        ext = send_ext(self._topic, e=str(self._queue_id), i="", m="true")
        return client.begin(RequestCode.SEND_BATCH_MESSAGE, ext, message_batch.encode(batch))

    def _note(self, first: int, answer: RemotingCommand) -> None:
        if answer.code == ResponseCode.SUCCESS:
            ids = (answer.ext_fields or {})["msgId"].split(",")
            positions = [message_id.parse(each).physical_offset for each in ids]
            self.fates.positions[first : first + BATCH] = array("q", positions)
            self.fates.offsets[first] = number(answer, "queueOffset")
        elif answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            self.fates.positions[first : first + BATCH] = array("q", [REFUSED] * BATCH)


class QueueConsumer(QueueClient):
    """Pulls one queue from its beginning, in order, and waits for more."""

    def __init__(self, topic: str, queue_id: int, members: Callable[[], Sequence[str]]) -> None:
        super().__init__(topic, queue_id, members, seed=100 + queue_id)
        self.positions: dict[int, int] = {}
        """The log position of each received message, by its number."""
        self.offsets: dict[int, int] = {}
        """The queue offset of each received message, by its number."""
        self.twice = 0
        """Number of messages that were received at two offsets."""
        self.wrong = 0
        """Number of messages that were received with another body."""
        self.moved: list[str] = []
        """Answers that would have moved this consumer, or skipped a message."""
        self.next_offset = 0
        self.newest = -1
        """The highest number that was received."""

    def work_at(self, client: BrokerClient) -> None:
        """Pull again and again."""
        while not self._stopping.is_set():
            self._pull(client)

    def _pull(self, client: BrokerClient) -> None:
        ext = pull_ext(
            self._topic, self.next_offset, queueId=str(self._queue_id), sysFlag="6",
            suspendTimeoutMillis="1000", maxMsgNums=str(PULLED_MAX),
        )  # fmt: skip
        answer = client.ask(RequestCode.PULL_MESSAGE, ext)
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self.moved.append(f"from {self.next_offset} to {number(answer, 'nextBeginOffset')}")
        if answer.code != ResponseCode.SUCCESS:
            return
        for record in messages(answer):
            if record.queue_offset != self.next_offset:
                self.moved.append(f"offset {record.queue_offset}, where {self.next_offset} is next")
            key = key_of(record)
            self.wrong += record.body != body_of(key)
            self.twice += key in self.positions
            self.positions[key] = record.physical_offset
            self.offsets[key] = record.queue_offset
            self.next_offset = record.queue_offset + 1
            self.newest = max(self.newest, key)
