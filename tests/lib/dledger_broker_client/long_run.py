"""Sends and consumes many messages on real members, while leaders are killed, and judges the end.

    PYTHONPATH=tests/lib python -m dledger_broker_client.long_run --messages 1000000 --kills 20

Every acknowledged message must be delivered, at the offset and the position that its producer
received; no offset is given to two messages, and no message is delivered twice. The last line
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

from dledger_broker_client.client import BrokerClient, number
from dledger_broker_client.queue_clients import REFUSED, QueueConsumer, QueueProducer
from dledger_formats.rocketmq.codes import RequestCode
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

TOPIC: Final = "flights"
QUEUES: Final = 4
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
    refused_but_delivered: int = 0
    moved: list[str] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    """Time from each kill until every consumer had received a message sent after it."""

    @property
    def is_good(self) -> bool:
        """Whether no promise was broken."""
        wrong = self.never_delivered + self.misplaced + self.twice + self.refused_but_delivered
        return not (wrong or self.moved) and self.acknowledged > 0

    def __str__(self) -> str:
        gaps = sorted(self.gaps_s) or [0.0]
        return (
            f"acknowledged={self.acknowledged} refused={self.refused} unknown={self.unknown} "
            f"delivered={self.delivered} never_delivered={self.never_delivered} "
            f"misplaced={self.misplaced} twice={self.twice} "
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

    def _judged(self, verdict: Verdict) -> Verdict:
        for producer, consumer in zip(self.producers, self.consumers, strict=True):
            fates, came = producer.fates, consumer.positions
            verdict.delivered += len(came)
            verdict.twice += consumer.twice
            verdict.moved += consumer.moved
            for key, position in enumerate(fates.positions):
                if position >= 0:
                    verdict.acknowledged += 1
                    verdict.never_delivered += key not in came
                    verdict.misplaced += came.get(key, position) != position
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
