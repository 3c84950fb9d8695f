"""The names of a member's small files and snapshots, as `/files/NAME` serves them to auditors."""

import re
from typing import Final

SMALL_FILES: Final = ("currterm", "checkpoint", "memberships", "producers", "removals")
SNAPSHOT_DATA: Final = "data"
SNAPSHOT_META: Final = "snapshot_meta"
PATTERN: Final = (
    rf"{'|'.join(SMALL_FILES)}"
    rf"|snapshot/snapshot_(?:0|[1-9][0-9]{{0,18}})/(?:{SNAPSHOT_DATA}|{SNAPSHOT_META})"
)
"""Without a group, since aiohttp's routes allow none."""
_NAME: Final = re.compile(PATTERN)


def is_served(name: str) -> bool:
    """Return whether a file of this name, relative to the store's folder, may be served."""
    return _NAME.fullmatch(name) is not None


def snapshot_index(name: str) -> int | None:
    """Return the last included index of the snapshot to which a served file belongs, if any."""
    folder = name.split("/")[-2] if is_served(name) and "/" in name else ""
    return int(folder.removeprefix("snapshot_")) if folder else None


def snapshot_file(last_included_index: int, name: str) -> str:
    """Return the name of a snapshot's file."""
    return f"snapshot/snapshot_{last_included_index}/{name}"
