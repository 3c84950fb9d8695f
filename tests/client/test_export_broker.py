"""Exports of the folders of RocketMQ's own brokers in DLedger mode, and their import."""

import json
from pathlib import Path
from typing import Any

import pytest

from dledger_client.cli import main
from dledger_client.exports.reading import ExportDecoder
from dledger_client.exports.records import ExportedEntry
from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from dledger_formats.rocketmq import message_record
from dledger_store_files.archives import extract_broker
from tools.groups.node_group import NodeGroup

GOLDEN = Path(__file__).parent.parent / "formats" / "golden"
STORES: dict[str, Any] = json.loads((GOLDEN / "rocketmq-manifest.json").read_text())
ROWS: list[dict[str, Any]] = [
    dict(zip(STORES["entries_columns"], row, strict=True)) for row in STORES["entries"]
]


def exported(member: str, folder: Path) -> Path:
    """Export the folder of a broker that has stopped; return the file."""
    store = extract_broker(GOLDEN / STORES["archive"], member, folder)
    file = folder / "export"

    assert main(["export", "--folder", str(store), "--group=RaftNode00", str(file)]) == 0

    return file


def entries_of(file: Path) -> list[ExportedEntry]:
    decoder = ExportDecoder(str(file))
    entries = decoder.feed(file.read_bytes())
    decoder.finish()
    return entries


@pytest.mark.parametrize("member", STORES["nodes"])
def test_the_folder_of_a_broker_is_exported_with_every_message(member: str, tmp_path: Path) -> None:
    entries = entries_of(exported(member, tmp_path))

    assert [(entry.index, entry.term) for entry in entries] == [
        (row["index"], row["term"]) for row in ROWS
    ]
    for entry, row in zip(entries, ROWS, strict=True):
        record = message_record.decode(entry.body)
        assert (record.topic, record.queue_id, record.queue_offset) == (
            row["topic"], row["queue"], row["queue_offset"],
        )  # fmt: skip
        assert record.physical_offset == row["pos"] + disk.ENTRY_HEADER_SIZE


@pytest.mark.group
def test_the_messages_of_a_broker_are_entries_of_the_group_into_which_they_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = exported("n0", tmp_path)
    (tmp_path / "group").mkdir()
    with NodeGroup(tmp_path / "group", 1) as group:
        servers = ",".join(group.peers.values())
        assert main(["import", f"--servers={servers}", "--group=g", str(file)]) == 0

        with BlockingClient(servers, "g") as client:
            found = [entry.body for entry in client.get_range(0) if entry.magic == disk.NORMAL]

    assert found == [entry.body for entry in entries_of(file)]
