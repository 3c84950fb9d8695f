"""An idle member is woken by its heartbeats and once a second, and by nothing else."""

import asyncio
import re
import time
from pathlib import Path

import pytest

from dledger_wire.played import make_server
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

HEARTBEAT_MS, ELECTION_MS = 500, 2000
WATCHED_S = 6.0
WINDOWS_MAX = 3
"""An election on a busy machine wakes the members of one window more often."""
WAKES_PER_S_MAX = 20.0
"""A leader sends two rounds of heartbeats in a second, and two followers answer each; once a second
a thread looks at the volume, and tells the loop. On a busy machine the threads also wait for each
other. A member that ticks at the steady rate is woken a hundred times.
"""
_SWITCHES = re.compile(r"^voluntary_ctxt_switches:\t(\d+)$", re.MULTILINE)


def waits(process: int) -> int:
    """Return how often all threads of a process have waited for something so far."""
    statuses = [each.read_text() for each in Path(f"/proc/{process}/task").glob("*/status")]
    return sum(int(count) for status in statuses for count in _SWITCHES.findall(status))


def is_at_rest(group: NodeGroup) -> bool:
    """Whether all members hold the first entry durably: a flush under way needs ticks."""
    views = [group.status(member) for member in group.running()]
    return all(view.durable_index == view.ledger_end_index >= 0 for view in views)


@pytest.mark.group
def test_an_idle_member_is_rarely_woken(tmp_path: Path) -> None:
    timing = {"heartbeat_interval_ms": HEARTBEAT_MS, "election_timeout_ms": ELECTION_MS}
    with NodeGroup(tmp_path, **timing) as group:
        group.master()
        wait_for(lambda: is_at_rest(group), "no flush is under way")
        processes = {member: group.process_id(member) for member in group.running()}
        time.sleep(WATCHED_S / 2)  # what follows the election
        found = []
        for _ in range(WINDOWS_MAX):
            found.append(rates_of(processes))
            if max(found[-1].values()) <= WAKES_PER_S_MAX:
                break

    assert max(found[-1].values()) <= WAKES_PER_S_MAX, found


def rates_of(processes: dict[str, int]) -> dict[str, float]:
    """Watch the processes for a while; return how often each was woken in a second."""
    before = {member: waits(process) for member, process in processes.items()}
    began_s = time.monotonic()
    time.sleep(WATCHED_S)  # a rate needs a length of time
    watched_s = time.monotonic() - began_s
    return {
        member: (waits(process) - before[member]) / watched_s
        for member, process in processes.items()
    }


async def test_upkeep_asks_a_thread_once_where_nothing_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = make_server(tmp_path)
    upkeep, in_thread, calls = server._upkeep, asyncio.to_thread, []

    async def counted(call: object, *arguments: object) -> object:
        calls.append(call)
        return await in_thread(call, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(upkeep, "_store_folder", tmp_path / "n0")  # where a played member's log is
    await upkeep.once()  # the first one makes room
    monkeypatch.setattr(asyncio, "to_thread", counted)
    await upkeep.once()
    await server.close()

    assert len(calls) == 1
    assert upkeep.volume.size_bytes > 0
