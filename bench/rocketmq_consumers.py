"""Measures how many messages consumers of a broker get, how soon, and what the members spend.

    python -m bench.rocketmq_consumers      or a part: --parts pulls delivery held restart

Real members with default timers, AsyncFlush, and bare clients on the same machine. Messages have
1 KiB.

    pulls       one member serves messages from the page cache, 32 messages a pull, 8 queues; also
                to consumers of a tag that one message in 8 has
    delivery    100 sends a second, each by the next member, from when the send was due until a pull
                that each member holds returns the message
    held        what a member costs while it holds 2,000 pulls, and without them
    restart     a member with that log is killed and started, until it serves its last message
"""

import argparse
import asyncio
import re
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from bench.append import processor_s
from bench.bare_client import Load, run_load
from bench.idle import TIMING
from bench.pulling_clients import Client, Puller, clients_of, pull_ext, send_ext
from bench.rocketmq_send import QUEUES, SEGMENT_BYTES, producer
from dledger_formats.http.status import FlushDiskType, Manifest
from dledger_formats.peers import split_address
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.message_record import decode, divide
from tools.groups.broker_group import BrokerGroup
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

TOPIC: Final = "bench"
BODY: Final = bytes(1024)
HOLD_MS: Final = 20_000
HELD: Final = 2_000
HELD_CLIENTS: Final = 20
SENDS_PER_S: Final = 100
PARTS: Final = ("pulls", "delivery", "held", "restart")


def _itself(puller: Puller) -> Puller:
    return puller


async def pull_for(
    address: str, ends: list[int], tags: str, seconds: float
) -> tuple[float, float, float]:
    """Pull all queues at once; return the messages passed, the MiB and the pulls per second."""
    until_s = time.perf_counter() + seconds
    host, port = split_address(address)
    pullers = [Puller(TOPIC, number, end, tags, until_s) for number, end in enumerate(ends)]
    for puller in pullers:
        loop = asyncio.get_running_loop()
        await loop.create_connection(partial(_itself, puller), host, port)
    await asyncio.gather(*(each.done for each in pullers))
    return (
        sum(each.passed for each in pullers) / seconds,
        sum(each.received_bytes for each in pullers) / seconds / 2**20,
        sum(each.pulls for each in pullers) / seconds,
    )


async def ends_of(address: str) -> list[int]:
    """Return the end offset of each queue."""
    async with clients_of([address]) as [client]:
        answers = [
            await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": str(number)})
            for number in range(QUEUES)
        ]
    return [int((answer.ext_fields or {})["offset"]) for answer in answers]


async def fill(address: str, seconds: float) -> None:
    """Send messages to all queues; those of queue 0 have the tag TagB, and the others TagA."""
    for number in range(QUEUES):
        load = Load(in_flight=256, body_bytes=len(BODY), seconds=seconds / QUEUES)
        await run_load(address, producer(load, number, tag="TagB" if number == 0 else "TagA"))


def measure_pulls(group: BrokerGroup, seconds: float) -> Iterator[str]:
    """Yield the rates at which one member serves messages."""
    member = group.master()
    address = group.broker_addresses[member]
    ends = uvloop.run(ends_of(address))
    yield f"{sum(ends):,} messages of 1 KiB in {QUEUES} queues of {member}, the leader"
    for tags in ("*", "TagA", "TagB"):
        before_s = processor_s(group.process_id(member))
        passed, mib, pulls = uvloop.run(pull_for(address, ends, tags, seconds))
        used = (processor_s(group.process_id(member)) - before_s) / seconds
        yield (
            f"pulls of {tags:5} {passed:9,.0f} messages/s passed, {mib:6.1f} MiB/s, "
            f"{pulls:7,.0f} pulls/s, {used:.2f} processors of the member"
        )


async def deliver(addresses: list[str], seconds: float) -> list[float]:
    """Send at a steady rate; return the time of each message to each consumer, in ms, sorted.

    No send waits for another one, and the time begins when the send was due.
    """
    took_ms: list[float] = []
    count = int(SENDS_PER_S * seconds)

    async def consume(client: Client) -> None:
        offset = 0
        while offset < count:
            answer = await client.ask(
                RequestCode.PULL_MESSAGE, pull_ext("delivery", 0, offset, hold_ms=HOLD_MS)
            )
            now_s = time.perf_counter()
            if answer.code == ResponseCode.SUCCESS:
                offset = int((answer.ext_fields or {})["nextBeginOffset"])
                numbers = [int(bytes(decode(each).body)) for each in divide(answer.body)]
                took_ms.extend((now_s - due_s(number)) * 1000 for number in numbers)

    async def send(number: int) -> None:
        await asyncio.sleep(max(0.0, due_s(number) - time.perf_counter()))
        body = b"%d" % number
        sender = producers[number % len(producers)]
        answer = await sender.ask(
            RequestCode.SEND_MESSAGE_V2, send_ext("delivery", 0), body.rjust(len(BODY))
        )
        assert answer.code == ResponseCode.SUCCESS, answer

    async with clients_of(addresses) as consumers, clients_of(addresses) as producers:
        first = await producers[0].ask(RequestCode.SEND_MESSAGE_V2, send_ext("delivery", 1), BODY)
        assert first.code == ResponseCode.SUCCESS, first
        begun_s = time.perf_counter()

        def due_s(number: int) -> float:
            return begun_s + number / SENDS_PER_S

        await asyncio.gather(*map(consume, consumers), *map(send, range(count)))
    return sorted(took_ms)


