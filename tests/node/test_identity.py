"""Groups of one name, of real members: no address, link or folder mixes them."""

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.leadership_transfer import (
    LeadershipTransferRequest,
    LeadershipTransferResponse,
)
from dledger_formats.protocol.membership_change import (
    CHANGE_MEMBERSHIP,
    ChangeKind,
    ChangeMembershipRequest,
    ChangeMembershipResponse,
)
from dledger_formats.settings import NodeSettings
from dledger_group.wire import ask
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group
FIRST, SECOND = "first-group", "second-group"


class NamedGroup(NodeGroup):
    """A group with an identity, which some members may not know."""

    def __init__(self, folder: Path, identity: str, **others: int) -> None:
        super().__init__(folder, **others)
        self.identity_of = dict.fromkeys(self.peers | self.addable, identity)

    def settings(self, member: str) -> NodeSettings:
        return replace(super().settings(member), group_identity=self.identity_of[member])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., NamedGroup]]:
    """Start groups, each in its own folder, and stop them after the test."""
    with ExitStack() as groups:

        def begin(identity: str, **others: int) -> NamedGroup:
            folder = tmp_path / (identity or "without")
            folder.mkdir()
            group = NamedGroup(folder, identity, **others)
            groups.enter_context(group)
            return group

        yield begin


async def append(group: NodeGroup, count: int, *, members: Sequence[str] = ()) -> int:
    """Append entries at some members, or at any, and return the index of the last."""
    servers = [group.peers[member] for member in members] or group.servers
    async with DLedgerClient(servers, "g") as client:
        return [await client.append(b"%d" % number) for number in range(count)][-1].index


def refused_links(group: NodeGroup, member: str) -> float:
    page = group.get(member, "/metrics")[1].decode()
    found = re.search(r'connections_closed_total\{reason="link_refused"\} (\S+)', page)
    return float(found[1]) if found else 0.0


def folder_of(group: NodeGroup, member: str) -> dict[str, bytes]:
    folder = group.store_folder(member)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


async def test_an_address_that_passes_to_another_group_mixes_neither_group(
    start: Callable[..., NamedGroup],
) -> None:
    one, two = start(FIRST), start(SECOND)
    last_of_one, last_of_two = await append(one, 20), await append(two, 5)
    for group in (one, two):
        group.kill("n2")
    two.peers["n2"] = one.peers["n2"]  # the first group still calls it n2 of its own
    for member in ("n0", "n1"):
        two.kill(member)
    for member in two.peers:
        two.start(member)
    two.master()
    wait_for(lambda: refused_links(two, "n2") > 2, "n2 refuses members of the other group")

    # A new client goes by the addresses that it is given.
    assert await append(one, 1, members=("n0", "n1")) > last_of_one
    assert await append(two, 1) > last_of_two
    assert two.status("n2").ledger_end_index < last_of_one
    leader = one.master()
    assert {view.peer_id: view.reachable for view in one.status(leader).followers}["n2"] is False


async def test_members_of_two_groups_that_reach_each_other_elect_no_leader(
    start: Callable[..., NamedGroup],
) -> None:
    """n1 of one group and n2 of the other are a majority of three, by their ids alone."""
    one, two = start(FIRST), start(SECOND)
    await append(one, 3)
    await append(two, 3)
    for group in (one, two):
        for member in group.peers:
            group.kill(member)
    one.peers["n2"], two.peers["n1"] = two.peers["n2"], one.peers["n1"]
    one.start("n1")
    two.start("n2")
    for group, member in ((one, "n1"), (two, "n2")):
        group.wait_until_up(member)
    terms = one.status("n1").term, two.status("n2").term

    for group, member in ((one, "n1"), (two, "n2")):
        wait_for(lambda g=group, m=member: refused_links(g, m) > 8, f"{member} refuses links")

    assert (one.status("n1").term, two.status("n2").term) == terms
    assert (one.status("n1").leader_id, two.status("n2").leader_id) == (None, None)
    assert FIRST in two.log("n2")
    assert SECOND in one.log("n1")


