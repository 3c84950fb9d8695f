"""A body too long for a segment of a real group: it is refused, never of unknown outcome."""

import time
from collections.abc import Iterator

import pytest

from dledger_client.append.outcomes import Acknowledged, Refused
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import RefusedError
from dledger_formats.protocol.codes import DLedgerResponseCode
from tools.groups.node_group import NodeGroup

SEGMENT_BYTES = 1 << 20
TOO_LONG = bytes(SEGMENT_BYTES)
DEADLINE_S = 120.0
KINDS = {"plain": {}, "at-least-once": {"at_least_once": True}, "idempotent": {"idempotent": True}}


@pytest.fixture(scope="module")
def lone_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    """One member with segments of 1 MiB."""
    folder = tmp_path_factory.mktemp("long-bodies")
    with NodeGroup(folder, members=1, segment_size_bytes=SEGMENT_BYTES) as running:
        running.master()
        yield running


def client_of(group: NodeGroup, kind: str) -> DLedgerClient:
    return DLedgerClient(group.servers, "g", timing=Timing(deadline_s=DEADLINE_S), **KINDS[kind])


@pytest.mark.group
@pytest.mark.parametrize("kind", KINDS)
async def test_one_body_is_refused_at_once_and_not_tried_again(
    lone_group: NodeGroup, kind: str
) -> None:
    """Java answers 414, DISK_ERROR, which leaves the outcome unknown."""
    async with client_of(lone_group, kind) as client:
        before = await client.append(b"before")
        began_s = time.monotonic()
        with pytest.raises(RefusedError, match="too large for a segment") as refused:
            await client.append(TOO_LONG)
        after = await client.append(b"after")

    assert refused.value.code is DLedgerResponseCode.UNEXPECTED_ARGUMENT
    assert time.monotonic() - began_s < DEADLINE_S / 4
    assert after.index == before.index + 1


@pytest.mark.group
@pytest.mark.parametrize("kind", KINDS)
async def test_the_other_bodies_of_a_batch_and_of_a_stream_are_appended(
    lone_group: NodeGroup, kind: str
) -> None:
    bodies = [b"small", TOO_LONG, b"another"]
    async with client_of(lone_group, kind) as client:
        batch = await client.append_batch(bodies)
        stream = [outcome async for outcome in client.append_all(bodies)]

    for outcomes in (batch, sorted(stream, key=lambda outcome: outcome.number)):
        assert [type(outcome) for outcome in outcomes] == [Acknowledged, Refused, Acknowledged]
