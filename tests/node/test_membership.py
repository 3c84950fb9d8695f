"""Real groups that grow and shrink: under load, through crashes, with logs without their front."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged, Refused
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import NotLeaderError, OutcomeUnknownError, RefusedError
from dledger_formats.http.status import MembershipRole
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_formats.settings import GroupState
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group
ADD, PROMOTE = ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE
DEMOTE, REMOVE = ChangeKind.DEMOTE, ChangeKind.REMOVE
Code = DLedgerResponseCode
_loads = itertools.count()
FIVE = ("n0", "n1", "n2", "n3", "n4")


def client_of(group: NodeGroup, deadline_s: float = 60.0) -> DLedgerClient:
    return DLedgerClient(
        list((group.peers | group.addable).values()),
        "g",
        timing=Timing(deadline_s=deadline_s),
    )


class Load:
    """Appends without a pause, and remembers the index of each acknowledged body."""

    def __init__(self) -> None:
        self.over = False
        self._name = b"load %d: " % next(_loads)
        self.stored: dict[int, bytes] = {}
        self.unknown: set[bytes] = set()
        self._appended = asyncio.Event()

    async def run(self, client: DLedgerClient) -> None:
        """Append until the block ends."""
        number = 0
        while not self.over:
            bodies = [self._name + b"%d" % k for k in range(number, number + 20)]
            number += len(bodies)
            for body, outcome in zip(bodies, await client.append_batch(bodies), strict=True):
                if isinstance(outcome, Acknowledged):
                    assert outcome.index not in self.stored, "one place, acknowledged twice"
                    self.stored[outcome.index] = body
                elif not isinstance(outcome, Refused):
                    self.unknown.add(body)
            self._appended.set()

    async def goes_on(self) -> None:
        """Wait for more acknowledged appends."""
        before = len(self.stored)
        while len(self.stored) < before + 40:
            self._appended.clear()
            await asyncio.wait_for(self._appended.wait(), 60)

    async def check(self, client: DLedgerClient) -> None:
        """Check that every acknowledged body is in the log at its index, and none twice."""
        begin = (await client.bounds()).begin_index
        found = {entry.index: entry.body async for entry in client.get_range(begin) if entry.body}
        acknowledged = {i: body for i, body in self.stored.items() if i >= begin}
        assert {index: found.get(index) for index in acknowledged} == acknowledged
        others = [body for i, body in found.items() if i not in acknowledged and self._name in body]
        assert len(others) == len(set(others))
        assert set(others) <= self.unknown


@contextlib.asynccontextmanager
async def loaded(client: DLedgerClient) -> AsyncIterator[Load]:
    """Keep appending while the block runs, and check all appends at its end."""
    load = Load()
    running = asyncio.create_task(load.run(client))
    try:
        await load.goes_on()
        yield load
        await load.goes_on()
    finally:
        load.over = True
        await running
    await load.check(client)


async def grow(group: NodeGroup, client: DLedgerClient, *members: str) -> None:
    """Start members, add and promote them."""
    for member in members:
        if member not in group.running():
            group.start(member)
            group.wait_until_up(member)
        assert member in (await client.change_membership(ADD, member)).learners
        assert member in (await client.change_membership(PROMOTE, member)).voters


def wait_until_level(group: NodeGroup, *members: str) -> None:
    """Wait until members hold every entry that the master has committed."""
    for member in members:
        committed_index = group.status(group.master()).committed_index
        group.wait_for_status(
            member,
            lambda view, index=committed_index: view.ready and view.committed_index >= index,
            "has caught up",
        )


@pytest.fixture
def group(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three voters, and two addable members that do not run yet."""
    with NodeGroup(tmp_path, addable=2) as started:
        started.master()
        yield started


async def test_three_grow_to_five_under_load_and_nothing_is_lost(group: NodeGroup) -> None:
    async with client_of(group) as client, loaded(client) as load:
        await grow(group, client, "n3", "n4")
        await load.goes_on()
        wait_until_level(group, "n3", "n4")

        for member in FIVE:
            view = group.status(member)
            assert view.membership is MembershipRole.VOTER
            assert (tuple(view.voters), view.learners, view.addable) == (FIVE, [], [])
        leader = group.master()
        group.kill(leader)
        group.kill(min(set(group.running())))
        await load.goes_on()
        assert group.master() in FIVE, "three of five are a majority; two of the first three gone"


