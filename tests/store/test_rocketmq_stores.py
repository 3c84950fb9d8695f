"""The DLedger stores of RocketMQ 5.3.3 brokers open with the same messages."""

import json
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.log import disk
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.hard_state import load_hard_state
from dledger_store_files.archives import INDEX_BYTES_KEPT, extract_broker

GOLDEN = Path(__file__).parent.parent / "formats" / "golden"
STORES: dict[str, Any] = json.loads((GOLDEN / "rocketmq-manifest.json").read_text())
PHYSICAL_OFFSET_AT = 28
"""Offset in a message of its physical offset, which is the end of its entry's header."""


@pytest.mark.parametrize("member", STORES["nodes"])
def test_a_broker_s_store_opens_with_every_message_where_the_broker_put_it(
    memory_path: Path, member: str
) -> None:
    folder = extract_broker(GOLDEN / STORES["archive"], member, memory_path)
    store = LogStore.open(
        folder,
        segment_size_bytes=STORES["data_file_size"],
        index_segment_size_bytes=INDEX_BYTES_KEPT,
    )
    rows: list[list[Any]] = STORES["entries"]

    assert (store.begin_index, store.end_index) == (0, len(rows) - 1)
    assert store.committed_index == store.end_index
    assert store.recovery.rebuilt_units == 0
    for row in rows:
        fields = dict(zip(STORES["entries_columns"], row, strict=True))
        header, body = store.entry(fields["index"])
        assert (header.magic, header.term, header.pos) == (
            disk.NORMAL, fields["term"], fields["pos"],
        )  # fmt: skip
        assert len(body) == fields["record_size"]
        offset = int.from_bytes(body[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big")
        assert offset == header.pos + disk.ENTRY_HEADER_SIZE
    assert load_hard_state(folder, store.end_term).term >= store.end_term
    store.close()
