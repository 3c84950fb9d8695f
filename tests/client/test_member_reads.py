"""Which members a client reads from, and where a read goes that its member does not answer."""

import asyncio

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import GroupUnreachableError, NoEntryError
from dledger_fake_server.group import Group

BODIES = [b"body %d" % number for number in range(200)]


def prepare(group: Group) -> None:
    group.log = list(BODIES)
    for member in group.members.values():
        member.supports_ranges = member.serves_reads = True
        member.entries_per_answer = 7


def client_of(group: Group, read_from: str = "followers", draw: float = 0.0) -> DLedgerClient:
    """Return a client that draws the member at this share of the candidates."""
    timing = Timing(deadline_s=600, connect_timeout_s=0.3, stall_s=0.2)
    return DLedgerClient(
        group.servers, "g0", read_from=read_from, timing=timing, random=lambda: draw
    )


async def read(client: DLedgerClient, first: int = 0) -> list[bytes]:
    return [body async for batch in client.read_batches(first) for body in batch.bodies]


def readers(group: Group) -> set[str]:
    return {member_id for member_id, member in group.members.items() if member.ranges}


@pytest.mark.parametrize(
    ("read_from", "draw", "reader"),
    [
        ("leader", 0.99, "n0"), ("any", 0.0, "n0"), ("any", 0.5, "n1"), ("any", 0.99, "n2"),
        ("followers", 0.0, "n1"), ("followers", 0.99, "n2"),
    ],
)  # fmt: skip
async def test_a_client_reads_from_one_member(
    group: Group, read_from: str, draw: float, reader: str
) -> None:
    prepare(group)
    async with client_of(group, read_from, draw) as client:
        assert await read(client) == BODIES
        assert (await client.get(3)).body == BODIES[3]

    assert readers(group) == {reader}


async def test_a_member_that_refuses_is_left_for_another(group: Group) -> None:
    prepare(group)
    group["n1"].serves_reads = False
    async with client_of(group) as client:
        assert await read(client) == BODIES

    assert readers(group) == {"n1", "n2"}


async def test_a_range_goes_on_elsewhere_with_each_entry_once(group: Group) -> None:
    prepare(group)
    async with client_of(group) as client:
        found: list[bytes] = []
        async for batch in client.read_batches(0):
            found += batch.bodies
            if len(found) == 7:
                await group["n1"].stop()

    assert found == BODIES
    assert readers(group) == {"n1", "n2"}


async def test_a_member_that_stops_responding_is_left(group: Group) -> None:
    prepare(group)
    async with client_of(group) as client:
        assert (await client.get(0)).body == BODIES[0]
        group["n1"].is_frozen = True
        async with asyncio.timeout(60):
            assert await read(client) == BODIES


@pytest.mark.parametrize("serve", [False, True])
async def test_the_leader_gets_what_no_other_member_answers(group: Group, serve: bool) -> None:
    prepare(group)
    for member_id in ("n1", "n2"):
        group[member_id].serves_reads = serve
        group[member_id].begin_index = 100  # it has removed the entries before
    async with client_of(group) as client:
        assert (await client.get(5)).body == BODIES[5]
        with pytest.raises(NoEntryError):
            await client.get(len(BODIES))


async def test_reads_from_followers_leave_a_member_that_was_elected(group: Group) -> None:
    prepare(group)
    async with client_of(group) as client:
        await read(client)
        group.elect("n1")
        await read(client)
        group["n1"].ranges.clear()
        assert await read(client) == BODIES

    assert "n1" not in readers(group)


def patient_client_of(group: Group, servers: list[str]) -> DLedgerClient:
    """Return a client that waits far longer than a test for the answer of a member."""
    timing = Timing(deadline_s=600, connect_timeout_s=600, stall_s=0.1)
    return DLedgerClient(servers, "g0", read_from="followers", timing=timing, random=lambda: 0.0)


async def test_the_deadline_of_a_read_covers_the_choice_of_a_member(group: Group) -> None:
    for member in group.members.values():
        member.is_frozen = True
    async with asyncio.timeout(60), patient_client_of(group, group.servers) as client:
        with pytest.raises(GroupUnreachableError, match="no member of group g0 answered"):
            await client.get(0, deadline_s=0.2)


async def test_a_read_says_what_it_waits_for_while_a_member_is_chosen(group: Group) -> None:
    group["n0"].is_frozen = True
    async with patient_client_of(group, [group["n0"].address]) as client:
        asked = asyncio.create_task(client.get(0))
        await asyncio.sleep(0)
        assert client.trouble == f"no answer yet from {group['n0'].address}"
        asked.cancel()


async def test_a_silent_member_does_not_hold_up_the_choice_of_another(group: Group) -> None:
    prepare(group)
    group["n1"].is_frozen = True
    async with asyncio.timeout(60), patient_client_of(group, [group["n0"].address]) as client:
        assert await read(client) == BODIES

    assert readers(group) == {"n2"}


@pytest.mark.parametrize("wrong", [{"read_from": "slaves"}, {"consistency": "eventual"}])
def test_an_unknown_way_to_read_is_an_error(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"slaves|eventual"):
        DLedgerClient(["127.0.0.1:1"], "g0", **wrong)  # type: ignore[arg-type]
