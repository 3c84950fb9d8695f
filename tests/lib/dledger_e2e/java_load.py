"""RocketMQ's own producer and consumer, which use a group of brokers while something happens."""

import contextlib
import statistics
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self

from bench.rocketmq_judge import MessageJudge, Verdict, place_of
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
MEDIAN_S_MAX: Final = 2.0
"""The median of three or more pauses, in a failover as in a planned change."""
PAUSE_S_MAX: Final = 10.0
OWN_TIMEOUT_S: Final = 30.0
"""After this time a client gives up a request whose connection vanished, and asks again."""
FAILED_AT_A_KILL_MAX: Final = 2
"""Further connections of a send may lead to the dead pod, until kube-proxy learns of its end. In
one of nine kills, all three tries of one send are lost in this way.
"""
READ_AT_ONCE: Final = 20_000
"""Entries of the log that one command reads."""


class JavaLoad:
    """A producer and a push consumer of the group's topic, in the client's pod."""

    def __init__(self, group: Group, name_server: str, *, pause_ms: int = 2) -> None:
        """The producer waits `pause_ms` after each send."""
        self._group = group
        self._producer = JavaClient(
            group, "send", name_server, topic=TOPIC, count=10_000_000, pause=pause_ms
        )
        self._consumer = JavaClient(group, "push", name_server, topic=TOPIC, group=CONSUMERS)
        self._stack = contextlib.ExitStack()
        self.pauses_s: dict[str, list[tuple[float, float]]] = {}
        """By change, the longest time between two acknowledgments, and between two deliveries."""
        self._verdict: Verdict | None = None

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
        """Check that what was acknowledged is delivered and in the log, and nothing is there twice
        but what the clients repeat themselves (`MessageJudge`).
        """
        judge, sends = MessageJudge(TOPIC), [*self._producer.events]
        wanted = {(e["key"], place_of(e)) for _, e in sends if e["event"] == "sent"}
        self._consumer.wait_until(
            lambda: wanted <= {(e["key"], place_of(e)) for e in self._consumer.of_kind("received")},
            "every acknowledged message is delivered",
            timeout_s=60,
        )
        for at_s, event in (*sends, *self._consumer.events):
            judge.take(event, at_s)
        judge.take_log(self._log())  # last: it has more than was delivered when this began
        self._verdict = judge.verdict()
        assert not self._verdict.faults, self._verdict.faults[:10]

    def assert_pauses_are_short(
        self, send_s_max: float = PAUSE_S_MAX, delivery_s_max: float = PAUSE_S_MAX
    ) -> None:
        """Check each pause of each change, and the median of three or more."""
        for change, pauses_s in self.pauses_s.items():
            sends_s, deliveries_s = zip(*pauses_s, strict=True)
            assert max(sends_s) < send_s_max, f"{change}: {_summary(change, pauses_s)}"
            assert max(deliveries_s) < delivery_s_max, f"{change}: {_summary(change, pauses_s)}"
            if len(pauses_s) >= 3:
                medians_s = statistics.median(sends_s), statistics.median(deliveries_s)
                assert max(medians_s) < MEDIAN_S_MAX, f"{change}: {_summary(change, pauses_s)}"

    def _log(self) -> Iterator[bytes]:
        """Yield the body of each entry that is committed now."""
        group = self._group
        group.start_client()
        status = group.node_status(group.leader_pod())
        assert status is not None
        for first in range(status.ledger_begin_index, status.committed_index + 1, READ_AT_ONCE):
            last = min(first + READ_AT_ONCE - 1, status.committed_index)
            yield from group.bodies(first, last)

    def __str__(self) -> str:
        lines = [
            f"{len(self.failed)} sends failed; {self._verdict}",
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
