"""A link whose pushes are on the disk: a thread reads them, and nothing overtakes them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from dledger_node.raft.messages import AppendRequest, HeartBeatRequest
from dledger_node.remoting import native
from dledger_node.remoting.limits import Reason
from dledger_node.remoting.link_owner import Entries, OnDiskError, Push
from dledger_node.remoting.peer_link import PeerLink
from dledger_wire.listener import Listener, hello_to, listening, until

ENTRY = bytes(100)


@dataclass
class Owner:
    """Member n1, whose page cache has no entry."""

    restored: int = 0
    fetches: list[tuple[Push, Callable[[Entries | None], None]]] = field(default_factory=list)

    def hello(self, peer_id: str) -> native.Hello:
        return hello_to(peer_id)

    def read_entries(self, push: Push, bytes_max: int) -> Entries | None:
        raise OnDiskError

    def fetch(self, push: Push, bytes_max: int, then: Callable[[Entries | None], None]) -> None:
        self.fetches.append((push, then))

    def link_restored(self, _: str) -> None:
        self.restored += 1

    def link_lost(self, _: str) -> None:
        pass

    def answer(self) -> None:
        """Let the thread end with the first entry."""
        push, then = self.fetches.pop()
        then(([ENTRY], push.first_index))


def push(first_index: int, last_index: int) -> AppendRequest:
    return AppendRequest(
        sender="n1", receiver="n0", term=1, previous_index=first_index - 1, previous_term=1,
        first_index=first_index, last_index=last_index, entries_term=1, committed_index=0,
        entries=None,
    )  # fmt: skip


def heartbeat(round_: int) -> HeartBeatRequest:
    return HeartBeatRequest(sender="n1", receiver="n0", term=1, committed_index=0, round=round_)


def received(listener: Listener) -> list[str]:
    """Return what has arrived, in order."""
    return [
        f"push {message.first_index}"
        if isinstance(message, AppendRequest)
        else f"heartbeat {message.round}"
        for message in listener.messages
        if isinstance(message, AppendRequest | HeartBeatRequest)
    ]


@contextlib.asynccontextmanager
async def linked(owner: Owner, listener: Listener) -> AsyncIterator[PeerLink]:
    """Keep a link of that member up while the block runs."""
    address = f"127.0.0.1:{listener.port}"
    link = PeerLink(owner, "n0", address, dead_after_ms=60_000, uniform=lambda _, high: high)
    task = asyncio.create_task(link.run())
    try:
        yield link
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_messages_wait_behind_a_push_that_a_thread_reads() -> None:
    owner = Owner()
    async with listening() as listener, linked(owner, listener) as link:
        await until(lambda: link.up)
        link.send(heartbeat(1))
        link.send(push(0, 1))
        link.send(heartbeat(2))
        await until(lambda: received(listener) == ["heartbeat 1"])
        assert [one.first_index for one, _ in owner.fetches] == [0]

        owner.answer()
        await until(lambda: received(listener) == ["heartbeat 1", "push 0"])
        await until(lambda: [one.first_index for one, _ in owner.fetches] == [1])
        owner.answer()
        await until(lambda: len(received(listener)) == 4)
        assert received(listener) == ["heartbeat 1", "push 0", "push 1", "heartbeat 2"]
        assert link.dropped == 0


async def test_a_push_that_is_out_of_date_once_it_is_read_is_dropped() -> None:
    owner = Owner()
    async with listening() as listener, linked(owner, listener) as link:
        await until(lambda: link.up)
        link.send(push(0, 1))
        link.send(heartbeat(1))
        _, then = owner.fetches.pop()
        then(None)

        await until(lambda: received(listener) == ["heartbeat 1"])
        assert owner.fetches == []


async def test_what_is_read_after_the_connection_was_lost_is_dropped() -> None:
    owner = Owner()
    async with listening() as listener, linked(owner, listener) as link:
        await until(lambda: link.up)
        link.send(push(0, 0))
        for guest in listener.gate.everyone():
            guest.cut(Reason.IDLE, "by the test")
        await until(lambda: owner.restored == 2 and link.up)
        owner.answer()
        link.send(heartbeat(1))

        await until(lambda: received(listener) == ["heartbeat 1"])
