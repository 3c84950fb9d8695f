"""Sends and consumes many messages on real members, while leaders are killed, and judges the end.

    PYTHONPATH=tests/lib python -m dledger_broker_client.long_run --messages 1000000 --kills 20

Every acknowledged message must be delivered, at the offset and the position that its producer
received, and be in the log there, with its body; no offset is given to two messages, and no message
is delivered twice. Consumers go on within 10 s of each kill, and mostly within 2 s. The last line
reports the result; the exit code is 1 if anything is wrong.
"""

import argparse
import contextlib
import http.client
import logging
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.rocketmq_clients import log_bodies
from dledger_broker_client.client import BrokerClient, number
from dledger_broker_client.queue_clients import (
    REFUSED,
    QueueConsumer,
    QueueProducer,
    body_of,
    key_of,
)
from dledger_formats.rocketmq import message_record
from dledger_formats.rocketmq.codes import RequestCode
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

TOPIC: Final = "flights"
QUEUES: Final = 4
MEDIAN_S_MAX: Final = 2.0
GAP_S_MAX: Final = 10.0
PAUSE_S: Final = 1.0
"""Time between the return of a killed member and the next kill."""
logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Verdict:
    """The result of a run."""

    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    delivered: int = 0
    never_delivered: int = 0
    """Acknowledged messages that no consumer received."""
    misplaced: int = 0
    """Acknowledged messages whose offset or position differs from the one in the acknowledgement;
    an offset that was given out twice is one of these.
    """
    twice: int = 0
    wrong_bodies: int = 0
    """Messages that were delivered, or are in the log, with another body."""
    not_in_log: int = 0
    """Acknowledged messages that the log does not have at their position."""
    refused_but_delivered: int = 0
    moved: list[str] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    """Time from each kill until every consumer had received a message sent after it."""

    @property
    def is_good(self) -> bool:
        """Whether no promise was broken."""
        wrong = self.never_delivered + self.misplaced + self.twice + self.refused_but_delivered
        wrong += self.wrong_bodies + self.not_in_log + len(self.moved)
        gaps_s = self.gaps_s or [0.0]
        goes_on = statistics.median(gaps_s) < MEDIAN_S_MAX and max(gaps_s) < GAP_S_MAX
        return not wrong and goes_on and self.acknowledged > 0

    def __str__(self) -> str:
        gaps = sorted(self.gaps_s) or [0.0]
        return (
            f"acknowledged={self.acknowledged} refused={self.refused} unknown={self.unknown} "
            f"delivered={self.delivered} never_delivered={self.never_delivered} "
            f"misplaced={self.misplaced} twice={self.twice} wrong_bodies={self.wrong_bodies} "
            f"not_in_log={self.not_in_log} "
            f"refused_but_delivered={self.refused_but_delivered} moved={len(self.moved)} "
            f"kills={len(self.gaps_s)} gap_p50_s={statistics.median(gaps):.2f} "
            f"gap_max_s={gaps[-1]:.2f}"
        )


