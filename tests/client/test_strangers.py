"""Members of another group that has the name of the client's: it sends them nothing."""

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import GroupUnreachableError
from dledger_fake_server.group import Group

SOON = Timing(deadline_s=1.0)


def take_over(group: Group, identity: str) -> None:
    """Let the members belong to a group with this identity."""
    for member in group.members.values():
        member.identity = identity


async def restart(group: Group) -> None:
    """Break all connections."""
    for member in group.members.values():
        await member.stop()
    for member in group.members.values():
        await member.start()


@pytest.mark.parametrize("term", [1, 9], ids=["a lower term", "a higher term"])
async def test_a_client_does_not_go_over_to_a_group_that_was_founded_again(
    group: Group, term: int
) -> None:
    take_over(group, "first")
    group.term = 5
    async with DLedgerClient(group.servers, "g0", timing=SOON) as client:
        await client.append(b"to the first")
        take_over(group, "second")
        group.term = term
        await restart(group)

        with pytest.raises(GroupUnreachableError, match=r"another group named g0.*a new client"):
            await client.append(b"to the second")

    assert group.log == [b"to the first"]
    async with DLedgerClient(group.servers, "g0") as another:
        await another.append(b"to the second")


@pytest.mark.parametrize("follow_leader", [True, False])
async def test_an_address_that_passes_to_another_group_gets_no_append(
    group: Group, follow_leader: bool
) -> None:
    take_over(group, "first")
    servers = group.servers
    async with DLedgerClient(servers, "g0", follow_leader=follow_leader, timing=SOON) as client:
        await client.append(b"one")
        take_over(group, "second")
        group["n1"].identity = "first"
        group.elect("n1")
        group["n0"].leader_hint = "n0"
        await restart(group)
        await client.append(b"two")

    assert group["n1"].appends == [b"two"]


async def test_reads_from_followers_do_not_go_over_either(group: Group) -> None:
    take_over(group, "first")
    group.append_all([b"0", b"1"])
    for member in group.members.values():
        member.serves_reads = True
    async with DLedgerClient(
        group.servers, "g0", read_from="followers", consistency="stale", timing=SOON
    ) as client:
        await client.get(0)
        take_over(group, "second")
        await restart(group)

        with pytest.raises(GroupUnreachableError, match="another group named g0"):
            await client.get(1)


async def test_a_group_that_receives_an_identity_stays_the_same_group(group: Group) -> None:
    async with DLedgerClient(group.servers, "g0", timing=SOON) as client:
        await client.append(b"without")
        take_over(group, "first")
        await restart(group)
        await client.append(b"with")
        group["n1"].identity = ""  # restarted, and without its identity until it hears of it
        group.elect("n1")
        await restart(group)
        await client.append(b"without again")

    assert group.log == [b"without", b"with", b"without again"]
