"""The extra cost of a send through a member that does not lead: real brokers and a bare client.

    python -m bench.rocketmq_doors      or, for other loads: --in-flight 1 1000 --rounds 5

One group of three members. The same client sends the prepared frames of `bench.rocketmq_send` to
the leader and to a follower in turn, so that other work on the machine affects both alike. Members
and client share the machine: a send through a follower takes processor time from the leader.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from bench.append import processor_s
from bench.bare_client import Load
from bench.rocketmq_send import SEGMENT_BYTES, measure
from dledger_formats.http.status import FlushDiskType
from tools.groups.broker_group import BrokerGroup

BODY_BYTES: Final = 1024
WARM_UP_S: Final = 0.5


class Round(NamedTuple):
    """One load at one member."""

    sends_per_s: float
    p50_ms: float
    p99_ms: float


def run_round(address: str, in_flight: int, seconds: float) -> Round:
    """Send to one member for some seconds."""
    load = Load(in_flight=in_flight, body_bytes=BODY_BYTES, seconds=seconds)
    latencies = sorted(uvloop.run(measure(address, load)))
    count = len(latencies)
    return Round(count / seconds, latencies[count // 2] * 1000, latencies[count * 99 // 100] * 1000)


def compare(group: BrokerGroup, in_flight: int, rounds: int, seconds: float) -> None:
    """Send to the leader and to a follower in turn, and print the medians."""
    leader = group.master()
    door = next(member for member in group.peers if member != leader)
    found: dict[str, list[Round]] = {"leader": [], "follower": []}
    used_s = dict.fromkeys(found, 0.0)
    for _ in range(rounds):
        for name, member in (("leader", leader), ("follower", door)):
            address = group.broker_addresses[member]
            run_round(address, in_flight, WARM_UP_S)
            before_s = processor_s(group.process_id(leader))
            found[name].append(run_round(address, in_flight, seconds))
            used_s[name] += processor_s(group.process_id(leader)) - before_s
    for name, some in found.items():
        rate, p50_ms, p99_ms = map(statistics.median, zip(*some, strict=True))
        sends = sum(each.sends_per_s for each in some) * seconds
        print(
            f"{name:9} {in_flight:9}  {rate:9,.0f}  {p50_ms:8.2f}  {p99_ms:8.2f}  "
            f"{used_s[name] / sends * 1e6:10.1f}",
            flush=True,
        )
    pairs = zip(found["leader"], found["follower"], strict=True)
    ratio = statistics.median(at_door.sends_per_s / direct.sends_per_s for direct, at_door in pairs)
    print(f"rate through the follower: {ratio:.2f} of the leader's own (median of {rounds} rounds)")
    assert group.master() == leader, "another member leads: run it again"


def main() -> None:
    """Compare each load and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 64, 1000])
    parser.add_argument("--flush", choices=list(FlushDiskType), default=FlushDiskType.ASYNC_FLUSH)
    arguments = parser.parse_args()
    print("sent to   in flight    sends/s    p50 ms    p99 ms  leader's processor us")
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerGroup(
            Path(folder),
            flush_disk_type=FlushDiskType(arguments.flush),
            segment_size_bytes=SEGMENT_BYTES,
            index_segment_size_bytes=32 * 1_000_000,
        ) as group,
    ):
        for in_flight in arguments.in_flight:
            compare(group, in_flight, arguments.rounds, arguments.seconds)


if __name__ == "__main__":
    main()
