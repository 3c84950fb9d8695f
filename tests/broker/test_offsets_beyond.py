"""Pulls of offsets that do not exist wait until it is proved that no message has the offset."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.door import offsets_beyond
from dledger_broker.door.offsets_beyond import OffsetsBeyond


class Member:
    """A member whose proofs the test answers."""

    def __init__(self) -> None:
        self.asked: list[Callable[[bool], object]] = []
        self.readable_index = self.applied_index = 5

    def prove(self, done: Callable[[bool], object]) -> None:
        self.asked.append(done)


class Pulls:
    """Pulls by name, and what was decided about them."""

    def __init__(self, member: Member) -> None:
        self.decided: list[tuple[str, bool]] = []
        self.line = SimpleNamespace(reads_waiting=0, go_on=lambda: None)
        self.beyond = OffsetsBeyond[Any](
            member, lambda pull, proved: self.decided.append((pull.name, proved))
        )

    def judge(self, name: str) -> None:
        self.beyond.judge(SimpleNamespace(name=name, call=SimpleNamespace(line=self.line)))


async def turn() -> None:
    """Let the event loop do what was asked of it."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_nothing_is_decided_before_the_proof() -> None:
    member = Member()
    pulls = Pulls(member)
    pulls.judge("one")
    await turn()

    assert (pulls.decided, pulls.line.reads_waiting) == ([], 1)
    member.asked[0](True)
    await turn()
    assert (pulls.decided, pulls.line.reads_waiting) == ([("one", True)], 0)


async def test_what_the_proof_covers_is_applied_first() -> None:
    member = Member()
    pulls = Pulls(member)
    pulls.judge("one")
    await turn()
    member.readable_index = 8
    member.asked[0](True)
    await turn()
    assert pulls.decided == []

    member.applied_index = 8
    pulls.beyond.go_on()
    assert pulls.decided == [("one", True)]


async def test_a_pull_waits_only_so_long_until_what_the_proof_covers_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offsets_beyond, "APPLY_S_MAX", 0.0)
    member = Member()
    pulls = Pulls(member)
    pulls.judge("one")
    await turn()
    member.readable_index = 8
    member.asked[0](True)
    await turn()
    assert pulls.decided == []

    pulls.beyond.expire()
    assert (pulls.decided, pulls.line.reads_waiting) == ([("one", False)], 0)


async def test_a_leader_that_cannot_prove_itself_decides_nothing() -> None:
    member = Member()
    pulls = Pulls(member)
    pulls.judge("one")
    await turn()
    member.asked[0](False)
    await turn()

    assert pulls.decided == [("one", False)]


async def test_pulls_that_come_during_a_proof_share_the_next_one() -> None:
    member = Member()
    pulls = Pulls(member)
    for name in ("one", "two"):
        pulls.judge(name)
    await turn()
    pulls.judge("three")
    pulls.judge("four")
    await turn()
    assert len(member.asked) == 1, "a proof says nothing about a pull that came after it began"

    member.asked[0](True)
    await turn()
    assert [name for name, _ in pulls.decided] == ["one", "two"]
    member.asked[1](True)
    await turn()
    assert [name for name, _ in pulls.decided] == ["one", "two", "three", "four"]
