"""Batches: bodies that share a request if the server supports it, and their outcomes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from dledger_client.append import batches
from dledger_client.append.outcomes import Acknowledged, Outcome, Refused, Unknown
from dledger_client.client import DLedgerClient
from dledger_fake_server.behavior import Behavior, Fault
from dledger_fake_server.group import Group
from dledger_formats.log import disk
from dledger_formats.protocol.codes import DLedgerResponseCode

Code = DLedgerResponseCode
BODIES = [b"body %d" % number for number in range(500)]


@pytest.fixture
def group(group: Group) -> Group:
    group.enable_batches()
    return group


@contextlib.asynccontextmanager
async def client_of(group: Group, **options: bool) -> AsyncIterator[DLedgerClient]:
    """A client that already knows the leader, and thus whether it supports batches."""
    async with DLedgerClient(group.servers, "g0", **options) as client:
        await client.bounds()
        yield client


async def outcomes_of(client: DLedgerClient, bodies: list[bytes], **options: int) -> list[Outcome]:
    return [outcome async for outcome in client.append_all(bodies, **options)]


def acknowledged(bodies: list[bytes], attempts: int = 1) -> list[Outcome]:
    return [
        Acknowledged(number=number, index=number, term=1, attempts=attempts)
        for number in range(len(bodies))
    ]


async def test_bodies_of_append_all_share_requests(group: Group) -> None:
    async with client_of(group) as client:
        outcomes = await outcomes_of(client, BODIES, in_flight=400)

    assert outcomes == acknowledged(BODIES)
    assert group.log == BODIES
    assert [len(batch) for batch in group["n0"].batches] == [50] * 10


async def test_bodies_of_append_batch_share_requests(group: Group) -> None:
    async with client_of(group) as client:
        outcomes = await client.append_batch(BODIES)

    assert outcomes == acknowledged(BODIES)
    sizes = [len(batch) for batch in group["n0"].batches]
    assert sizes == [batches.BODIES_MAX] * 3 + [len(BODIES) - 3 * batches.BODIES_MAX]


async def test_a_large_body_gets_a_request_of_its_own(group: Group) -> None:
    small, large = b"small", bytes(batches.BODY_BYTES_MAX)
    async with client_of(group) as client:
        await outcomes_of(client, [small, small, large, large, small])

    assert group["n0"].batches == [[small, small], [large], [large], [small]]


async def test_a_batch_does_not_wait_for_bodies_that_are_not_available_yet(group: Group) -> None:
    two_have_outcomes = asyncio.Event()

    async def bodies() -> AsyncIterator[bytes]:
        yield b"first"
        yield b"second"
        await two_have_outcomes.wait()
        yield b"third"

    async with client_of(group) as client:
        outcomes = client.append_all(bodies())
        assert [(await anext(outcomes)).number for _ in range(2)] == [0, 1]
        two_have_outcomes.set()
        assert (await anext(outcomes)).number == 2
        await outcomes.aclose()

    assert group["n0"].batches == [[b"first", b"second"], [b"third"]]


async def test_a_server_that_refuses_a_batch_gets_its_bodies_one_by_one(
    group: Group,
) -> None:
    """A member refuses a batch with more appends than it allows to be pending."""
    group["n0"].supports_batches = False
    async with client_of(group) as client:
        assert await client.append_batch(BODIES[:100]) == acknowledged(BODIES[:100])
        await outcomes_of(client, BODIES[100:])

        assert group.log == BODIES
        assert client.statistics.acknowledged == len(BODIES)
        assert client.statistics.refused == 0


async def test_a_server_that_names_no_voters_gets_bodies_one_by_one(group: Group) -> None:
    """Java servers do not name them."""
    group["n0"].names_voters = False
    async with client_of(group) as client:
        assert await client.append_batch(BODIES) == acknowledged(BODIES)

    assert not group["n0"].batches


async def test_a_body_that_is_too_large_does_not_affect_the_others(group: Group) -> None:
    bodies = [b"a", b"b", bytes(disk.BODY_SIZE_MAX + 1), b"c"]
    async with client_of(group) as client:
        outcomes = await outcomes_of(client, bodies)

    assert [type(outcome) for outcome in outcomes] == [
        Acknowledged, Acknowledged, Refused, Acknowledged,
    ]  # fmt: skip
    assert group.log == [b"a", b"b", b"c"]


async def test_a_body_that_is_text_raises_a_type_error(group: Group) -> None:
    async with client_of(group) as client:
        with pytest.raises(TypeError, match="must be bytes"):
            await client.append_batch([b"a", "b"])  # type: ignore[list-item]

    assert not group.log


@pytest.mark.parametrize(
    ("behavior", "kind", "logged"),
    [
        (Code.WAIT_QUORUM_ACK_TIMEOUT, Unknown, 0),
        (Fault.APPEND_AND_DISCONNECT, Unknown, 3),
        (Code.SEQUENCE_TOO_OLD, Refused, 0),
    ],
)
async def test_all_bodies_of_a_batch_share_its_outcome(
    group: Group, behavior: Behavior, kind: type[Outcome], logged: int
) -> None:
    group["n0"].script.append(behavior)
    async with client_of(group) as client:
        outcomes = await client.append_batch(BODIES[:3])

        assert [outcome.number for outcome in outcomes] == [0, 1, 2]
        assert {type(outcome) for outcome in outcomes} == {kind}
        assert client.statistics.unknown + client.statistics.refused == 3
    assert len(group.log) == logged


@pytest.mark.parametrize("behavior", [Code.LEADER_PENDING_FULL, Code.DISK_FULL])
async def test_a_batch_that_had_no_effect_is_resent(group: Group, behavior: Behavior) -> None:
    group["n0"].script.append(behavior)
    async with client_of(group) as client:
        assert await client.append_batch(BODIES[:3]) == acknowledged(BODIES[:3], attempts=2)


async def test_at_least_once_resends_a_batch_with_an_unknown_outcome(group: Group) -> None:
    group["n0"].script.append(Fault.APPEND_AND_DISCONNECT)
    async with client_of(group, at_least_once=True) as client:
        outcomes = await client.append_batch(BODIES[:3])

    assert [outcome.index for outcome in outcomes if isinstance(outcome, Acknowledged)] == [3, 4, 5]
    assert group.log == BODIES[:3] * 2


async def test_idempotent_appends_share_requests(group: Group) -> None:
    async with client_of(group, idempotent=True) as client:
        outcomes = await client.append_batch(BODIES)

    assert outcomes == acknowledged(BODIES)
    assert group.log == BODIES
    assert [body for batch in group["n0"].batches for body in batch] == BODIES


async def test_every_body_gets_an_outcome_when_the_leader_fails(group: Group) -> None:
    async with client_of(group) as client:
        group["n0"].script.extend([Code.SUCCESS, Fault.DISCONNECT])
        outcomes = []
        async for outcome in client.append_all(BODIES, in_flight=80):
            outcomes.append(outcome)
            if len(outcomes) == 1:
                group.elect("n1")

    assert [outcome.number for outcome in outcomes] == list(range(len(BODIES)))
    stored = [outcome for outcome in outcomes if isinstance(outcome, Acknowledged)]
    assert [group.log[outcome.index] for outcome in stored] == [
        BODIES[outcome.number] for outcome in stored
    ]
    assert len(set(group.log)) == len(group.log)
    assert len(stored) >= len(BODIES) - 80


async def test_a_body_that_no_segment_can_hold_does_not_affect_the_others(group: Group) -> None:
    group["n0"].script.extend([Code.UNSUPPORTED, Code.SUCCESS, Code.UNEXPECTED_ARGUMENT])
    async with client_of(group) as client:
        outcomes = await client.append_batch([b"small", b"large", b"another"])

    assert [type(outcome) for outcome in outcomes] == [Acknowledged, Refused, Acknowledged]
    assert isinstance(outcomes[1], Refused)
    assert "too large for a segment" in outcomes[1].reason
    assert group.log == [b"small", b"another"]
