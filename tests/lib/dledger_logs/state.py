"""A member's snapshots as files, with the registers that a history of entries leads to."""

import shutil
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dledger_formats.http.retention import HeldSnapshot
from dledger_formats.http.served_files import SNAPSHOT_DATA, SNAPSHOT_META, snapshot_file
from dledger_formats.http.status import Manifest
from dledger_formats.log import disk, snapshot_meta
from dledger_formats.log.checksum import crc32
from dledger_formats.log.snapshot_meta import SnapshotMeta
from dledger_logs.fronts import retention
from dledger_logs.write import Entry

PAIR = struct.Struct("<ii")


def register_after(entries: Sequence[Entry], index: int) -> bytes:
    """Return the dump of the register that has applied the entries up to an index."""
    values: dict[int, int] = {}
    for entry in entries[: index + 1]:
        if entry.magic == disk.NORMAL and len(entry.body) == PAIR.size:
            key, value = PAIR.unpack(entry.body)
            values[key] = value
    pairs = b"".join(PAIR.pack(*item) for item in values.items())
    return struct.pack("<8sII", b"DLREGIST", 1, len(values)) + pairs


def write_snapshot(root: Path, index: int, term: int, data: bytes) -> HeldSnapshot:
    """Write a snapshot into a member's folder, as the member does; it replaces an earlier one."""
    meta = SnapshotMeta(
        last_included_index=index,
        last_included_term=term,
        data_bytes=len(data),
        data_crc32=crc32(data),
    )
    path = root / snapshot_file(index, SNAPSHOT_META)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(snapshot_meta.encode(meta))
    (root / snapshot_file(index, SNAPSHOT_DATA)).write_bytes(data)
    return HeldSnapshot(
        last_included_index=index,
        last_included_term=term,
        data_bytes=meta.data_bytes,
        data_crc32=meta.data_crc32,
    )


def remove_snapshot(root: Path, index: int) -> None:
    """Remove a snapshot from a member's folder."""
    shutil.rmtree((root / snapshot_file(index, SNAPSHOT_DATA)).parent)


def with_snapshots(said: Manifest, *held: HeldSnapshot, **known: object) -> Manifest:
    """Return a manifest that lists these snapshots, beside the report on its log's front."""
    told = said.retention or retention()
    oldest = min((each.last_included_index for each in held), default=-1)
    seen: dict[str, object] = {
        "applied_index": said.status.committed_index,
        "covered_index": oldest,
        **known,
    }
    return replace(said, retention=replace(told, snapshots=list(held), **seen))  # type: ignore[arg-type]
