"""`append_in_order`: one request after another, and nothing after a failure."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from dledger_client.append import batches
from dledger_client.append.outcomes import Acknowledged, Outcome, Refused
from dledger_client.calls import call
from dledger_client.client import DLedgerClient
from dledger_client.cluster import connection
from dledger_client.sync import BlockingClient
from dledger_fake_server.behavior import Behavior, Fault
from dledger_fake_server.group import Group
from dledger_formats.log import disk
from dledger_formats.log.channels import WINDOW
from dledger_formats.protocol.codes import DLedgerResponseCode

Code = DLedgerResponseCode
BODIES = [b"body %d" % number for number in range(300)]


@pytest.fixture
def group(group: Group) -> Group:
    group.enable_batches()
    return group


@contextlib.asynccontextmanager
async def client_of(group: Group) -> AsyncIterator[DLedgerClient]:
    """An idempotent client that already knows the leader."""
    async with DLedgerClient(group.servers, "g0", idempotent=True) as client:
        await client.bounds()
        yield client


async def outcomes_of(client: DLedgerClient, bodies: list[bytes]) -> list[Outcome]:
    return [outcome async for outcome in client.append_in_order(bodies)]


def indexes(outcomes: list[Outcome]) -> list[int]:
    assert all(isinstance(outcome, Acknowledged) for outcome in outcomes)
    return [outcome.index for outcome in outcomes if isinstance(outcome, Acknowledged)]


async def test_bodies_share_requests(group: Group) -> None:
    async with client_of(group) as client:
        outcomes = await outcomes_of(client, BODIES)

    assert indexes(outcomes) == list(range(len(BODIES)))
    assert [outcome.number for outcome in outcomes] == list(range(len(BODIES)))
    sizes = [len(batch) for batch in group["n0"].batches]
    assert sizes == [batches.BODIES_MAX] * 2 + [len(BODIES) - 2 * batches.BODIES_MAX]


@pytest.mark.parametrize(
    "script",
    [
        [Code.UNSUPPORTED, Code.LEADER_PENDING_FULL],
        [Code.UNSUPPORTED, Code.SUCCESS, Fault.DISCONNECT],
        [Code.LEADER_PENDING_FULL],
        [Fault.APPEND_AND_DISCONNECT, Code.LEADER_PENDING_FULL, Code.LEADER_PENDING_FULL],
    ],
    ids=["refused", "disconnected", "refused whole", "appended without an answer"],
)
async def test_nothing_overtakes_what_is_sent_again(group: Group, script: list[Behavior]) -> None:
    group["n0"].script.extend(script)
    async with client_of(group) as client:
        outcomes = await outcomes_of(client, BODIES)

    assert indexes(outcomes) == list(range(len(BODIES)))
    assert group.log == BODIES


async def test_the_requests_after_a_batch_that_is_refused_have_half_as_many_bodies(
    group: Group,
) -> None:
    group["n0"].script.append(Code.UNSUPPORTED)
    async with client_of(group) as client:
        outcomes = await outcomes_of(client, BODIES)

    assert indexes(outcomes) == list(range(len(BODIES)))
    assert [len(batch) for batch in group["n0"].batches] == [128, 64, 64, 44]
    assert group.log == BODIES


async def test_a_batch_that_was_refused_long_ago_does_not_count(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REFUSAL_KEPT_S", 0.0)
    group["n0"].script.append(Code.UNSUPPORTED)
    async with client_of(group) as client:
        await outcomes_of(client, BODIES)

    assert [len(batch) for batch in group["n0"].batches] == [128, 128, 44]


async def test_a_batch_for_which_others_leave_no_room_is_sent_body_by_body(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "CROWDED_S", 0.1)
    refusals = 50
    group["n0"].script.extend([Code.LEADER_PENDING_FULL] * refusals)
    async with client_of(group) as client:
        outcomes = await outcomes_of(client, BODIES)

    assert indexes(outcomes) == list(range(len(BODIES)))
    assert group.log == BODIES
    assert len([one for one in group["n0"].batches if len(one) == 128]) < refusals
    assert client.statistics.acknowledged == len(BODIES)


async def test_nothing_overtakes_the_first_body_while_no_leader_is_known(group: Group) -> None:
    group["n0"].script.append(Code.LEADER_PENDING_FULL)
    async with DLedgerClient(group.servers, "g0", idempotent=True) as client:
        await outcomes_of(client, BODIES)

    assert group.log == BODIES
    assert group["n0"].appends[:2] == [BODIES[0]] * 2


async def test_a_large_body_is_sent_once_the_bodies_before_it_have_an_outcome(
    group: Group,
) -> None:
    large = bytes(batches.BODY_BYTES_MAX)
    group["n0"].script.append(Code.LEADER_PENDING_FULL)
    async with client_of(group) as client:
        await outcomes_of(client, [b"a", b"b", large, b"c"])

    assert group["n0"].batches == [[b"a", b"b"], [b"a", b"b"], [large], [b"c"]]


@pytest.mark.parametrize("script", [[Code.SUCCESS], [Code.UNSUPPORTED, Code.SUCCESS]])
async def test_nothing_is_sent_after_a_body_that_is_refused(
    group: Group, script: list[Behavior]
) -> None:
    group["n0"].script.extend([*script, Code.UNEXPECTED_ARGUMENT])
    async with client_of(group) as client:
        outcomes = await outcomes_of(client, [bytes(batches.BODY_BYTES_MAX), b"a", b"b", b"c"])

    assert isinstance(outcomes[-1], Refused)
    assert len(outcomes) == 2
    assert len(group.log) == 1


async def test_a_body_that_is_too_large_for_an_entry_ends_the_appends(group: Group) -> None:
    async with client_of(group) as client:
        outcomes = await outcomes_of(client, [b"a", bytes(disk.BODY_SIZE_MAX + 1), b"b"])

    assert [type(outcome) for outcome in outcomes] == [Acknowledged, Refused]
    assert group.log == [b"a"]


async def test_a_client_goes_on_after_appends_that_ended_early(group: Group) -> None:
    async with client_of(group) as client:
        for number in range(WINDOW // 100):
            group["n0"].script.extend([Code.UNSUPPORTED, Code.SEQUENCE_TOO_OLD])
            outcomes = await outcomes_of(client, [b"%d" % number] * 128)
            assert [type(outcome) for outcome in outcomes] == [Refused]
            group.elect("n0")
            await group["n0"].stop()  # a new connection takes batches again
            await group["n0"].start()
            await client.bounds()

        assert indexes(await outcomes_of(client, [b"last"])) == [0]


async def test_a_canceled_append_ends_at_once(group: Group) -> None:
    group["n0"].script.append(Fault.NO_ANSWER)
    async with client_of(group) as client:
        task = asyncio.ensure_future(outcomes_of(client, BODIES))
        await group["n0"].append_received.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert group["n0"].batches == [BODIES[: batches.BODIES_MAX]]


async def test_servers_without_batches_get_bodies_one_by_one(group: Group) -> None:
    group["n0"].supports_batches = False
    async with DLedgerClient(group.servers, "g0") as client:
        assert indexes(await outcomes_of(client, BODIES)) == list(range(len(BODIES)))

    assert group.log == BODIES


async def test_a_body_that_is_no_bytes_is_refused_before_anything_is_sent(group: Group) -> None:
    async with client_of(group) as client:
        with pytest.raises(TypeError, match="must be bytes"):
            await outcomes_of(client, [b"a", "b"])  # type: ignore[list-item]

    assert not group["n0"].appends


def test_a_blocking_client_appends_in_order(group_in_thread: Group) -> None:
    group_in_thread["n0"].script.append(Code.LEADER_PENDING_FULL)
    bodies = [b"%d" % number for number in range(100)]
    with BlockingClient(group_in_thread.servers, "g0") as client:
        outcomes = list(client.append_in_order(bodies))

    assert [outcome.number for outcome in outcomes] == list(range(100))
    assert group_in_thread.log == bodies
