"""Requests about the end of a queue wait until the member has all that was acknowledged."""

import asyncio
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from dledger_broker.door.reading.proofs import Proofs


class Member:
    """A member whose proofs the test answers."""

    def __init__(self) -> None:
        self.asked: list[Callable[[bool], object]] = []
        self.readable_index = self.applied_index = 5

    def prove(self, done: Callable[[bool], object]) -> None:
        self.asked.append(done)


class Requests:
    """Requests by name, and what was decided about them."""

    def __init__(self, member: Member) -> None:
        self.decided: list[tuple[str, bool]] = []
        self.channel = SimpleNamespace(reads_waiting=0, go_on=lambda: None)
        self.proofs = Proofs(member)

    def ask(self, name: str, until_s: float = math.inf) -> None:
        call: Any = SimpleNamespace(channel=self.channel)
        self.proofs.ask(call, lambda proved: self.decided.append((name, proved)), until_s)


async def turn() -> None:
    """Let the event loop do what was asked of it."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_nothing_is_decided_before_the_proof() -> None:
    member = Member()
    requests = Requests(member)
    requests.ask("one")
    await turn()

    assert (requests.decided, requests.channel.reads_waiting) == ([], 1)
    member.asked[0](True)
    await turn()
    assert (requests.decided, requests.channel.reads_waiting) == ([("one", True)], 0)


async def test_what_the_proof_covers_is_applied_first() -> None:
    member = Member()
    requests = Requests(member)
    requests.ask("one")
    await turn()
    member.readable_index = 8
    member.asked[0](True)
    await turn()
    assert requests.decided == []

    member.applied_index = 8
    requests.proofs.go_on()
    assert requests.decided == [("one", True)]


async def test_a_request_waits_only_so_long_until_what_the_proof_covers_is_applied() -> None:
    member = Member()
    requests = Requests(member)
    requests.ask("one", until_s=0.0)
    await turn()
    member.readable_index = 8
    member.asked[0](True)
    await turn()
    assert requests.decided == []

    requests.proofs.expire()
    assert (requests.decided, requests.channel.reads_waiting) == ([("one", False)], 0)


async def test_a_leader_that_cannot_prove_itself_decides_nothing() -> None:
    member = Member()
    requests = Requests(member)
    requests.ask("one")
    await turn()
    member.asked[0](False)
    await turn()

    assert requests.decided == [("one", False)]


async def test_requests_that_come_during_a_proof_share_the_next_one() -> None:
    member = Member()
    requests = Requests(member)
    for name in ("one", "two"):
        requests.ask(name)
    await turn()
    requests.ask("three")
    requests.ask("four")
    await turn()
    assert len(member.asked) == 1, "a proof says nothing about a request that came after it began"

    member.asked[0](True)
    await turn()
    assert [name for name, _ in requests.decided] == ["one", "two"]
    member.asked[1](True)
    await turn()
    assert [name for name, _ in requests.decided] == ["one", "two", "three", "four"]


async def test_a_request_waits_no_longer_for_a_proof_or_for_another_one_before_it() -> None:
    member = Member()
    requests = Requests(member)
    requests.ask("asked", until_s=0.0)
    requests.ask("in time")
    await turn()
    requests.ask("next", until_s=0.0)
    requests.proofs.expire()
    assert requests.decided == [("asked", False), ("next", False)]
    assert requests.channel.reads_waiting == 1

    member.asked[0](True)
    await turn()
    assert requests.decided[2:] == [("in time", True)]
    assert requests.channel.reads_waiting == 0


async def test_a_request_that_fails_leaves_the_others_answered() -> None:
    member = Member()
    requests = Requests(member)

    def fail(_: bool) -> None:
        raise ValueError("the first one fails")

    call: Any = SimpleNamespace(channel=requests.channel)
    requests.proofs.ask(call, fail, math.inf)
    requests.ask("two")
    await turn()
    member.asked[0](True)
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    await turn()

    assert (requests.decided, requests.channel.reads_waiting) == ([("two", True)], 0)
    assert [str(error["exception"]) for error in errors] == ["the first one fails"]
