"""Measure how much memory a broker with many topics and clients needs beyond a plain member's.

    python -m bench.rocketmq_memory     or: --gib 1 2 10 --topics 1000 --clients 1000

One member, AsyncFlush. A plain member gets appends of 1 KiB until its log has each size. A broker
gets topics of 8 queues, a message in each queue, and clients in groups of 10, each of which has a
connection, sends a heartbeat and holds a pull; then messages of 1 KiB until its log has the same
sizes. The figures are the resident memory of the processes without mapped files, 10 s after each
load. The target is at most 96 MiB more than the plain member, at any size of the log.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.append import memory_mib
from bench.bare_client import Load, bare_load
from bench.pulling_clients import Client, clients_of, pull_ext, send_ext
from bench.rocketmq_send import QUEUES, SEGMENT_BYTES
from bench.rocketmq_send import measure as send_for
from dledger_formats.http.status import FlushDiskType, Manifest
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.consumer_groups import Consumer, Heartbeat, Subscription
from dledger_formats.rocketmq.topics import CreateTopicFields
from tools.groups.broker_group import BrokerGroup
from tools.groups.node_group import NodeGroup

BODY_BYTES: Final = 1024
MEMBER: Final = "n0"
SETTLE_S: Final = 10.0
GROUP_CLIENTS: Final = 10
HOLD_MS: Final = 20_000
HEARTBEAT_S: Final = 30.0
"""How often clients send heartbeats while the log grows."""
AT_ONCE: Final = 200
"""Requests in flight while topics are created."""
SETTINGS: Final[dict[str, Any]] = {
    "flush_disk_type": FlushDiskType.ASYNC_FLUSH,
    "segment_size_bytes": SEGMENT_BYTES,
    "index_segment_size_bytes": 32 * 1_000_000,
}


def log_bytes(group: NodeGroup) -> int:
    """Return the size of the member's log."""
    manifest = Manifest.from_json(group.get(MEMBER, "/manifest")[1])
    return sum(each.readable_bytes for each in manifest.data)


def settled_mib(group: NodeGroup) -> int:
    """Return the member's own memory in MiB, once it is at rest."""
    time.sleep(SETTLE_S)
    return memory_mib(group.process_id(MEMBER))[0]


def of_plain_member(sizes: Sequence[int]) -> Iterator[int]:
    """Yield a plain member's memory at its start, and at each size of its log."""
    with tempfile.TemporaryDirectory() as folder, NodeGroup(Path(folder), 1, **SETTINGS) as group:
        group.master()
        yield settled_mib(group)
        second = Load(in_flight=1000, body_bytes=BODY_BYTES, seconds=1.0)
        for size in sizes:
            while log_bytes(group) < size:
                uvloop.run(bare_load(group.peers[MEMBER], "g", MEMBER, second))
            yield settled_mib(group)