def measure_delivery(group: BrokerGroup, seconds: float) -> Iterator[str]:
    """Yield how soon messages are delivered."""
    took_ms = uvloop.run(deliver(list(group.broker_addresses.values()), seconds))
    count = len(took_ms)
    yield (
        f"sent to delivered, {SENDS_PER_S}/s, {count:,} deliveries: "
        f"p50 {took_ms[count // 2]:.2f} ms, p99 {took_ms[count * 99 // 100]:.2f} ms, "
        f"max {took_ms[-1]:.2f} ms"
    )


async def hold(address: str, group: BrokerGroup, member: str, seconds: float) -> float:
    """Let a member hold pulls, and measure it; return what share of a processor it uses."""
    async with clients_of([address] * HELD_CLIENTS) as clients:
        [end, *_] = await ends_of(address)
        ext = pull_ext(TOPIC, 0, end, hold_ms=HOLD_MS)

        async def keep(client: Client, number: int) -> None:
            # Spread over the time of a hold, like pulls of clients that began at different times.
            await asyncio.sleep(number * HOLD_MS / 1000 / HELD)
            while True:
                await client.ask(RequestCode.PULL_MESSAGE, ext)

        tasks = [
            asyncio.create_task(keep(clients[number % HELD_CLIENTS], number))
            for number in range(HELD)
        ]
        await asyncio.sleep(HOLD_MS / 1000 + 1.0)
        page = group.get(member, "/metrics")[1].decode()
        [line] = re.findall(r"^dledger_broker_held_pulls (\S+)$", page, re.MULTILINE)
        # A pull that is just being sent again is not held.
        assert 0.98 * HELD <= float(line) <= HELD, f"the member holds {line} pulls"
        used = await _share(group, member, seconds)
        for task in tasks:
            task.cancel()
        return used


async def _share(group: BrokerGroup, member: str, seconds: float) -> float:
    before_s = processor_s(group.process_id(member))
    await asyncio.sleep(seconds)
    return (processor_s(group.process_id(member)) - before_s) / seconds


def measure_held(group: BrokerGroup, seconds: float) -> Iterator[str]:
    """Yield what held pulls cost."""
    member = group.master()
    idle = uvloop.run(_share(group, member, seconds))
    address = group.broker_addresses[member]
    used = uvloop.run(hold(address, group, member, max(seconds, HOLD_MS / 1000 + 1)))
    yield (
        f"{HELD:,} held pulls: {100 * used:.2f} % of a processor, {100 * idle:.2f} % without them; "
        f"each is asked again every {HOLD_MS // 1000} s"
    )


def measure_restart(group: BrokerGroup, seconds: float) -> Iterator[str]:
    """Yield how long a killed member takes, once started, until it serves its last message."""
    leader = group.master()
    member = next(each for each in group.peers if each != leader)
    address = group.broker_addresses[member]
    end = uvloop.run(ends_of(address))[QUEUES - 1]
    manifest = Manifest.from_json(group.get(member, "/manifest")[1])
    log_bytes = sum(each.readable_bytes for each in manifest.data)

    async def serves() -> bool:
        async with clients_of([address]) as [client]:
            answer = await client.ask(
                RequestCode.PULL_MESSAGE, pull_ext(TOPIC, QUEUES - 1, end - 1)
            )
        return answer.code == ResponseCode.SUCCESS

    def served() -> bool:
        try:
            return uvloop.run(serves())
        except OSError:
            return False

    group.kill(member)
    begun_s = time.perf_counter()
    group.start(member)
    NodeGroup.wait_until_up(group, member)
    status_s = time.perf_counter() - begun_s
    group.wait_until_up(member)
    accepts_s = time.perf_counter() - begun_s
    wait_for(served, f"{member} serves its last message", timeout_s=60 + seconds)
    used_s = processor_s(group.process_id(member))
    yield (
        f"a member with {log_bytes / 2**30:.2f} GiB of log, killed and started: serves its last "
        f"message after {time.perf_counter() - begun_s:.2f} s and {used_s:.2f} s of processor (its "
        f"status page after {status_s:.2f} s, accepts clients after {accepts_s:.2f} s)"
    )


def main() -> None:
    """Measure the parts and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of each measurement")
    parser.add_argument("--fill-seconds", type=float, default=16.0, help="how long to send before")
    arguments = parser.parse_args()
    measures = dict(
        zip(PARTS, (measure_pulls, measure_delivery, measure_held, measure_restart), strict=True)
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerGroup(
            Path(folder), flush_disk_type=FlushDiskType.ASYNC_FLUSH,
            segment_size_bytes=SEGMENT_BYTES, index_segment_size_bytes=32 * 1_000_000,
            heartbeat_interval_ms=TIMING["heartbeat_interval_ms"],
            election_timeout_ms=TIMING["election_timeout_ms"],
        ) as group,
    ):  # fmt: skip
        uvloop.run(fill(group.broker_addresses[group.master()], arguments.fill_seconds))
        for part in arguments.parts:
            for line in measures[part](group, arguments.seconds):
                print(line, flush=True)


if __name__ == "__main__":
    main()
