"""How fast a group of three brokers acknowledges sends: real brokers and a bare client.

    python -m bench.rocketmq_send       or, for other loads: --in-flight 1 64 1000 --seconds 5

The client sends prepared frames of SEND_MESSAGE_V2 to the leader, on one connection, to 8 queues of
one topic. Members and client share the machine. The table also has the leader's processor time for
each send, which depends less on other work of the machine than the rate does.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from bench.append import processor_s
from bench.bare_client import BareClient, Load, frame_around_opaque, run_load
from dledger_formats.http.status import FlushDiskType
from dledger_formats.rocketmq.codes import RequestCode
from dledger_formats.rocketmq.sends import SendMessageFields
from tools.groups.broker_group import BrokerGroup

QUEUES: Final = 8
PROPERTIES: Final = (
    "KEYS\x01key0\x02UNIQ_KEY\x017F0000011F9830946E096C391E190000\x02WAIT\x01true\x02TAGS\x01%s\x02"
)
SEGMENT_BYTES: Final = 256 << 20


class BareProducer(BareClient):
    """Sends prepared messages."""

    def is_success(self, frame: bytes, opaque_at: int) -> bool:
        """Return whether an answer acknowledges its send."""
        return b'{"code":0,' in frame[:opaque_at]


def producer(load: Load, queue_id: int, tag: str = "TagA") -> BareProducer:
    """Return a producer that sends one message repeatedly."""
    fields = SendMessageFields(
        producer_group="bench", topic="bench", default_topic="TBW102",
        default_topic_queue_nums=QUEUES, queue_id=queue_id, sys_flag=0,
        born_timestamp=1_795_306_882_675, flag=0, properties=PROPERTIES % tag, reconsume_times=0,
        unit_mode=False, batch=False,
    )  # fmt: skip
    ext = msgspec.json.encode(fields.to_ext())
    body = os.urandom(load.body_bytes)
    return BareProducer(*frame_around_opaque(RequestCode.SEND_MESSAGE_V2, ext, body), load)


async def measure(address: str, load: Load) -> list[float]:
    """Run one load; return the latencies in seconds."""
    return await run_load(address, producer(load, queue_id=0))


def rows(flush: str, load: Load) -> Iterator[str]:
    """Start a group, run one load, and yield a line of the table."""
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerGroup(
            Path(folder),
            flush_disk_type=FlushDiskType(flush),
            segment_size_bytes=SEGMENT_BYTES,
            index_segment_size_bytes=32 * 1_000_000,
        ) as group,
    ):
        leader = group.master()
        pids = {member: group.process_id(member) for member in group.peers}
        address = group.broker_addresses[leader]
        uvloop.run(measure(address, Load(in_flight=1, body_bytes=load.body_bytes, seconds=0.5)))
        before_s = {member: processor_s(pid) for member, pid in pids.items()}
        begun_s = time.perf_counter()
        latencies = sorted(uvloop.run(measure(address, load)))
        took_s = time.perf_counter() - begun_s
        used_s = {member: processor_s(pid) - before_s[member] for member, pid in pids.items()}
        sends = len(latencies) * took_s / load.seconds  # the warm-up costs as much
        followers_s = (sum(used_s.values()) - used_s[leader]) / 2
        yield (
            f"{flush:10} {load.in_flight:9}  {len(latencies) / load.seconds:9,.0f}  "
            f"{latencies[len(latencies) // 2] * 1000:8.2f}  "
            f"{latencies[len(latencies) * 99 // 100] * 1000:8.2f}  "
            f"{used_s[leader] / sends * 1e6:8.1f}  {followers_s / sends * 1e6:8.1f}"
        )


def main() -> None:
    """Measure each load and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each load")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 64, 1000])
    parser.add_argument(
        "--flush", nargs="+", choices=list(FlushDiskType), default=list(FlushDiskType)
    )
    arguments = parser.parse_args()
    print("flush      in flight    sends/s    p50 ms    p99 ms  processor us: leader, follower")
    for flush in arguments.flush:
        for in_flight in arguments.in_flight:
            load = Load(
                in_flight=in_flight, body_bytes=arguments.body_bytes, seconds=arguments.seconds
            )
            for row in rows(flush, load):
                print(row, flush=True)


if __name__ == "__main__":
    main()