class LongRun:
    """Producers and consumers of all queues of one topic, and the kills meanwhile."""

    def __init__(self, group: BrokerGroup) -> None:
        self._group = group
        self.producers = [QueueProducer(TOPIC, one, self._members) for one in range(QUEUES)]
        self.consumers = [QueueConsumer(TOPIC, one, self._members) for one in range(QUEUES)]

    def run(self, messages: int, kills: int, within_s: float) -> Verdict:
        """Send `messages` or until the time is over, while `kills` leaders are killed."""
        verdict = Verdict()
        end_s = time.monotonic() + within_s
        with BrokerClient(self._members()[0]) as client:
            client.send("other", b"the broker serves")
        for thread in (*self.producers, *self.consumers):
            thread.start()
        while (self.sent < messages or len(verdict.gaps_s) < kills) and time.monotonic() < end_s:
            if len(verdict.gaps_s) < kills:
                verdict.gaps_s.append(self._kill_leader())
                logger.info("%d kills, %d sent", len(verdict.gaps_s), self.sent)
            else:
                time.sleep(0.1)
        for producer in self.producers:
            producer.stop()
        for producer in self.producers:
            producer.join()
        self._wait_for_consumers()
        return self._judged(verdict)

    @property
    def sent(self) -> int:
        """How many messages the producers have begun to send."""
        return sum(len(producer.fates.positions) for producer in self.producers)

    def _members(self) -> list[str]:
        return [self._group.broker_addresses[one] for one in self._group.running()]

    def _kill_leader(self) -> float:
        """Kill the leader; return the seconds until every consumer has received a message whose
        send began after that.
        """
        group = self._group
        leader = group.master()
        killed_s = time.monotonic()
        group.kill(leader)
        sent = [len(one.fates.positions) for one in self.producers]
        wait_for(
            lambda: all(
                one.newest >= first for one, first in zip(self.consumers, sent, strict=True)
            ),
            "every consumer gets messages again",
        )
        gap_s = time.monotonic() - killed_s
        group.start(leader)

        def is_back() -> bool:
            with contextlib.suppress(OSError, http.client.HTTPException):
                return group.status(leader).ready
            return False

        wait_for(is_back, f"{leader} is ready again")
        time.sleep(PAUSE_S)
        return gap_s

    def _wait_for_consumers(self) -> None:
        """Wait until the consumers have received everything in the queues, then stop them."""
        leader = self._group.broker_addresses[self._group.master()]
        ends = []
        with BrokerClient(leader) as client:
            for queue_id in range(QUEUES):
                ext = {"topic": TOPIC, "queueId": str(queue_id)}
                ends.append(number(client.ask(RequestCode.GET_MAX_OFFSET, ext), "offset"))
        wait_for(
            lambda: all(
                one.next_offset >= end for one, end in zip(self.consumers, ends, strict=True)
            ),
            "the consumers have everything",
        )
        for consumer in self.consumers:
            consumer.stop()
        for consumer in self.consumers:
            consumer.join()

    def _log_positions(self, verdict: Verdict) -> list[dict[int, int]]:
        """Return for each queue the position of each message in the log, by its number."""
        positions: list[dict[int, int]] = [{} for _ in range(QUEUES)]
        for body in log_bodies(self._group.servers, "g"):
            record = message_record.decode(body)
            if record.topic == TOPIC:
                key, of_queue = key_of(record), positions[record.queue_id]
                verdict.wrong_bodies += record.body != body_of(key)
                verdict.twice += key in of_queue
                of_queue[key] = record.physical_offset
        return positions

    def _judged(self, verdict: Verdict) -> Verdict:
        logged = self._log_positions(verdict)
        for producer, consumer, of_queue in zip(
            self.producers, self.consumers, logged, strict=True
        ):
            fates, came = producer.fates, consumer.positions
            verdict.delivered += len(came)
            verdict.twice += consumer.twice
            verdict.wrong_bodies += consumer.wrong
            verdict.moved += consumer.moved
            for key, position in enumerate(fates.positions):
                if position >= 0:
                    verdict.acknowledged += 1
                    verdict.never_delivered += key not in came
                    verdict.misplaced += came.get(key, position) != position
                    verdict.not_in_log += of_queue.get(key) != position
                elif position == REFUSED:
                    verdict.refused += 1
                    verdict.refused_but_delivered += key in came
                else:
                    verdict.unknown += 1
            verdict.misplaced += sum(
                consumer.offsets.get(key, offset) != offset for key, offset in fates.offsets.items()
            )
        return verdict


def main() -> int:
    """Run once, and print the result."""
    parser = argparse.ArgumentParser(prog="dledger_broker_client.long_run")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--within-s", type=float, default=240.0)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with (
        tempfile.TemporaryDirectory(prefix="long-run-") as folder,
        BrokerGroup(Path(folder), segment_size_bytes=1 << 26) as group,
    ):
        begun_s = time.monotonic()
        verdict = LongRun(group).run(arguments.messages, arguments.kills, arguments.within_s)
        print(f"{verdict} seconds={time.monotonic() - begun_s:.0f}")
        for each in verdict.moved[:10]:
            print(each)
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
