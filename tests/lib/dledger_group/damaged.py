"""A group in which members' logs are damaged: append, damage, and check that nothing is lost."""

import contextlib
import http.client
import re
from dataclasses import replace
from pathlib import Path

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_formats.log import disk
from dledger_node.store.small_files.checkpoint import load_checkpoint, save_checkpoint
from dledger_store_files.damage import flip
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

SEGMENT_BYTES = 64 << 10
SIZES = {"segment_size_bytes": SEGMENT_BYTES, "index_segment_size_bytes": 3200}
BODIES = [bytes([number % 251]) * 1000 for number in range(400)]
SEGMENT_FOR_TESTS = 2
"""The number of a segment with others before and after it."""


async def append_all(group: NodeGroup, bodies: list[bytes]) -> dict[int, bytes]:
    """Append bodies, which must all be acknowledged; return them by index."""
    timing = Timing(deadline_s=60.0)
    stored = {}
    async with DLedgerClient(
        servers=group.servers, group="g", at_least_once=True, timing=timing
    ) as client:
        async for outcome in client.append_all(bodies):
            assert isinstance(outcome, Acknowledged), outcome
            stored[outcome.index] = bodies[outcome.number]
    return stored


async def read_back(group: NodeGroup, indexes: dict[int, bytes]) -> dict[int, bytes]:
    """Read the bodies at these indexes."""
    async with DLedgerClient(servers=group.servers, group="g") as client:
        found = client.get_range(min(indexes), max(indexes))
        held = {entry.index: entry.body async for entry in found}
    return {index: body for index, body in held.items() if index in indexes}


def follower_of(group: NodeGroup) -> str:
    """Return a member that does not lead."""
    return min(set(group.running()) - {group.master()})


def set_aside_folders(group: NodeGroup, member: str) -> list[Path]:
    """Return the folders of a member's damaged files."""
    return sorted(group.store_folder(member).glob("damaged-*"))


def counted(group: NodeGroup, member: str, name: str) -> float:
    """Return the value of a metric."""
    found = re.search(
        rf"^dledger_node_{name} (\S+)$".encode(), metrics(group, member), re.MULTILINE
    )
    assert found is not None, name
    return float(found[1])


def metrics(group: NodeGroup, member: str) -> bytes:
    """Return a member's metrics page."""
    return group.get(member, "/metrics")[1]


def wait_until_level(group: NodeGroup) -> int:
    """Wait until all members have the same end and committed index; return the latter."""

    def level() -> list[int]:
        with contextlib.suppress(OSError, http.client.HTTPException):
            views = [group.status(member) for member in group.running()]
            ends = {(v.ledger_end_index, v.committed_index, v.durable_index) for v in views}
            if len(ends) == 1 and all(view.ready and not view.joining for view in views):
                return [views[0].committed_index]
        return []

    return wait_for(level, "all members are ready and level")[0]


def log_bytes(group: NodeGroup, member: str) -> dict[str, bytes]:
    """Read the data files of a member."""
    data = group.store_folder(member) / disk.DATA_FOLDER
    return {path.name: path.read_bytes() for path in sorted(data.iterdir())}


async def check_that_nothing_is_lost(group: NodeGroup, stored: dict[int, bytes]) -> None:
    """Check that every acknowledged entry can be read, and that all members' files are equal."""
    wait_until_level(group)
    for member in group.running():
        wait_for(
            lambda m=member: not set_aside_folders(group, m), f"{member} deletes damaged files"
        )
    assert await read_back(group, stored) == stored

    def logs_are_equal() -> bool:
        with contextlib.suppress(FileNotFoundError):  # a truncation has removed a segment
            first, *others = (log_bytes(group, member) for member in group.running())
            return all(other == first for other in others)
        return False

    # An election may append an entry at any time, so the logs are equal only in the end.
    wait_for(logs_are_equal, "all members have equal data files")


def forget_commits(group: NodeGroup, member: str) -> None:
    """Remove the committed index from a stopped member's checkpoint, as before a crash.

    Then none of its damage is mended in place.
    """
    folder = group.store_folder(member)
    known = load_checkpoint(folder)
    assert known is not None
    save_checkpoint(folder, replace(known, committed_index=-1, membership_index=-1))


def break_data(group: NodeGroup, member: str, how: str) -> None:
    """Damage the data files of a member that is stopped or does not read them."""
    data = group.store_folder(member) / disk.DATA_FOLDER
    start = SEGMENT_FOR_TESTS * SEGMENT_BYTES
    match how:
        case "a flipped byte":
            flip(data, start + 5000, segment_bytes=SEGMENT_BYTES)
        case "a segment that is gone":
            (data / disk.file_name(start)).unlink()
        case "a segment that is cut short":
            with (data / disk.file_name(start)).open("r+b") as file:
                file.truncate(5000)
        case "all segments are gone":
            for path in data.iterdir():
                path.unlink()
        case "the first segment is gone":
            (data / disk.file_name(0)).unlink()
