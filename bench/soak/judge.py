"""The rules of the soak, and the check of the whole log at its end."""

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

from bench.soak.appends import Producer, body_of, named
from bench.soak.readers import Seen
from bench.soak.watch import LAG_S_MAX, TURN_S_MAX, Life
from dledger_client.client import DLedgerClient
from dledger_formats.log import disk
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

GROWTH_BYTES_MAX: Final = 12 << 20
"""By how much a member's memory may grow after the warm-up, however long the soak lasts."""
WARM_UP_S: Final = 120.0
"""Until then, buffers and the allocator's pools grow."""
MEASURED_S_MIN: Final = 120.0
"""A shorter part after the warm-up shows no trend."""
PEAK_BYTES_MAX: Final = 256 << 20
LONG_TURNS_MAX: Final = 1e-4
"""Share of the turns that may take more than `TURN_S_MAX` of the processor."""
TURN_S_LIMIT: Final = 0.25
UNREAD_KEPT_MIN: Final = 0.5
"""Share of the connections without reads that must stay open; kills and freezes end the others."""
LATE_TIMERS_MAX: Final = 0.02
"""Share of the timers that may fire more than `LAG_S_MAX` late: a freeze, or a busy machine."""


class Verdict:
    """Collects the violations, and prints each when it is found."""

    def __init__(self) -> None:
        self.violations: list[str] = []

    def blame(self, violation: str) -> None:
        """Record and print a violation."""
        self.violations.append(violation)
        print(f"VIOLATION: {violation}", flush=True)


def judge_lives(lives: Sequence[Life], spared: str, verdict: Verdict) -> None:
    """Check the memory and the event loops of all processes."""
    for life in lives:
        who = f"the process of {life.member} that began at {life.began_s:.0f} s"
        if life.peak_bytes > PEAK_BYTES_MAX:
            verdict.blame(f"{who} took {life.peak_bytes >> 20} MiB")
        if life.longest_turn_s > TURN_S_LIMIT:
            verdict.blame(f"{who} had a turn of {life.longest_turn_s:.3f} s of the processor")
    turns = sum(life.turns for life in lives)
    long_turns = sum(life.long_turns for life in lives)
    if long_turns > max(10, turns * LONG_TURNS_MAX):
        verdict.blame(f"{long_turns} of {turns} turns took more than {TURN_S_MAX} s")
    timers, late = sum(life.timers for life in lives), sum(life.late_timers for life in lives)
    if late > timers * LATE_TIMERS_MAX:
        verdict.blame(f"{late} of {timers} timers fired more than {LAG_S_MAX} s late")
    for life in lives:
        if life.member != spared:
            continue
        grown = growth_bytes(life)
        if grown > GROWTH_BYTES_MAX:
            verdict.blame(f"the memory of {spared} grew by {grown / 2**20:.1f} MiB")


def judge_strangers(opened: int, kept: int, verdict: Verdict) -> None:
    """Check that the connections that read nothing were what they should be."""
    print(f"strangers: {kept} of {opened} connections that read nothing stayed open")
    if not opened or kept < UNREAD_KEPT_MIN * opened:
        verdict.blame(f"only {kept} of {opened} connections that read nothing stayed open")


def growth_bytes(life: Life) -> float:
    """Return by how much memory grew after the warm-up, by its slope; 0 in a short life."""
    if not life.memory:
        return 0.0
    from_s, last_s = life.memory[0][0] + WARM_UP_S, life.memory[-1][0]
    if last_s - from_s < MEASURED_S_MIN:
        return 0.0
    return life.slope_bytes_per_s(from_s) * (last_s - from_s)


async def judge_log(
    client: DLedgerClient, producers: Sequence[Producer], seen: Seen, verdict: Verdict
) -> int:
    """Compare the whole log with what was acknowledged; return the number of its entries."""
    found: Counter[tuple[str, int]] = Counter()
    acknowledged = {
        (one.name, number): index for one in producers for number, index in one.acknowledged.items()
    }
    missing = set(acknowledged)
    count = 0
    async for entry in client.get_range(0):
        count += 1
        seen.serves("the last reader", entry.index, entry.body)
        if entry.magic != disk.NORMAL or not entry.body:
            continue  # the first entry of a term, a membership, a registration
        try:
            key = named(entry.body)
        except ValueError:
            continue
        found[key] += 1
        if entry.body != body_of(*key):
            verdict.blame(f"entry {entry.index} of {key} is not what was appended")
        if acknowledged.get(key, entry.index) == entry.index:
            missing.discard(key)
    if missing:
        verdict.blame(f"{len(missing)} acknowledged appends are lost, such as {min(missing)}")
    doubled = [key for key, times in found.items() if times > 1]
    if doubled:
        verdict.blame(f"{len(doubled)} appends are in the log more than once, such as {doubled[0]}")
    refused = {(one.name, number) for one in producers for number in one.refused}
    if stored := refused & set(found):
        verdict.blame(f"{len(stored)} refused appends are in the log, such as {min(stored)}")
    return count


async def judge_files(group: NodeGroup, verdict: Verdict) -> None:
    """Check that the logs of all members have the same bytes."""

    def have_equal_ends() -> bool:
        with contextlib.suppress(OSError):
            views = [group.status(member) for member in group.running()]
            return len({(view.committed_index, view.ledger_end_index) for view in views}) == 1
        return False

    await asyncio.to_thread(wait_for, have_equal_ends, "all members have committed the same")
    digests = {
        member: await asyncio.to_thread(_digest, group, member) for member in group.running()
    }
    if len(set(digests.values())) > 1:
        verdict.blame(f"the members' logs differ: {digests}")


def _digest(group: NodeGroup, member: str) -> str:
    digest = hashlib.sha256()
    folder = group.store_folder(member) / disk.DATA_FOLDER
    for segment in group.manifest(member).data:
        with (folder / segment.name).open("rb") as file:
            digest.update(file.read(segment.readable_bytes))
    return digest.hexdigest()[:16]
