"""Which links a member keeps up: to those who belong to its group, and to nobody else."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from dledger_formats.settings import NodeSettings
from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core import Raft
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.log_terms import LogTerms
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.messages import AppendRequest, HeartBeatRequest, Message
from dledger_node.raft.ready import HardState
from dledger_node.remoting import native
from dledger_node.remoting.links import Links
from dledger_wire.listener import Listener, hello_to, listening, until

FIRST = Membership(("n0", "n1"))
GROWN = Membership(("n0", "n1", "n2"))


class Owner:
    """A member n1 without a log."""

    def __init__(self) -> None:
        self.lost: list[str] = []

    def hello(self, peer_id: str) -> native.Hello:
        """Who calls."""
        return hello_to(peer_id)

    def read_entries(
        self, push: AppendRequest, bytes_max: int
    ) -> tuple[Sequence[bytes | memoryview], int] | None:
        """None that could be pushed."""
        return None

    def link_restored(self, peer_id: str) -> None:
        """Nothing to do."""

    def link_lost(self, peer_id: str) -> None:
        """Remember."""
        self.lost.append(peer_id)


def core_of(*entries: MembershipEntry, committed_index: int = 9) -> Raft:
    return Raft(
        RaftConfig(
            self_id="n1", voters=FIRST.voters, addable_ids=("n2", "n3"), heartbeat_ticks=2,
            election_ticks=10,
        ),
        HardState(term=1, vote_for=None),
        LogTerms(0, [(0, 1)], 9),
        committed_index=committed_index,
        incarnation=1,
        randint=lambda low, high: low,
        memberships=LogMemberships(FIRST, entries),
    )  # fmt: skip


@contextlib.asynccontextmanager
async def linked(core: Raft, n2: Listener) -> AsyncIterator[tuple[Links, Owner]]:
    """n0 and n3 do not answer."""
    owner = Owner()
    settings = NodeSettings(
        group="g", self_id="n1", peers={"n0": "127.0.0.1:1", "n1": "127.0.0.1:1"},
        addable_peers={"n2": f"127.0.0.1:{n2.port}", "n3": "127.0.0.1:1"}, store_base_dir="/s",
    )  # fmt: skip
    links = Links(owner, settings, core, uniform=lambda low, _: low)
    task = asyncio.create_task(links.run())
    try:
        yield links, owner
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def heartbeat(receiver: str) -> Message:
    return HeartBeatRequest(sender="n1", receiver=receiver, term=1, committed_index=0, round=1)


def enter(core: Raft, index: int, membership: Membership) -> None:
    core.memberships.append(MembershipEntry(index, membership))


async def test_only_members_are_called() -> None:
    async with listening() as n2, linked(core_of(), n2) as (links, owner):
        await until(lambda: owner.lost.count("n0") > 3)

        assert set(owner.lost) == {"n0"}
        assert links.up() == {"n0": False, "n2": False, "n3": False}


async def test_who_is_added_is_called_at_once() -> None:
    core = core_of()
    async with listening() as n2, linked(core, n2) as (links, _):
        await asyncio.sleep(0)
        enter(core, 10, GROWN)
        links.arrange()

        await until(lambda: links.up()["n2"])


@pytest.mark.parametrize(("committed_index", "is_called"), [(5, True), (9, False)])
async def test_who_is_being_removed_is_called_until_that_is_committed(
    committed_index: int, is_called: bool
) -> None:
    core = core_of(
        MembershipEntry(2, GROWN), MembershipEntry(9, FIRST), committed_index=committed_index
    )
    async with listening() as n2, linked(core, n2) as (links, owner):
        await until(lambda: owner.lost.count("n0") > 3)

        assert links.up()["n2"] is is_called


async def test_who_belongs_to_the_group_no_more_calls_nobody() -> None:
    core = core_of(MembershipEntry(2, Membership(("n0", "n2"))))
    async with listening() as n2, linked(core, n2) as (links, owner):
        links.send([heartbeat("n2")])
        await until(lambda: links.up()["n2"])

        assert owner.lost == [], "but for what it is asked"


async def test_what_is_to_be_said_to_others_opens_their_link() -> None:
    async with listening() as n2, linked(core_of(), n2) as (links, owner):
        links.send([heartbeat("n2")])
        await until(lambda: links.up()["n2"])
        for _ in range(3):
            before = owner.lost.count("n3")
            links.send([heartbeat("n3")])
            await until(lambda before=before: owner.lost.count("n3") == before + 1)
        lost_count = len(owner.lost)
        await until(lambda: len(owner.lost) > lost_count + 3)

        assert owner.lost.count("n3") == 3, "one call for each message, and none without"


async def test_a_member_without_an_address_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as n2, linked(core_of(), n2) as (links, _):
        for _ in range(3):
            links.send([heartbeat("n9")])

    assert caplog.text.count("n9 belongs to the group, but the settings have no address") == 1
    assert "n9" not in links
