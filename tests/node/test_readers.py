"""Many readers of a running group: appends go on, and the leader stays."""

import asyncio
import contextlib

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_group.turns import rounds_of_short_turns
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

TAILS = 20
APPENDS = 1500
OLD_ENTRIES = 20_000


async def read_tail(group: NodeGroup, first: int, count: int) -> list[bytes]:
    async with (
        DLedgerClient(group.servers, "g") as client,
        contextlib.aclosing(client.tail(first)) as entries,
    ):
        return [(await anext(entries)).body for _ in range(count)]


async def read_again_and_again(group: NodeGroup) -> None:
    async with DLedgerClient(group.servers, "g") as client:
        while True:
            async for _ in client.read_batches(0):
                pass


async def test_readers_of_small_entries_do_not_disturb_the_leader(
    steady_group: NodeGroup,
) -> None:
    group = steady_group
    master = group.master()
    async with DLedgerClient(group.servers, "g") as client:
        for _ in range(OLD_ENTRIES // 4000):
            await client.append_batch([bytes(8)] * 4000)
        term = group.status(master).term
        for _ in rounds_of_short_turns(group, [master]):
            first = (await client.bounds()).end_index + 1
            async with asyncio.TaskGroup() as tasks:
                scan = tasks.create_task(read_again_and_again(group))
                tails = [tasks.create_task(read_tail(group, first, APPENDS)) for _ in range(TAILS)]
                bodies = [b"%d" % number for number in range(APPENDS)]
                outcomes = [outcome async for outcome in client.append_all(bodies, in_flight=16)]
                await asyncio.wait(tails)
                scan.cancel()

            assert all(isinstance(outcome, Acknowledged) for outcome in outcomes)
            assert [tail.result() for tail in tails] == [bodies] * TAILS
    status = group.status(master)
    assert (status.term, status.master) == (term, True)


async def test_a_reader_gets_past_a_byte_that_rotted_under_the_leader(group: NodeGroup) -> None:
    master = group.master()
    bodies = [b"entry %d" % number for number in range(3000)]
    async with DLedgerClient(group.servers, "g") as client:
        outcomes = await client.append_batch(bodies)
        assert all(isinstance(outcome, Acknowledged) for outcome in outcomes)
        path = min((group.store_folder(master) / "data").iterdir())
        at = path.read_bytes().index(b"entry 1500")
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"E")
        read = [entry.body async for entry in client.get_range(0) if entry.body]

    assert read == bodies
    wait_for(lambda: path.read_bytes()[at:].startswith(b"entry 1500"), "the byte is mended")
    assert group.master() == master
