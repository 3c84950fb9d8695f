"""Retention where the last entry of a segment that goes has rotted: the member stays in service."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.http.status import StorageState
from dledger_formats.log import disk
from dledger_formats.settings import NodeSettings, OnDamage
from dledger_group.damaged import SEGMENT_BYTES, SIZES, append_all
from dledger_node import main
from dledger_node.config import store_folder
from dledger_node.errors import BorderDamagedError, StoreDamagedError
from dledger_node.healing import waiting_ranges
from dledger_node.healing.mending import MendedTotals
from dledger_node.raft.ready import HardState
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.hard_state import save_hard_state
from dledger_node.volume import scrub
from dledger_sim.stage.driver import CoreDriver
from dledger_store_files.contents import flush
from dledger_store_files.damage import poke
from tools.groups.node_group import NodeGroup
from tools.groups.ports import free_ports

BODY = bytes(1000)
CHANNEL_AND_CHAIN = 32, 8
WHOLE_HEADER = 0, disk.ENTRY_HEADER_SIZE


def last_entry_of(data: Path) -> disk.EntryHeader:
    """Return the header of the last entry in the first segment of a log."""
    content = (data / disk.file_name(0)).read_bytes()
    at, last = 0, None
    while (header := disk.unpack_header(content, at)).magic in disk.ENTRY_MAGICS:
        at, last = at + header.size, header
    assert last is not None
    return last


@pytest.mark.storage
@pytest.mark.parametrize("rotten", [CHANNEL_AND_CHAIN, WHOLE_HEADER])
async def test_a_lone_member_removes_a_segment_whose_last_entry_has_rotted(
    tmp_path: Path, rotten: tuple[int, int]
) -> None:
    """Nobody else has that entry, and nobody needs it any longer."""
    with NodeGroup(tmp_path, members=1, retention_bytes=4 * SEGMENT_BYTES, **SIZES) as group:
        await append_all(group, [BODY] * 150)
        data = group.store_folder("n0") / disk.DATA_FOLDER
        last, (at, size) = last_entry_of(data), rotten
        poke(data, last.pos + at, b"\xa5" * size, segment_bytes=SEGMENT_BYTES)

        await append_all(group, [BODY] * 110)  # five segments, and one is too many

        group.wait_for_status(
            "n0", lambda view: view.ledger_begin_index > last.index, "removes the segment"
        )
        await append_all(group, [BODY])
        group.wait_for_status(
            "n0", lambda view: view.ready and view.storage is StorageState.SOUND, "is sound"
        )
        assert "must stop" not in group.log("n0")
        group.stop("n0")
        group.start("n0")
        group.wait_for_status("n0", lambda view: view.ready, "starts again")


def settings_of(folder: Path, *peers: str, on_damage: OnDamage = OnDamage.HEAL) -> NodeSettings:
    """Return the settings of n0 in a group with these peers, which do not answer."""
    ports, members = free_ports(), ("n0", *peers)
    return NodeSettings(
        group="g", self_id="n0", peers={one: f"127.0.0.1:{next(ports)}" for one in members},
        http_peers={one: f"127.0.0.1:{next(ports)}" for one in members}, http_port=next(ports),
        store_base_dir=str(folder), on_damage=on_damage, **SIZES,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("peers", "on_damage", "is_let_go"),
    [
        ((), OnDamage.HEAL, True),
        (("n1", "n2"), OnDamage.STAY_OUT, True),
        (("n1", "n2"), OnDamage.HEAL, False),
    ],
)
async def test_a_rotten_border_waits_only_while_a_peer_may_mend_it_and_nobody_leaves(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    peers: tuple[str, ...],
    on_damage: OnDamage,
    is_let_go: bool,
) -> None:
    monkeypatch.setattr(waiting_ranges, "RETRY_S_MIN", 0.0)
    settings = settings_of(tmp_path, *peers, on_damage=on_damage)
    left: list[StoreDamagedError] = []
    with contextlib.closing(LogStore.open(store_folder(settings), **SIZES)) as store:
        store.append_bodies([BODY] * 150, 1)
        flush(store)
        store.save_checkpoint(149)
        data = store_folder(settings) / disk.DATA_FOLDER
        last = last_entry_of(data)
        poke(data, last.pos, b"\xa5" * disk.ENTRY_HEADER_SIZE, segment_bytes=SEGMENT_BYTES)
        with contextlib.closing(
            scrub.Scrub(settings, store, MendedTotals(), CoreDriver().raft, leave=left.append)
        ) as scrubbing:
            with pytest.raises(BorderDamagedError) as found:
                store.front.save_begin(last.index + 1)
            store.damage = found.value
            running = asyncio.create_task(scrubbing.run())
            async with asyncio.timeout(10):
                tries_max = scrub.SETTLING_TRIES_MAX
                while scrubbing.failed <= tries_max and not scrubbing.let_go:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            running.cancel()

        assert left == []
        assert store.front.unmended_index == (last.index if is_let_go else None)
        assert bool(scrubbing.problem) is not is_let_go
        assert scrubbing.let_go == int(is_let_go)


async def test_an_entry_that_rots_during_a_removal_leaves_core_and_store_with_one_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(settings_of(tmp_path), retention_bytes=2 * SEGMENT_BYTES)
    with contextlib.closing(LogStore.open(store_folder(settings), **SIZES)) as store:
        store.append_bodies([BODY] * 150, 1)
        flush(store)
        store.save_checkpoint(149)
    save_hard_state(store_folder(settings), HardState(term=1, vote_for=None))
    opened = main.open_store(settings)
    store, data = opened[0], store_folder(settings) / disk.DATA_FOLDER
    server = main.build_server(settings, opened)
    upkeep, saves = server._upkeep, store.front.save_begin
    upkeep.held_by_all_index = 149
    store.producers.table.mark_stable(149)

    def rots_afterwards(*given: Any, **named: Any) -> Any:
        begin = saves(*given, **named)
        pos = store.position(last_entry_of(data).index + 1).pos
        poke(data, pos, b"\xa5" * disk.ENTRY_HEADER_SIZE, segment_bytes=SEGMENT_BYTES)
        return begin

    monkeypatch.setattr(store.front, "save_begin", rots_afterwards)
    try:
        await upkeep._remove_due(0)

        assert store.damage is not None
        assert server._core.ledger_begin_index == store.begin_index == 0
    finally:
        await server.close()
