"""A member that its full volume keeps out of service says how large the volume is."""

import asyncio
from pathlib import Path

import pytest

from dledger_formats.http.status import NodeStatus, StorageState
from dledger_formats.settings import NodeSettings
from dledger_node.errors import StoreError, StoreFullError
from dledger_node.http.metrics import Counters
from dledger_node.shell.lifecycle import Lifecycle, Opened
from dledger_node.volume.upkeep import volume_usage
from tools.groups.ports import free_ports


async def nothing(_: object) -> str:
    return ""


async def shown_after(error: StoreError, folder: Path) -> tuple[NodeStatus, Counters]:
    """Return what a member shows whose store cannot be opened because of `error`."""
    stopping, attempts = asyncio.Event(), 0

    def open_store(_: bool) -> Opened:
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            stopping.set()
        raise error

    life = Lifecycle(
        NodeSettings(
            group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir=str(folder),
            http_port=next(free_ports()), listen_host="127.0.0.1",
        ),
        version="test",
        open_store=open_store,
        build_server=lambda _: pytest.fail("the member must not serve"),
        serve=lambda _: pytest.fail("the member must not serve"),
        heal=nothing,
        stopping=stopping,
        retry_delay_min_s=0.01,
        retry_delay_max_s=0.01,
    )  # fmt: skip
    async with asyncio.timeout(20):
        await life.run()
    return life._shown.status(), life._shown.counters()


async def test_a_member_without_room_to_start_says_how_large_its_volume_is(tmp_path: Path) -> None:
    """The operator lets a volume grow only if it knows that the member has seen its size."""
    status, counters = await shown_after(StoreFullError("no room"), tmp_path)

    size_bytes = volume_usage(tmp_path).size_bytes
    assert status.storage is StorageState.FULL
    assert (status.volume_size_bytes, counters.volume_size_bytes) == (size_bytes, size_bytes)
    assert status.volume_available_bytes > 0


async def test_a_member_that_leaves_for_another_reason_does_not_ask_its_volume(
    tmp_path: Path,
) -> None:
    """A disk that fails may hang."""
    status, _ = await shown_after(StoreError("the disk fails"), tmp_path)

    assert status.volume_size_bytes == 0
