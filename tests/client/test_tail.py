"""Following a log: from an index or the end, across leaders, and on Java servers."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import BadAnswerError, GroupUnreachableError, NoEntryError
from dledger_client.read.tail import LogBounds
from dledger_fake_server.group import Group
from dledger_formats.protocol.entry import DLedgerEntry

BODIES = [b"body %d" % number for number in range(200)]
BOTH = pytest.mark.parametrize("supports_follow", [True, False], ids=["FOLLOW", "polling"])
ALL = pytest.mark.parametrize("way", ["READ_RANGE", "FOLLOW", "polling"])


def support(group: Group, way: str) -> None:
    """Let the members support this way to follow a log, and those that clients fall back to."""
    for member in group.members.values():
        member.supports_follow = way != "polling"
        member.supports_ranges = way == "READ_RANGE"


def set_follow_support(group: Group, supports_follow: bool) -> None:
    for member in group.members.values():
        member.supports_follow = supports_follow


async def take(entries: AsyncGenerator[DLedgerEntry, None], count: int) -> list[bytes]:
    async with asyncio.timeout(20):
        return [(await anext(entries)).body for _ in range(count)]


@ALL
@pytest.mark.parametrize("entries_per_answer", [1, 7, 1000])
async def test_a_tail_from_an_index_begins_with_existing_entries(
    group: Group, way: str, entries_per_answer: int
) -> None:
    support(group, way)
    group.log = list(BODIES)
    group["n0"].entries_per_answer = entries_per_answer
    async with (
        DLedgerClient(group.servers, "g0") as client,
        contextlib.aclosing(client.tail(50)) as entries,
    ):
        assert await take(entries, 150) == BODIES[50:]


@ALL
async def test_a_tail_yields_each_new_entry(group: Group, way: str) -> None:
    support(group, way)
    group.log = list(BODIES[:10])
    async with (
        DLedgerClient(group.servers, "g0") as client,
        contextlib.aclosing(client.tail(9)) as entries,
    ):
        assert await take(entries, 1) == [BODIES[9]]
        for body in BODIES[10:15]:
            following = asyncio.create_task(take(entries, 1))
            await client.append(body)
            assert await following == [body]


async def test_a_tail_without_an_index_begins_after_the_end(group: Group) -> None:
    group.log = [b"old"]
    async with (
        DLedgerClient(group.servers, "g0") as client,
        contextlib.aclosing(client.tail()) as entries,
    ):
        following = asyncio.create_task(take(entries, 1))
        await group["n0"].followers.is_waiting.wait()
        group.append(b"new")

        assert await following == [b"new"]


async def test_a_tail_that_is_far_behind_reads_ahead_and_misses_nothing(group: Group) -> None:
    group.log = [b"%d" % number for number in range(3000)]
    group["n0"].entries_per_answers = [1] + [100] * 100
    async with (
        DLedgerClient(group.servers, "g0") as client,
        contextlib.aclosing(client.tail(0)) as entries,
    ):
        assert await take(entries, 3000) == group.log


@ALL
async def test_a_tail_goes_on_at_the_next_leader(group: Group, way: str) -> None:
    support(group, way)
    group.log = [b"zero"]
    async with (
        DLedgerClient(group.servers, "g0") as client,
        contextlib.aclosing(client.tail(0)) as entries,
    ):
        await take(entries, 1)
        following = asyncio.create_task(take(entries, 1))
        group.elect("n2")
        await group["n0"].stop()
        group.append(b"one")

        assert await following == [b"one"]


async def test_a_tail_leaves_a_leader_that_stops_responding(group: Group) -> None:
    timing = Timing(stall_s=0.1, follow_wait_s=0.1)
    async with (
        DLedgerClient(group.servers, "g0", timing=timing) as client,
        contextlib.aclosing(client.tail(0)) as entries,
    ):
        following = asyncio.create_task(take(entries, 1))
        await group["n0"].followers.is_waiting.wait()
        group["n0"].is_frozen = True
        group["n0"].followers.clear()
        group.elect("n1")
        group.append(b"x")

        assert await following == [b"x"]


async def test_a_waiting_tail_does_not_search_for_another_leader(group: Group) -> None:
    # The server is silent for several times `stall_s` before it answers each FOLLOW.
    timing = Timing(stall_s=0.02, follow_wait_s=0.2, follow_margin_s=60)
    async with (
        DLedgerClient(group.servers, "g0", timing=timing) as client,
        contextlib.aclosing(client.tail(0)) as entries,
    ):
        following = asyncio.create_task(take(entries, 1))
        await group["n0"].followers.is_waiting.wait()
        group["n1"].metadata_requested.clear()
        for _ in range(2):
            group["n0"].followers.is_waiting.clear()
            await group["n0"].followers.is_waiting.wait()
        searched = group["n1"].metadata_requested.is_set()
        group.append(b"x")
        await following

    assert not searched


async def test_a_tail_before_the_beginning_of_the_log_raises_an_error(group: Group) -> None:
    group.log = list(BODIES)
    group["n0"].begin_index = 20
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(NoEntryError, match="LESS_THAN"):
            await take(client.tail(19), 1)


async def test_a_wrong_entry_ends_a_tail(group: Group) -> None:
    group.log = [b"zero", b"one"]
    stored = group.stored_entry
    group.entry = lambda index: stored(1 - index)
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(BadAnswerError, match="requested entry 0"):
            await take(client.tail(0), 1)


async def test_a_tail_reads_a_damaged_entry_with_get(group: Group) -> None:
    support(group, "READ_RANGE")
    group.log = list(BODIES[:60])
    group["n0"].entries_per_answer = 7
    group["n0"].spoil = lambda stored: stored.replace(b"body 50", b"evil 50")
    async with (
        DLedgerClient(group.servers, "g0") as client,
        contextlib.aclosing(client.tail(0)) as entries,
    ):
        assert await take(entries, 60) == group.log


async def test_a_tail_that_is_not_held_does_not_ask_in_a_tight_loop(group: Group) -> None:
    support(group, "READ_RANGE")
    group["n0"].holds_reads = False
    async with (
        DLedgerClient(group.servers, "g0") as client,
        contextlib.aclosing(client.tail(0)) as entries,
    ):
        following = asyncio.create_task(take(entries, 1))
        await asyncio.wait({following}, timeout=0.3)
        assert 2 <= len(group["n0"].ranges) < 20
        group.append(b"x")

        assert await following == [b"x"]


async def test_a_tail_without_a_leader_fails_at_its_deadline(group: Group) -> None:
    group.elect(None)
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(GroupUnreachableError):
            await take(client.tail(0, deadline_s=0.1), 1)


@BOTH
@pytest.mark.parametrize(("begin", "count"), [(0, 0), (0, 1), (0, 200), (63, 64), (150, 200)])
async def test_bounds_returns_the_first_and_the_last_index(
    group: Group, supports_follow: bool, begin: int, count: int
) -> None:
    set_follow_support(group, supports_follow)
    group.log = BODIES[:count]
    group["n0"].begin_index = begin
    async with DLedgerClient(group.servers, "g0") as client:
        assert await client.bounds() == LogBounds(begin_index=begin, end_index=count - 1)


async def test_an_idle_log_is_no_failure_whatever_the_deadline(group: Group) -> None:
    followers = group["n0"].followers
    async with DLedgerClient(group.servers, "g0") as client:
        following = asyncio.ensure_future(anext(client.tail(0, deadline_s=0.8)))
        for _ in range(3):
            asked = asyncio.create_task(followers.is_waiting.wait())
            await asyncio.wait({following, asked}, return_when=asyncio.FIRST_COMPLETED)
            followers.is_waiting.clear()
            asked.cancel()
        group.append(b"at last")

        assert (await following).body == b"at last"
