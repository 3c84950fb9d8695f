"""`dledger import` keeps the order, whatever the group refuses and whoever leads meanwhile."""

import asyncio
from pathlib import Path

import pytest

from dledger_client.cli import main
from dledger_client.exports.records import Head
from dledger_client.exports.writing import ExportWriter
from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from dledger_formats.protocol.entry import DLedgerEntry, entries_from_disk
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group
BODIES = [b"body %d" % n for n in range(1000)]


def exported(path: Path, bodies: list[bytes]) -> Path:
    """Write an export of these entries."""

    async def write() -> None:
        writer = await ExportWriter.to_file(path)
        await writer.begin(Head(group="old", first_index=0))
        await writer.write([entry(index, body) for index, body in enumerate(bodies)])
        await writer.end()
        writer.close()

    asyncio.run(write())
    return path


def entry(index: int, body: bytes) -> DLedgerEntry:
    size = disk.ENTRY_HEADER_SIZE + len(body)
    crc = disk.body_crc(body)
    header = disk.EntryHeader(disk.NORMAL, size, index, 1, 0, 0, 0, crc, len(body))
    return next(entries_from_disk(disk.ENTRY_HEADER.pack(*header) + body))


def bodies_of(group: NodeGroup) -> list[bytes]:
    with BlockingClient(",".join(group.peers.values()), "g") as client:
        return [entry.body for entry in client.get_range(0) if entry.magic == disk.NORMAL]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("limit", ["pending_requests_max", "client_pending_appends_max"])
@pytest.mark.parametrize("entries", [10, 100])
def test_an_import_keeps_the_order_in_a_group_that_lets_few_appends_wait(
    tmp_path: Path, limit: str, entries: int
) -> None:
    path = exported(tmp_path / "export", BODIES)
    with NodeGroup(tmp_path, 1, **{limit: entries}) as group:
        group.master()

        assert main(["import", f"--servers={','.join(group.peers.values())}", "--group=g",
                     str(path)]) == 0  # fmt: skip

        assert bodies_of(group) == BODIES