class Broker:
    """A broker with topics and clients."""

    def __init__(self, topics: int, clients: int) -> None:
        self._topics = [f"topic-{number}" for number in range(topics)]
        self._clients = clients

    def memory_mib(self, sizes: Sequence[int]) -> Iterator[int]:
        """Yield the memory at the start, with all topics and clients, and at each size of log."""
        with (
            tempfile.TemporaryDirectory() as folder,
            BrokerGroup(
                Path(folder), 1, connections_max=2 * self._clients,
                connections_per_address_max=2 * self._clients, **SETTINGS,
            ) as group,
        ):  # fmt: skip
            group.master()
            yield settled_mib(group)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                yield from self._with_clients(group, runner, sizes)

    def _with_clients(
        self, group: BrokerGroup, runner: asyncio.Runner, sizes: Sequence[int]
    ) -> Iterator[int]:
        address = group.broker_addresses[MEMBER]
        runner.run(self._make_topics(address))
        stack = AsyncExitStack()
        clients = runner.run(stack.enter_async_context(clients_of([address] * self._clients)))
        try:
            runner.run(self._join(clients))
            yield self._settled_mib(group, runner, clients)
            second = Load(in_flight=1000, body_bytes=BODY_BYTES, seconds=1.0)
            for size in sizes:
                heartbeat_s = time.monotonic() + HEARTBEAT_S
                while log_bytes(group) < size:
                    runner.run(send_for(address, second))
                    if time.monotonic() > heartbeat_s:  # else the member closes idle connections
                        runner.run(self._join(clients))
                        heartbeat_s = time.monotonic() + HEARTBEAT_S
                yield self._settled_mib(group, runner, clients)
        finally:
            runner.run(stack.aclose())

    async def _make_topics(self, address: str) -> None:
        """Create all topics, and send a message to each of their queues."""
        room = asyncio.Semaphore(AT_ONCE)

        async def make(client: Client, topic: str) -> None:
            async with room:
                await succeed(client, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic))
                for queue_id in range(QUEUES):
                    send = send_ext(topic, queue_id)
                    await succeed(client, RequestCode.SEND_MESSAGE_V2, send, bytes(BODY_BYTES))

        async with clients_of([address]) as [client]:
            await asyncio.gather(*(make(client, topic) for topic in self._topics))

    async def _join(self, clients: Sequence[Client]) -> None:
        for number, client in enumerate(clients):
            await succeed(client, RequestCode.HEART_BEAT, {}, self._heartbeat(number).to_json())

    def _topic_of(self, number: int) -> str:
        return self._topics[number % len(self._topics)]

    def _heartbeat(self, number: int) -> Heartbeat:
        topic = self._topic_of(number)
        consumer = Consumer(
            group_name=f"group-{number // GROUP_CLIENTS}",
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscription_data_set=[Subscription(topic=topic, sub_string="*", sub_version=1)],
        )
        return Heartbeat(client_id=f"192.0.2.1@client-{number}", consumer_data_set=[consumer])

    def _settled_mib(
        self, group: BrokerGroup, runner: asyncio.Runner, clients: Sequence[Client]
    ) -> int:
        """Return the memory while all clients hold pulls."""
        held = []
        for number, client in enumerate(clients):
            ext = pull_ext(self._topic_of(number), number % QUEUES, 1, hold_ms=HOLD_MS)
            held.append((client, ext))

        async def hold() -> int:
            answers = [client.ask(RequestCode.PULL_MESSAGE, ext) for client, ext in held]
            mib = await asyncio.to_thread(settled_mib, group)
            assert not any(answer.done() for answer in answers), "a pull was not held"
            await asyncio.gather(*answers)
            return mib

        return runner.run(hold())


def topic_ext(topic: str) -> dict[str, str]:
    """Return the fields of UPDATE_AND_CREATE_TOPIC."""
    return CreateTopicFields(
        topic=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6,
        topic_filter_type="SINGLE_TAG", default_topic="TBW102", topic_sys_flag=0, order=False,
    ).to_ext()  # fmt: skip


async def succeed(client: Client, code: int, ext: dict[str, str], body: bytes = b"") -> None:
    """Send a request, and expect it to succeed."""
    answer = await client.ask(code, ext, body)
    assert answer.code == ResponseCode.SUCCESS, answer


def main() -> None:
    """Measure both, and print a line for each size of the log."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gib", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=1000)
    arguments = parser.parse_args()
    sizes = [int(gib * 2**30) for gib in arguments.gib]
    plain = list(of_plain_member(sizes))
    started, full, *grown = Broker(arguments.topics, arguments.clients).memory_mib(sizes)
    print("own memory in MiB                    plain member   broker   difference")
    print(f"{'at the start':36} {plain[0]:12} {started:8} {started - plain[0]:12}")
    what = f"{arguments.topics:,} topics, {arguments.clients:,} clients"
    print(f"{what:36} {'':12} {full:8} {full - plain[0]:12}")
    for gib, own, of_broker in zip(arguments.gib, plain[1:], grown, strict=True):
        print(f"{f'{gib:g} GiB of log besides':36} {own:12} {of_broker:8} {of_broker - own:12}")


if __name__ == "__main__":
    main()
