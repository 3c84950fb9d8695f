"""Reading ranges in batches, with READ_RANGE and with GET."""

import contextlib

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.errors import BadAnswerError, NoEntryError
from dledger_client.read.entry_batch import EntryBatch
from dledger_client.sync import BlockingClient
from dledger_fake_server.group import Group

BODIES = [b"body %d" % number for number in range(200)]
BOTH = pytest.mark.parametrize("supports_ranges", [True, False], ids=["READ_RANGE", "GET"])


def prepare(group: Group, *, supports_ranges: bool = True, entries_per_answer: int = 7) -> None:
    group.log = list(BODIES)
    for member in group.members.values():
        member.supports_ranges = supports_ranges
        member.entries_per_answer = entries_per_answer


async def batches_of(group: Group, first: int = 0, last: int | None = None) -> list[EntryBatch]:
    async with DLedgerClient(group.servers, "g0") as client:
        return [batch async for batch in client.read_batches(first, last)]


def bodies(batches: list[EntryBatch]) -> list[bytes]:
    return [body for batch in batches for body in batch.bodies]


@BOTH
@pytest.mark.parametrize("entries_per_answer", [1, 3, 7, 1000])
@pytest.mark.parametrize(("first", "last"), [(0, 199), (0, 0), (5, 150), (198, 199), (7, 6)])
async def test_a_range_is_read_in_order(
    group: Group, supports_ranges: bool, entries_per_answer: int, first: int, last: int
) -> None:
    prepare(group, supports_ranges=supports_ranges, entries_per_answer=entries_per_answer)
    batches = await batches_of(group, first, last)

    assert bodies(batches) == BODIES[first : last + 1]
    assert [index for one in batches for index in range(one.first_index, one.last_index + 1)] == [
        *range(first, last + 1)
    ]
    entries = [entry for batch in batches for entry in batch.entries()]
    assert [(entry.index, entry.body) for entry in entries] == [
        (index, BODIES[index]) for index in range(first, last + 1)
    ]


async def test_ranges_are_read_when_response_sizes_vary(group: Group) -> None:
    prepare(group)
    group["n0"].entries_per_answers = [5, 1, 9, 2, 2, 40, 1, 3] * 50

    assert bodies(await batches_of(group)) == BODIES


async def test_several_requests_are_in_flight(group: Group) -> None:
    prepare(group, entries_per_answer=10)
    async with (
        DLedgerClient(group.servers, "g0") as client,
        contextlib.aclosing(client.read_batches(0)) as batches,
    ):
        for _ in range(2):
            await anext(batches)

    assert group["n0"].ranges == [0, 10, 20, 30, 40]


async def test_a_range_continues_at_a_leader_without_the_request(group: Group) -> None:
    prepare(group)
    group["n2"].supports_ranges = False
    read: list[bytes] = []
    async with DLedgerClient(group.servers, "g0") as client:
        async for batch in client.read_batches(0, 199):
            read += batch.bodies
            if 50 in range(batch.first_index, batch.last_index + 1):
                group.elect("n2")
                await group["n0"].stop()

    assert read == BODIES


async def test_a_range_with_a_damaged_entry_is_read_with_get(group: Group) -> None:
    prepare(group)
    group["n0"].spoil = lambda stored: stored.replace(b"body 50", b"evil 50")

    assert bodies(await batches_of(group)) == BODIES


async def test_a_damaged_entry_that_get_returns_too_raises_an_error(group: Group) -> None:
    prepare(group)
    stored = group.stored_entry
    group.entry = lambda index: stored(index + (index >= 50))
    with pytest.raises(BadAnswerError, match="requested entry 50, received entry 51"):
        await batches_of(group)


async def test_a_range_past_the_end_of_the_log_raises_an_error(group: Group) -> None:
    prepare(group)
    with pytest.raises(NoEntryError):
        await batches_of(group, 0, 200)


async def test_a_range_of_an_empty_log_is_empty(group: Group) -> None:
    prepare(group)
    group.log = []

    assert await batches_of(group) == []


def test_the_blocking_client_reads_batches_and_entries(group_in_thread: Group) -> None:
    prepare(group_in_thread)
    with BlockingClient(group_in_thread.servers, "g0") as client:
        read = [body for batch in client.read_batches(5, 150) for body in batch.bodies]
        one_by_one = [entry.body for entry in client.get_range(5, 150)]

    assert read == one_by_one == BODIES[5:151]
