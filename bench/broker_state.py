"""What the derived state of a broker costs: processor µs per message, and a full state's copy.

    python -m bench.broker_state      or, with another number of messages: --messages 100000

The messages have 1 KiB and go to 64 queues, as a member reads them from its log. Each figure is the
minimum of several runs.
"""

import argparse
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from dledger_broker.queues.checkpoint import Mark
from dledger_broker.queues.queue_store import QueueStore
from dledger_broker.state.broker_state import BrokerState
from dledger_formats.rocketmq import message_record
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.topics import TopicConfig

QUEUES: Final = 8
TOPICS: Final = 8
BATCH: Final = 1024
RUNS: Final = 3
PROPERTIES: Final = (
    b"KEYS\x01key0\x02UNIQ_KEY\x017F0000011F9830946E096C391E190000\x02WAIT\x01true\x02"
    b"TAGS\x01TagA\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
)


class Entry(NamedTuple):
    """A committed entry."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here
    body: bytes


def least_s(work: Callable[[], object]) -> float:
    """Return the processor seconds of the fastest run."""
    fastest_s = float("inf")
    for _ in range(RUNS):
        begun_s = time.thread_time()
        work()
        fastest_s = min(fastest_s, time.thread_time() - begun_s)
    return fastest_s


def log_of(messages: int) -> list[list[Entry]]:
    """Return batches of messages, which go to all queues in turn."""
    body = bytes(1024)
    entries = []
    for index in range(messages):
        queue = index % (TOPICS * QUEUES)
        record = MessageRecord(
            f"topic-{queue % TOPICS}", queue // TOPICS, index // (TOPICS * QUEUES),
            48 + index * 2048, body, PROPERTIES,
        )  # fmt: skip
        entries.append(Entry(index, bytes(message_record.encode(record))))
    return [entries[at : at + BATCH] for at in range(0, messages, BATCH)]


def apply_all(batches: list[list[Entry]]) -> BrokerState:
    """Apply all messages to a new state."""
    state = BrokerState()
    for batch in batches:
        state.apply(batch)
    return state


def build_all(batches: list[list[Entry]]) -> None:
    """Build the consume queues of all messages in a new folder."""
    with tempfile.TemporaryDirectory() as name:
        store = QueueStore.open(Path(name), begin_index=0, mark_of=lambda _: None)
        for batch in batches:
            store.add(batch, Mark(batch[-1].index, 1, 0, 0))
        store.save()
        store.close()


def full_state() -> BrokerState:
    """Return a state with 10,000 topics, 80,000 queues and 800,000 consumer offsets."""
    state = BrokerState()
    for number in range(10_000):
        name = f"topic-{number}"
        config = TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=8, perm=6)
        state.tables.topics.set(config, number)
        for group in range(10):
            for queue_id in range(8):
                state.tables.offsets.set(f"group-{group}", name, queue_id, number)
    return state


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=65_536)
    messages = parser.parse_args().messages
    batches = log_of(messages)
    for what, work in (
        ("state", lambda: apply_all(batches)),
        ("queues, with files and one sync", lambda: build_all(batches)),
    ):
        cost_us = least_s(work) / messages * 1e6
        print(f"{what:34} {cost_us:6.2f} µs per message   {1e6 / cost_us:,.0f} messages/s")
    state = full_state()
    dumped = b"".join(state.dump())
    print("10,000 topics, 80,000 queues, 800,000 consumer offsets:")
    print(f"  copy {least_s(state.copy) * 1000:.0f} ms")
    print(f"  dump {least_s(lambda: list(state.dump())) * 1000:.0f} ms, {len(dumped):,} bytes")
    print(f"  load {least_s(lambda: BrokerState().load(io.BytesIO(dumped))) * 1000:.0f} ms")


if __name__ == "__main__":
    main()
