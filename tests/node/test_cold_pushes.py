"""Pushes of entries that the leader's page cache lacks."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dledger_node.raft.messages import AppendRequest
from dledger_node.remoting.link_owner import Entries, OnDiskError
from dledger_node.remoting.service import AppendCall
from dledger_node.shell.peers import LinkOwner
from dledger_node.store.segments import page_cache
from dledger_node.store.segments.segment import Segment
from dledger_wire.played import Client, become_master, make_server


class ColdLeader:
    """Leader n0 of a played group, whose page cache is empty and whose disk waits."""

    def __init__(self, owner: LinkOwner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.owner = owner
        self.may_answer = threading.Event()
        self.fetched: list[Entries | None] = []
        read = Segment.read

        def from_disk(file: Segment, at: int, size: int) -> bytes:
            assert threading.current_thread() is not threading.main_thread()
            assert self.may_answer.wait(20)
            return read(file, at, size)

        monkeypatch.setattr(page_cache, "read_cached", lambda *_: 0)
        monkeypatch.setattr(Segment, "read", from_disk)

    def push(self, peer_id: str = "n1", term: int = 1) -> AppendRequest:
        return AppendRequest(
            sender="n0", receiver=peer_id, term=term, previous_index=-1, previous_term=-1,
            first_index=0, last_index=1, entries_term=1, committed_index=0, entries=None,
        )  # fmt: skip

    async def until_fetched(self, count: int) -> None:
        """Wait until the threads have answered so often."""
        async with asyncio.timeout(20):
            while len(self.fetched) < count:  # noqa: ASYNC110 - it polls a thread
                await asyncio.sleep(0.001)


@pytest.fixture
async def leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ColdLeader]:
    """A leader with two entries."""
    server, core = make_server(tmp_path)
    await become_master(server, core)
    server.clients.appends.append([AppendCall(Client(), 7, b"mine")])
    await asyncio.sleep(0)
    assert server._store.end_index == 1
    leader = ColdLeader(server.clients.peers._owner, monkeypatch)
    yield leader
    leader.may_answer.set()
    await server.close()


async def test_a_thread_reads_the_entries_that_the_page_cache_lacks(leader: ColdLeader) -> None:
    push = leader.push()
    with pytest.raises(OnDiskError):
        leader.owner.read_entries(push, 1 << 20)
    leader.owner.fetch(push, 1 << 20, leader.fetched.append)
    leader.may_answer.set()
    await leader.until_fetched(1)

    [found] = leader.fetched
    assert found is not None
    assert found[1] == 1
    assert b"".join(found[0]).endswith(b"mine")


async def test_one_thread_at_a_time_reads_for_a_peer(leader: ColdLeader) -> None:
    for peer_id in ("n1", "n2", "n1"):
        leader.owner.fetch(leader.push(peer_id), 1 << 20, leader.fetched.append)
    assert leader.fetched == [None]

    leader.may_answer.set()
    await leader.until_fetched(3)
    leader.owner.fetch(leader.push(), 1 << 20, leader.fetched.append)
    await leader.until_fetched(4)
    assert None not in leader.fetched[1:]


async def test_entries_of_a_deposed_leader_are_not_pushed(leader: ColdLeader) -> None:
    leader.owner.fetch(leader.push(term=2), 1 << 20, leader.fetched.append)
    leader.may_answer.set()
    await leader.until_fetched(1)

    assert leader.fetched == [None]