async def test_five_shrink_to_three_and_the_leader_is_among_the_removed(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, members=5) as group:
        leader = group.master()
        other = min(set(group.peers) - {leader})
        left = tuple(sorted(set(group.peers) - {leader, other}))
        async with client_of(group) as client, loaded(client) as load:
            await client.change_membership(REMOVE, other)
            after = await client.change_membership(REMOVE, leader)
            assert after.voters == left
            await load.goes_on()
            wait_for(lambda: group.master() in left, "one of those that are left leads")
            for gone in (leader, other):
                group.wait_for_status(
                    gone,
                    lambda view: view.membership is MembershipRole.NONE,
                    "knows that it was removed",
                )
                group.stop(gone)
            group.kill(left[0])
            await load.goes_on()
        assert group.master() in left[1:]


async def test_a_removed_member_that_starts_again_disturbs_no_election(group: NodeGroup) -> None:
    removed = min(set(group.peers) - {group.master()})
    async with client_of(group) as client:
        await client.change_membership(REMOVE, removed)
        group.wait_for_status(
            removed,
            lambda view: view.membership is MembershipRole.NONE,
            "has the entry of its removal",
        )
        group.kill(removed)
        terms = {group.status(member).term for member in group.running()}
        async with loaded(client) as load:
            group.start(removed)
            group.wait_until_up(removed)
            for _ in range(5):
                await load.goes_on()
        wait_for(lambda: "not a member of the group" in group.status(removed).reason, "says why")
        assert group.get(removed, "/readyz")[0] == 503
        group.wait_for_status(
            group.master(),
            lambda view: removed not in {peer.peer_id for peer in view.followers},
            "no longer pushes to the removed member",
        )
        views = [group.status(member) for member in group.running() if member != removed]
        assert {view.term for view in views} == terms


async def test_a_removed_member_is_added_again(group: NodeGroup) -> None:
    removed = min(set(group.peers) - {group.master()})
    async with client_of(group) as client, loaded(client) as load:
        await client.change_membership(DEMOTE, removed)
        await client.change_membership(REMOVE, removed)
        await load.goes_on()
        await grow(group, client, removed)
        wait_until_level(group, removed)
        assert group.status(removed).membership is MembershipRole.VOTER


async def test_a_group_that_restarts_completely_knows_its_members(group: NodeGroup) -> None:
    async with client_of(group) as client:
        async with loaded(client):
            await grow(group, client, "n3")
            group.start("n4")
            group.wait_until_up("n4")
            await client.change_membership(ADD, "n4")
            await client.change_membership(REMOVE, "n0")
            wait_until_level(group, "n3", "n4")
        index = group.status(group.master()).membership_index
        for member in group.running():
            group.kill(member)
        for member in ("n1", "n2", "n3", "n4"):
            group.start(member)
        master = group.master()

        assert master in ("n1", "n2", "n3")
        found = await client.membership()
        assert (found.voters, found.learners) == (("n1", "n2", "n3"), ("n4",))
        assert (found.index, sorted(found.addable)) == (index, ["n0"])
        wait_until_level(group, "n4")
        assert group.status("n4").membership is MembershipRole.LEARNER
        async with loaded(client):
            pass


@pytest.mark.sampled(2)
@pytest.mark.parametrize("moment", range(4))
async def test_a_change_whose_leader_is_killed_succeeds_when_it_is_repeated(
    group: NodeGroup, moment: int
) -> None:
    """Whether the change was made or not, the members agree on it, and repeating it succeeds."""
    group.start("n3")
    group.wait_until_up("n3")
    async with client_of(group) as client, loaded(client):
        leader = group.master()
        asked = asyncio.create_task(client.change_membership(ADD, "n3"))
        await asyncio.sleep(moment * 0.002)  # a random moment, on purpose
        group.kill(leader)
        assert "n3" in (await asked).learners
        group.start(leader)
        assert "n3" in (await client.change_membership(PROMOTE, "n3")).voters
        wait_until_level(group, leader, "n3")
        seen = {tuple(group.status(member).voters) for member in group.running()}
        assert seen == {FIVE[:4]}


async def test_a_change_that_was_never_committed_is_undone_with_its_entry(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, addable=1, election_timeout_ms=3000) as group:
        leader = group.master()
        others = sorted(set(group.peers) - {leader})
        for member in others:
            group.kill(member)
        alone = DLedgerClient(
            [group.peers[leader]], "g", follow_leader=False, timing=Timing(deadline_s=2.5)
        )
        async with alone:
            with pytest.raises((OutcomeUnknownError, NotLeaderError, RefusedError)):
                await alone.change_membership(ADD, "n3")
        written = group.status(leader)
        assert written.learners == ["n3"]
        assert written.membership_index > written.committed_index
        group.kill(leader)
        for member in others:
            group.start(member)
        async with client_of(group) as client:
            async with loaded(client):
                group.start(leader)
                wait_until_level(group, leader)
                view = group.status(leader)
                assert (tuple(view.voters), view.learners) == (FIVE[:3], [])
            group.kill(leader)
            group.start(leader)
            wait_until_level(group, leader)
            assert group.status(leader).learners == []


