"""One bad block under one of three real members: no wrong data is served, and the group continues.

As in the study of Ganesan et al. (FAST 2017): every kind of file, a block flipped or zeroed.
"""

import contextlib
import http.client
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import ClientError
from dledger_formats.log import disk
from dledger_node.errors import NodeError
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.hard_state import load_hard_state
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.storefaults

WAIT_S = 60.0
SIZES = {"segment_size_bytes": 16384, "index_segment_size_bytes": 3200}
BLOCK_BYTES = 512
BODIES = [random.Random(number).randbytes(number * 37 % 900) for number in range(150)]
MORE = [b"more %d" % number for number in range(20)]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members with small segments, so that the log has several."""
    with NodeGroup(tmp_path, **SIZES) as running:
        yield running


def client_of(group: NodeGroup) -> DLedgerClient:
    """Return a client that retries until it succeeds."""
    timing = Timing(deadline_s=WAIT_S)
    return DLedgerClient(servers=group.servers, group="g", at_least_once=True, timing=timing)


async def append_all(group: NodeGroup, bodies: list[bytes]) -> dict[int, bytes]:
    """Append bodies, which must all be acknowledged; return them by index."""
    stored = {}
    async with client_of(group) as client:
        async for outcome in client.append_all(bodies):
            assert isinstance(outcome, Acknowledged), outcome
            stored[outcome.index] = bodies[outcome.number]
    return stored


def wait_until_all_have(group: NodeGroup, index: int) -> None:
    def all_have() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return all(group.status(m).durable_index >= index for m in group.running())
        return False

    wait_for(all_have, f"every member has entry {index}", WAIT_S)


def wait_until_healed(group: NodeGroup, member: str) -> None:
    group.wait_for_status(member, lambda view: view.ready and not view.joining, "is healed")


def block_of(folder: Path, kind: str) -> tuple[Path, int, int]:
    """Return path, start and end of a block in use, in a file of this kind."""
    match kind:
        case "first segment" | "last segment":
            paths = sorted((folder / "data").iterdir())
            path = paths[0 if kind == "first segment" else -1]
            content = path.read_bytes().rstrip(b"\0")
            at = len(content) // 2 // BLOCK_BYTES * BLOCK_BYTES
            return path, at, min(len(content), at + BLOCK_BYTES)
        case "index":
            return min((folder / "index").iterdir()), BLOCK_BYTES, 2 * BLOCK_BYTES
        case _:
            path = folder / kind
            return path, 0, path.stat().st_size


def damage(folder: Path, kind: str, fault: str) -> None:
    path, start, end = block_of(folder, kind)
    with path.open("r+b") as file:
        file.seek(start)
        block = file.read(end - start)
        file.seek(start)
        file.write(bytes(len(block)) if fault == "zero" else bytes(b ^ 0x10 for b in block))


def wrong_entries(folder: Path, truth: dict[int, bytes]) -> list[int]:
    """Return the entries that a store would serve with wrong bytes."""
    store = LogStore.open(folder, **SIZES)
    try:
        wrong = []
        for index in range(store.begin_index, store.end_index + 1):
            try:
                header, body = store.entry(index)
            except NodeError:
                continue
            # A body that was appended twice is in the log twice, but `truth` has one index.
            if header.magic == disk.NORMAL and body != truth.get(index, body):
                wrong.append(index)
        return wrong
    finally:
        store.close()


def holds(folder: Path, truth: dict[int, bytes]) -> bool:
    """Whether a stopped member's store holds every entry undamaged."""
    store = LogStore.open(folder, **SIZES)
    try:
        return all(store.entry(index)[1] == body for index, body in truth.items())
    finally:
        store.close()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fault", ["flip", "zero"])
@pytest.mark.parametrize(
    "kind", ["first segment", "last segment", "index", "checkpoint", "currterm"]
)
async def test_a_member_that_starts_on_a_bad_block_serves_no_wrong_data_and_heals(
    group: NodeGroup, kind: str, fault: str
) -> None:
    truth = await append_all(group, BODIES)
    wait_until_all_have(group, max(truth))
    victim = next(member for member in group.running() if member != group.master())
    folder = group.store_folder(victim)
    group.wait_for_status(victim, lambda view: view.committed_index >= max(truth), "knows it")
    assert group.stop(victim) == 0
    term = load_hard_state(folder).term
    damage(folder, kind, fault)

    group.start(victim)
    truth |= await append_all(group, MORE)

    wait_until_all_have(group, max(truth))
    wait_until_healed(group, victim)
    assert group.status(victim).term >= term
    if kind != "last segment":  # its damage may reach beyond the last known commit
        must_join = kind == "currterm"
        assert ("this member joins its group" in group.log(victim)) == must_join
    for member in group.running():
        assert group.stop(member) == 0
        assert wrong_entries(group.store_folder(member), truth) == []
        assert holds(group.store_folder(member), truth)


@pytest.mark.parametrize("fault", ["flip", "zero"])
async def test_a_block_that_goes_bad_under_the_leader_is_never_served(
    group: NodeGroup, fault: str
) -> None:
    """Neither a client nor a member that was away receives it; the old leader heals from the next
    one.
    """
    leader = group.master()
    away, _ = sorted(set(group.running()) - {leader})
    group.wait_for_status(away, lambda view: view.committed_index >= 0, "follows")
    group.kill(away)
    truth = await append_all(group, BODIES)
    wait_until_all_have(group, max(truth))
    damage(group.store_folder(leader), "first segment", fault)
    group.start(away)
    group.wait_until_up(away)

    truth |= await append_all(group, MORE)

    refused = 0
    async with client_of(group) as client:
        for index, body in truth.items():
            try:
                entry = await client.get(index)
            except ClientError:
                refused += 1
            else:
                assert entry.body == body, index
    assert refused < len(truth)
    wait_until_all_have(group, max(truth))
    wait_until_healed(group, leader)
    for member in list(group.running()):
        group.kill(member)
        assert holds(group.store_folder(member), truth)
        assert wrong_entries(group.store_folder(member), truth) == []
