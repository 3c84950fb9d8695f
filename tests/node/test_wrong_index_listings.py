"""A wrong index that only a list of the files comes across, which an audit asks for."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.shell.server import DLedgerServer
from dledger_node.store.log.files import Beginning, LogFiles
from dledger_node.store.log.log_store import LogStore
from dledger_wire.played import become_master, make_server

Ask = Callable[[DLedgerServer], Awaitable[object]]
ASKS: dict[str, Ask] = {
    "all files": lambda server: server.view.manifest(),
    "one file": lambda server: server.view.readable_bytes("data", disk.file_name(0)),
    "stored bytes": lambda server: asyncio.to_thread(
        server.view.stored, disk.file_name(0), 0, disk.ENTRY_HEADER_SIZE
    ),
}


def unreadable(_: LogFiles, index: int) -> None:
    raise StoreDamagedError("Input/output error", Damage.UNREADABLE, index)


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
async def test_the_member_leaves_to_rebuild_the_index(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = make_server(tmp_path)
    await become_master(server, server._core)
    monkeypatch.setattr(LogFiles, "unit", unreadable)

    with pytest.raises(StoreDamagedError):
        await ask(server)

    damage = server._store.damage
    assert damage is not None
    assert damage.damage is Damage.WRONG_INDEX
    monkeypatch.undo()
    await server.close()


def cut(store: LogStore) -> None:
    store.generation += 1


def remove_front(store: LogStore) -> None:
    store._writer.begin_at(Beginning(1, None))


@pytest.mark.parametrize("change", [cut, remove_front])
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
async def test_what_is_wrong_in_a_log_that_changes_meanwhile_is_no_damage(
    tmp_path: Path,
    ask: Ask,
    change: Callable[[LogStore], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, _ = make_server(tmp_path)
    await become_master(server, server._core)

    def changed_meanwhile(files: LogFiles, index: int) -> None:
        change(server._store)
        unreadable(files, index)

    monkeypatch.setattr(LogFiles, "unit", changed_meanwhile)
    with pytest.raises(StoreDamagedError):
        await ask(server)

    assert server._store.damage is None
    monkeypatch.undo()
    await server.close()
