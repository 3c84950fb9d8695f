"""A start that lacks descriptors or memory for a moment is tried again, and heals nothing."""

import asyncio
import errno
from pathlib import Path

import pytest

from dledger_formats.http.status import StorageState
from dledger_formats.settings import NodeSettings
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.shell.lifecycle import Lifecycle, Opened
from tools.groups.ports import free_ports

ATTEMPTS = 4
"""Openings; from the second one on, damage that was found before is healed."""


@pytest.mark.parametrize(
    ("number", "healed_count", "shown"),
    [
        (errno.EMFILE, 0, StorageState.FAILED),
        (errno.ENOMEM, 0, StorageState.FAILED),
        (errno.EIO, ATTEMPTS - 1, StorageState.DAMAGED),
    ],
)
async def test_only_what_the_disk_cannot_read_is_healed_at_a_start(
    tmp_path: Path, number: int, healed_count: int, shown: StorageState
) -> None:
    """A member that healed a shortage could set its log aside and give up its vote."""
    stopping, attempts = asyncio.Event(), 0
    healed: list[StoreDamagedError] = []

    def open_store(_: bool) -> Opened:
        nonlocal attempts
        attempts += 1
        if attempts == ATTEMPTS:
            stopping.set()
        raise StoreDamagedError("cannot be read", Damage.UNREADABLE) from OSError(number, "")

    async def heal(damage: StoreDamagedError) -> str:
        healed.append(damage)
        return ""

    life = Lifecycle(
        NodeSettings(
            group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir=str(tmp_path),
            http_port=next(free_ports()), listen_host="127.0.0.1",
        ),
        version="test",
        open_store=open_store,
        build_server=lambda _: pytest.fail("the member must not serve"),
        serve=lambda _: pytest.fail("the member must not serve"),
        heal=heal,
        stopping=stopping,
        retry_delay_min_s=0.01,
        retry_delay_max_s=0.01,
    )  # fmt: skip
    async with asyncio.timeout(20):
        await life.run()

    assert len(healed) == healed_count
    assert life._shown.status().storage is shown