async def test_a_member_is_added_after_retention_removed_the_front(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, addable=2, retention_bytes=2 << 20) as group:
        group.master()
        async with client_of(group) as client:
            await grow(group, client, "n3")
            index = group.status(group.master()).membership_index
            for _ in range(6):
                await client.append_batch([bytes(10_000)] * 100)
            for member in group.running():
                group.wait_for_status(
                    member,
                    lambda view: view.ledger_begin_index > index,
                    "has removed the entry that says who belongs to the group",
                )
            await grow(group, client, "n4")
            wait_until_level(group, "n4")
            assert "now begins with the leader's entry" in group.log("n4")
            for member in group.running():
                group.kill(member)
            for member in FIVE:
                group.start(member)
            group.master()
            for member in FIVE:
                group.wait_until_up(member)
                assert tuple(group.status(member).voters) == FIVE
            async with loaded(client):
                pass


async def test_an_impossible_change_is_refused_with_a_reason(group: NodeGroup) -> None:
    async with client_of(group, deadline_s=5.0) as client:
        for change, member, code in (
            (ADD, "n9", Code.NO_SUCH_MEMBER),
            (PROMOTE, "n3", Code.NO_SUCH_MEMBER),
            (REMOVE, "n9", Code.NO_SUCH_MEMBER),
        ):
            with pytest.raises(RefusedError) as refused:
                await client.change_membership(change, member)
            assert refused.value.code is code
        assert "n3" in (await client.change_membership(ADD, "n3")).learners, "it is not up yet"
        with pytest.raises(RefusedError) as refused:
            await client.change_membership(PROMOTE, "n3")
        assert refused.value.code is Code.FALL_BEHIND_TOO_MUCH
        down = min(set(group.peers) - {group.master()})
        group.kill(down)
        wait_for(lambda: group.status(group.master()), "its leader notices")
        up = next(m for m in group.running() if m != group.master())
        refusals = []

        async def is_refused() -> bool:
            with contextlib.suppress(RefusedError):
                await client.change_membership(PROMOTE, "n3")
            try:
                await client.change_membership(REMOVE, up)
            except RefusedError as error:
                refusals.append(error.code)
            return bool(refusals)

        assert await is_refused()
        assert refusals == [Code.QUORUM_AT_RISK]


async def test_a_change_that_is_made_already_succeeds(group: NodeGroup) -> None:
    async with client_of(group) as client:
        for change, member in ((ADD, "n3"), (ADD, "n3"), (DEMOTE, "n3"), (ADD, "n0")):
            assert (await client.change_membership(change, member)).learners == ("n3",)
        for _ in range(2):
            assert (await client.change_membership(REMOVE, "n3")).learners == ()
        assert (await client.change_membership(PROMOTE, "n0")).voters == ("n0", "n1", "n2")
        assert group.status(group.master()).membership_index > 0


async def test_the_last_voter_cannot_be_removed(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, members=1, addable=1) as group:
        group.master()
        async with client_of(group, deadline_s=20.0) as client:
            for change in (DEMOTE, REMOVE):
                with pytest.raises(RefusedError) as refused:
                    await client.change_membership(change, "n0")
                assert refused.value.code is Code.LAST_VOTER
            await grow(group, client, "n1")
            assert (await client.change_membership(REMOVE, "n0")).voters == ("n1",)
            wait_for(lambda: group.master() == "n1", "the remaining member leads")
            async with loaded(client):
                pass


def test_members_that_do_not_exist_are_not_called(group: NodeGroup) -> None:
    """Only a joining member asks for addable members, and only once, so that no log fills."""
    for member in group.peers:
        group.kill(member)
    for member in group.peers:
        group.start(member)
    group.master()

    for member in group.peers:
        assert group.log(member).count("no link to n3") <= 1


def test_a_joining_member_waits_for_the_addable_members(
    tmp_path: Path,
) -> None:
    group = NodeGroup(tmp_path, members=1, addable=1, initial_group_state=GroupState.EXISTING)
    try:
        group.start("n0")
        group.wait_until_up("n0")
        group.wait_for_status(
            "n0", lambda view: view.joining, "waits for n1, which may hold the log"
        )
        assert not group.status("n0").master
        group.start("n1")
        assert group.master() == "n0"
    finally:
        group.__exit__(None, None, None)
