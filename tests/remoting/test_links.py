"""A member keeps up only the links to members of its group."""

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
from dledger_node.remoting import native, peer_link
from dledger_node.remoting.links import Links
from dledger_wire.listener import Listener, hello_to, listening, until

FIRST = Membership(("n0", "n1"))
GROWN = Membership(("n0", "n1", "n2"))


class Owner:
    """A member n1 without a log."""

    def __init__(self) -> None:
        self.lost: list[str] = []

    def hello(self, peer_id: str) -> native.Hello:
        """Return the greeting of n1."""
        return hello_to(peer_id)

    def read_entries(
        self, push: AppendRequest, bytes_max: int
    ) -> tuple[Sequence[bytes | memoryview], int] | None:
        """Return None: there is no entry to push."""
        return None

    def link_restored(self, peer_id: str) -> None:
        """Do nothing."""

    def link_lost(self, peer_id: str) -> None:
        """Remember the peer."""
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
    """Run the links of n1; n0 and n3 do not answer."""
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


async def test_only_links_to_members_are_kept_up() -> None:
    async with listening() as n2, linked(core_of(), n2) as (links, owner):
        await until(lambda: owner.lost.count("n0") > 3)

        assert set(owner.lost) == {"n0"}
        assert links.up() == {"n0": False, "n2": False, "n3": False}


async def test_the_link_to_an_added_member_opens_at_once() -> None:
    core = core_of()
    async with listening() as n2, linked(core, n2) as (links, _):
        await asyncio.sleep(0)
        enter(core, 10, GROWN)
        links.arrange()

        await until(lambda: links.up()["n2"])


@pytest.mark.parametrize(("committed_index", "is_called"), [(5, True), (9, False)])
async def test_the_link_to_a_removed_member_stays_until_the_removal_is_committed(
    committed_index: int, is_called: bool
) -> None:
    core = core_of(
        MembershipEntry(2, GROWN), MembershipEntry(9, FIRST), committed_index=committed_index
    )
    async with listening() as n2, linked(core, n2) as (links, owner):
        await until(lambda: owner.lost.count("n0") > 3)

        assert links.up()["n2"] is is_called


async def test_a_removed_member_opens_links_only_to_answer() -> None:
    core = core_of(MembershipEntry(2, Membership(("n0", "n2"))))
    async with listening() as n2, linked(core, n2) as (links, owner):
        links.send([heartbeat("n2")])
        await until(lambda: links.up()["n2"])

        assert owner.lost == [], "no link except the one for the message"


async def test_a_message_to_a_non_member_opens_its_link_once() -> None:
    async with listening() as n2, linked(core_of(), n2) as (links, owner):
        links.send([heartbeat("n2")])
        await until(lambda: links.up()["n2"])
        for _ in range(3):
            before = owner.lost.count("n3")
            links.send([heartbeat("n3")])
            await until(lambda before=before: owner.lost.count("n3") == before + 1)
        lost_count = len(owner.lost)
        await until(lambda: len(owner.lost) > lost_count + 3)

        assert owner.lost.count("n3") == 3, "one attempt for each message, and no other"


async def test_a_member_without_an_address_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as n2, linked(core_of(), n2) as (links, _):
        for _ in range(3):
            links.send([heartbeat("n9")])

    assert caplog.text.count("n9 belongs to the group, but the settings have no address") == 1
    assert "n9" not in links


async def test_the_link_to_a_member_that_has_started_again_leads_to_its_new_address_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the next pre-votes go to the address that its pod had before."""
    monkeypatch.setattr(peer_link, "STEADY_S", 0.0)
    monkeypatch.setattr(peer_link, "RETRY_DELAY_MIN_S", 3600)
    monkeypatch.setattr(peer_link, "RETRY_DELAY_MAX_S", 3600)
    core = core_of(MembershipEntry(3, GROWN))
    async with listening() as old, listening() as new, linked(core, old) as (links, _):
        await until(lambda: links.up()["n2"])
        links.heard_hello("n2", 7)
        (link,) = [link for link in links if link.peer_id == "n2"]
        link.address = f"127.0.0.1:{new.port}"

        links.heard_hello("n2", 7)
        links.send_one(heartbeat("n2"))
        await until(lambda: len(old.messages) == 1)
        links.heard_hello("n2", 8)
        await until(lambda: new.gate.connections == 1 and links.up()["n2"])
        links.send_one(heartbeat("n2"))

        await until(lambda: len(new.messages) == 1)
        assert len(old.messages) == 1
