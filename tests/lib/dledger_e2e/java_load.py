"""RocketMQ's own producer and consumer, which use a group of brokers while something happens."""

import contextlib
import statistics
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self

from dledger_e2e.group import Group
from dledger_e2e.rocketmq import Event, JavaClient

NAME_SERVER: Final = "orders-broker:9876"
"""The group of `examples/broker.yaml`, which answers as its own name server."""
TOPIC: Final = "orders"
CONSUMERS: Final = "billing"
AROUND: Final = 200
"""Messages that are sent and delivered before and after each change."""
GOES_ON_S: Final = 90.0
"""A client whose connection vanished waits for its own time-out of 30 s, perhaps twice."""


class JavaLoad:
    """A producer and a push consumer of the group's topic, in the client's pod."""

    def __init__(self, group: Group, name_server: str, *, pause_ms: int = 2) -> None:
        """The producer waits `pause_ms` after each send."""
        self._producer = JavaClient(
            group, "send", name_server, topic=TOPIC, count=10_000_000, pause=pause_ms
        )
        self._consumer = JavaClient(group, "push", name_server, topic=TOPIC, group=CONSUMERS)
        self._stack = contextlib.ExitStack()
        self.pauses_s: dict[str, list[tuple[float, float]]] = {}
        """By change, the longest time between two acknowledgments, and between two deliveries."""

    def __enter__(self) -> Self:
        self._stack.enter_context(self._producer)
        self._stack.enter_context(self._consumer)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def failed(self) -> list[Event]:
        """The sends that failed, with what the client reported."""
        return self._producer.of_kind("failed")

    @contextlib.contextmanager
    def during(self, change: str) -> Iterator[None]:
        """Note how long the clients pause while the block changes something, and right after it."""
        self.wait_for_more()
        since = self._producer.count("sent") - 1, self._consumer.count("received") - 1
        yield
        self.wait_for_more(2 * AROUND)
        pauses_s = (
            self._producer.longest_pause_s("sent", since[0]),
            self._consumer.longest_pause_s("received", since[1]),
        )
        self.pauses_s.setdefault(change, []).append(pauses_s)

    def wait_for_more(self, count: int = AROUND) -> None:
        """Wait until more messages are acknowledged, and more are delivered."""
        self._producer.wait_for_more("sent", count, GOES_ON_S)
        self._consumer.wait_for_more("received", count, GOES_ON_S)

    def assert_nothing_was_lost(self) -> None:
        """Check that each acknowledged message is read at its place, and no place holds two."""
        acknowledged = self._producer.of_kind("sent")
        wanted = {event["key"] for event in acknowledged}
        self._consumer.wait_until(
            lambda: wanted <= {event["key"] for event in self._consumer.of_kind("received")},
            "every acknowledged message is delivered",
            timeout_s=60,
        )
        received = self._consumer.of_kind("received")
        assert {event["status"] for event in acknowledged} == {"SEND_OK"}
        delivered = {_place(event): event["key"] for event in received}
        assert all(delivered[_place(event)] == event["key"] for event in received)
        assert all(delivered.get(_place(event)) == event["key"] for event in acknowledged)
        assert len({_place(event) for event in acknowledged}) == len(acknowledged)

    def __str__(self) -> str:
        received = self._consumer.of_kind("received")
        again = len(received) - len({event["key"] for event in received})
        sent, failed = self._producer.count("sent"), len(self.failed)
        lines = [
            f"{sent} sends acknowledged, {failed} failed, {again} delivered twice",
            *(_summary(change, pauses) for change, pauses in self.pauses_s.items()),
            *(f"failed: {event}" for event in self.failed[:20]),
        ]
        return "\n".join(lines)


def _summary(change: str, pauses: Sequence[tuple[float, float]]) -> str:
    sends_s, deliveries_s = zip(*pauses, strict=True)
    told = [
        f"{what}: median {statistics.median(each):.2f} s, max {max(each):.2f} s"
        for what, each in (("pauses of sends", sends_s), ("of deliveries", deliveries_s))
    ]
    return f"{change}, {len(pauses)} times: {'; '.join(told)}"


def _place(event: Event) -> tuple[int, int]:
    return event["queue"], event["offset"]
