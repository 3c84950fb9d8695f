"""What a member costs while nothing happens, in each state that may last for days.

    make bench-idle                     or:   python -m bench.idle --seconds 30

Real members with default timing, on one machine. The figure is the processor time of a member's
process, in percent of one processor, so other work on the machine matters little.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.append import processor_s
from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from tools.groups.node_group import NodeGroup

SETTLE_S = 5.0
"""Time for a group to come to rest after a change; nothing is measured meanwhile."""
BODY_BYTES, BODIES = 1024, 2000
TIMING = {"heartbeat_interval_ms": 500, "election_timeout_ms": 2000}
"""The defaults of a DLedgerGroup."""


def main() -> None:
    """Measure all states and print a table."""
    parser = argparse.ArgumentParser(prog="bench.idle", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each measurement")
    seconds = parser.parse_args().seconds
    print("% of a processor  member")
    for state, percent in measure(seconds):
        print(f"{percent:16.2f}  {state}", flush=True)


def measure(seconds: float) -> Iterator[tuple[str, float]]:
    """Yield each state, and what a member in it costs, in percent of a processor."""
    with a_group(addable=1) as group:
        leader = group.master()
        follower, other = (each for each in group.running() if each != leader)
        group.start("n3")
        names = {
            leader: "the leader of three",
            follower: "a follower",
            "n3": "a member that waits to be added",
        }
        yield from costs(group, names, seconds)
        group.kill(follower)
        yield from costs(group, {leader: "the leader, while one of three is away"}, seconds)
        group.kill(other)
        yield from costs(group, {leader: "a member that has lost its majority"}, seconds)
        group.kill(leader)
        group.start(follower)
        yield from costs(group, {follower: "a member that starts without a majority"}, seconds)
    yield from costs_with_damage(seconds)


def costs_with_damage(seconds: float) -> Iterator[tuple[str, float]]:
    """Yield the cost of a member that stays out of service, since no peer can mend its log."""
    with a_group() as group:
        leader = group.master()
        with BlockingClient(group.servers, "g") as client:
            client.append_batch([bytes(BODY_BYTES)] * BODIES)
        for member in group.running():
            group.stop(member)
        first = group.store_folder(leader) / disk.DATA_FOLDER / disk.file_name(0)
        with first.open("r+b") as file:
            file.seek(BODY_BYTES * BODIES // 2)
            file.write(b"x" * BODY_BYTES)
        group.start(leader)
        yield from costs(group, {leader: "a member out of service with damage, alone"}, seconds)


def costs(group: NodeGroup, names: dict[str, str], seconds: float) -> Sequence[tuple[str, float]]:
    """Measure some members at once, after the group has come to rest."""
    time.sleep(SETTLE_S)
    processes = {name: group.process_id(member) for member, name in names.items()}
    before_s = {name: processor_s(process) for name, process in processes.items()}
    began_s = time.monotonic()
    time.sleep(seconds)
    elapsed_s = time.monotonic() - began_s
    return [
        (name, 100 * (processor_s(process) - before_s[name]) / elapsed_s)
        for name, process in processes.items()
    ]


@contextmanager
def a_group(addable: int = 0) -> Iterator[NodeGroup]:
    """Run a group of three in a temporary folder."""
    with (
        tempfile.TemporaryDirectory() as folder,
        NodeGroup(Path(folder), addable=addable, **TIMING) as group,
    ):
        yield group


if __name__ == "__main__":
    main()