async def test_a_folder_of_another_group_stays_out_and_is_not_changed(
    start: Callable[..., NamedGroup],
) -> None:
    one, two = start(FIRST), start(SECOND)
    await append(one, 3)
    await append(two, 30)
    one.kill("n2")
    two.kill("n2")
    shutil.rmtree(one.store_folder("n2"))
    shutil.copytree(two.store_folder("n2"), one.store_folder("n2"))
    before = folder_of(one, "n2")
    one.start("n2")
    last = await append(one, 3)

    one.wait_for_status("n2", lambda view: "another group" in view.reason, "says why it stays out")

    assert not one.status("n2").ready
    assert SECOND in one.status("n2").reason
    leader = one.master()
    follower = next(each for each in one.status(leader).followers if each.peer_id == "n2")
    assert (follower.match_index < last, follower.reachable) == (True, False)
    assert folder_of(one, "n2") == before


async def test_members_with_and_without_an_identity_form_one_group(
    start: Callable[..., NamedGroup],
) -> None:
    """As after an upgrade of some members of a group that had no identity."""
    group = start("")
    await append(group, 3)
    for member in ("n0", "n1"):
        group.identity_of[member] = FIRST
        group.kill(member)
        group.start(member)
        group.wait_for_status(member, lambda view: view.ready, "is ready")

    group.wait_for_status("n2", lambda view: view.group_identity == FIRST, "learns the identity")

    assert {group.status(member).group_identity for member in group.peers} == {FIRST}
    await append(group, 3)
    group.kill("n2")
    group.start("n2")
    group.wait_for_status("n2", lambda view: view.ready, "is ready")
    assert group.status("n2").group_identity == FIRST


async def test_the_only_first_voter_makes_an_identity_and_added_members_learn_it(
    start: Callable[..., NamedGroup],
) -> None:
    group = start("", members=1, addable=1)
    group.master()
    identity = group.status("n0").group_identity
    assert re.fullmatch(r"[0-9a-f-]{36}", identity)

    group.start("n1")
    async with DLedgerClient(group.servers, "g") as client:
        await client.change_membership(ChangeKind.ADD_LEARNER, "n1")

    group.wait_for_status("n1", lambda view: view.group_identity == identity, "learns the identity")
    group.kill("n0")
    group.start("n0")
    group.master()
    assert group.status("n0").group_identity == identity


async def test_a_membership_change_for_another_group_is_refused(
    start: Callable[..., NamedGroup],
) -> None:
    group = start(FIRST, addable=1)
    leader = group.master()

    def remove(identity: str) -> ChangeMembershipResponse:
        request = ChangeMembershipRequest(
            group="g", remote_id=leader, change=ChangeKind.REMOVE, member_id="n3",
            group_identity=identity,
        )  # fmt: skip
        command = RemotingCommand(code=CHANGE_MEMBERSHIP, opaque=1, body=request.to_json())
        return ChangeMembershipResponse.from_json(ask(group, leader, command).body)

    assert remove(SECOND).code is DLedgerResponseCode.UNKNOWN_GROUP
    assert remove(FIRST).code is not DLedgerResponseCode.UNKNOWN_GROUP
    assert remove("").code is not DLedgerResponseCode.UNKNOWN_GROUP


async def test_a_transfer_for_another_group_is_refused_and_moves_nothing(
    start: Callable[..., NamedGroup],
) -> None:
    group = start(FIRST)
    leader = group.master()
    target = min(set(group.peers) - {leader})
    term = group.status(leader).term

    def transfer(identity: str) -> LeadershipTransferResponse:
        request = LeadershipTransferRequest(
            group="g", remote_id=leader, transfer_id=leader, transferee_id=target, term=term,
            group_identity=identity,
        )  # fmt: skip
        command = RemotingCommand(
            code=RequestCode.LEADERSHIP_TRANSFER, opaque=1, body=request.to_json()
        )
        return LeadershipTransferResponse.from_json(ask(group, leader, command).body)

    assert transfer(SECOND).code is DLedgerResponseCode.UNKNOWN_GROUP
    assert (group.master(), group.status(leader).term) == (leader, term)
    assert transfer(FIRST).code is DLedgerResponseCode.SUCCESS
    assert group.master() == target
