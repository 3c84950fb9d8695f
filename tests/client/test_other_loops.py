"""A client that is used in another event loop, or another process, than the one that opened it."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.sync import BlockingClient
from dledger_fake_server.group import Group


async def first(items: AsyncGenerator[Any, None]) -> object:
    async for item in items:
        return item
    return None


CALLS: dict[str, Callable[[DLedgerClient], Awaitable[object]]] = {
    "append": lambda client: client.append(b"x"),
    "append_batch": lambda client: client.append_batch([b"x"]),
    "append_all": lambda client: first(client.append_all([b"x"])),
    "append_in_order": lambda client: first(client.append_in_order([b"x"])),
    "get": lambda client: client.get(0),
    "get_range": lambda client: first(client.get_range(0)),
    "tail": lambda client: first(client.tail(0)),
    "metadata": lambda client: client.metadata(),
    "membership": lambda client: client.membership(),
    "register_producer": lambda client: client.register_producer(),
    "the end of the block": lambda client: client.__aexit__(None, None, None),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
async def test_a_call_in_another_loop_is_refused_and_changes_nothing(
    group: Group, call: Callable[[DLedgerClient], Awaitable[object]]
) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        await client.append(b"0")
        threads, tasks = threading.active_count(), len(asyncio.all_tasks())

        with pytest.raises(RuntimeError, match="opened in another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(call(client)))  # type: ignore[arg-type]

        assert len(asyncio.all_tasks()) == tasks
        assert threading.active_count() <= threads + 1
        await client.append(b"1")

    assert group.log == [b"0", b"1"]


FORK = """
import os, sys
from dledger_client import BlockingClient

with BlockingClient(sys.argv[1], "g0") as client:
    client.append(b"0")
    lines = client.tail(0)
    next(lines)
    child = os.fork()
    if child == 0:
        try:
            client.append(b"of the child")
        except RuntimeError as error:
            print(error, flush=True)
    else:
        os.waitpid(child, 0)
        print(client.append(b"1").index, flush=True)
"""


def test_a_forked_process_is_told_and_the_first_one_goes_on(group_in_thread: Group) -> None:
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, ",".join(group_in_thread.servers)],
        env=os.environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert process.stderr == ""
    refused, index = process.stdout.splitlines()
    assert "open a client in this process" in refused
    assert index == "1"
    assert group_in_thread.log == [b"0", b"1"]


def test_threads_with_loops_of_their_own_may_share_a_blocking_client(
    group_in_thread: Group,
) -> None:
    async def append(client: BlockingClient, body: bytes) -> int:
        return client.append(body).index

    with BlockingClient(group_in_thread.servers, "g0") as client, ThreadPoolExecutor(2) as threads:
        indexes = threads.map(lambda body: asyncio.run(append(client, body)), [b"a", b"b"])

    assert sorted(indexes) == [0, 1]
