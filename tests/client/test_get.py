"""Reading one entry and ranges; wrong and damaged entries."""

import msgspec
import pytest

from dledger_client.client import DLedgerClient
from dledger_client.errors import BadAnswerError, NoEntryError
from dledger_fake_server.group import Group
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.entry import DLedgerEntry

BODIES = [b"body %d" % number for number in range(200)]


async def bodies_of(client: DLedgerClient, first: int, last: int | None = None) -> list[bytes]:
    return [entry.body async for entry in client.get_range(first, last)]


async def test_get_returns_the_entry_at_an_index(group: Group) -> None:
    group.log = [b"zero", b"one"]
    async with DLedgerClient(group.servers, "g0") as client:
        entry = await client.get(1)

    assert (entry.index, entry.body) == (1, b"one")


async def test_get_of_an_index_past_the_log_raises_an_error(group: Group) -> None:
    group.log = [b"zero"]
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(NoEntryError) as caught:
            await client.get(1)

    assert caught.value.code is DLedgerResponseCode.INDEX_OUT_OF_RANGE
    assert str(caught.value).endswith("; the log holds the entries 0 to 0")


@pytest.mark.parametrize("entries_per_answer", [1, 3, 7, 1000])
@pytest.mark.parametrize(("first", "last"), [(0, 199), (0, 0), (5, 150), (198, 199), (7, 6)])
async def test_a_range_is_read_in_order_for_any_number_of_entries_per_response(
    group: Group, entries_per_answer: int, first: int, last: int
) -> None:
    group.log = BODIES
    group["n0"].entries_per_answer = entries_per_answer
    async with DLedgerClient(group.servers, "g0") as client:
        assert await bodies_of(client, first, last) == BODIES[first : last + 1]


async def test_a_range_is_read_in_order_when_response_sizes_vary(group: Group) -> None:
    group.log = BODIES
    counts = [5, 1, 9, 2, 2, 40, 1, 3] * 50
    group["n0"].entries_per_answers = counts
    async with DLedgerClient(group.servers, "g0") as client:
        assert await bodies_of(client, 0, 199) == BODIES


@pytest.mark.parametrize("entries_per_answer", [1, 7])
async def test_a_range_without_a_last_index_ends_with_the_log(
    group: Group, entries_per_answer: int
) -> None:
    group.log = BODIES
    group["n0"].entries_per_answer = entries_per_answer
    async with DLedgerClient(group.servers, "g0") as client:
        assert await bodies_of(client, 100) == BODIES[100:]


async def test_a_range_of_an_empty_log_is_empty(group: Group) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        assert await bodies_of(client, 0) == []


async def test_a_range_past_the_end_of_the_log_raises_an_error_after_the_last_entry(
    group: Group,
) -> None:
    group.log = BODIES[:10]
    async with DLedgerClient(group.servers, "g0") as client:
        entries = client.get_range(0, 10)
        read = [(await anext(entries)).body for _ in range(10)]
        with pytest.raises(NoEntryError, match=r"; the log holds the entries 0 to 9$"):
            await anext(entries)

    assert read == BODIES[:10]


async def test_a_range_continues_at_the_next_leader(group: Group) -> None:
    group.log = BODIES
    read = []
    async with DLedgerClient(group.servers, "g0") as client:
        async for entry in client.get_range(0, 199):
            read.append(entry.body)
            if entry.index == 50:
                group.elect("n2")
                await group["n0"].stop()

    assert read == BODIES


async def test_a_damaged_body_is_not_handed_out(group: Group) -> None:
    group.log = [b"good"]
    stored = group.stored_entry

    def damaged(index: int) -> DLedgerEntry:
        return msgspec.structs.replace(stored(index), body=b"evil")

    group.entry = damaged
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(BadAnswerError, match="checksum"):
            await client.get(0)


async def test_a_wrong_entry_raises_an_error(group: Group) -> None:
    group.log = [b"zero", b"one"]
    stored = group.stored_entry
    group.entry = lambda index: stored(1 - index)
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(BadAnswerError, match="requested entry 0, received entry 1"):
            await client.get(0)


async def test_a_success_without_an_entry_raises_an_error(group: Group) -> None:
    group.log = [b"zero"]
    group["n0"].entries_per_answers = [0]
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(BadAnswerError, match="contains no entry"):
            await bodies_of(client, 0, 0)
