"""The folder of a local group: whose it is, and what was written in it before.

group.json        the group's shape, written before the first member starts
lock              held by whoever runs the group, and by each of its members
dledger-n0/ …     the members' stores
n0.log …          what the members say, since their last start
"""

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from dledger_client.local.errors import LocalGroupError
from dledger_formats import json_objects
from dledger_formats.json_objects import FormatError

SHAPE_FILE: Final = "group.json"
UNFINISHED_SHAPE_FILE: Final = "group.new"
LOCK_FILE: Final = "lock"
MEMBERS_ALLOWED: Final = (1, 3, 5, 7)
ADDABLE_ALLOWED: Final = range(7)
SEGMENT_SIZE_BYTES: Final = 16 << 20
"""Small, since segments are made at their full length, and each member has two or three."""
INDEX_SEGMENT_SIZE_BYTES: Final = 5 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShape:
    """What must stay as it is while the folder holds the group's log.

    Fewer members than before could elect one that lacks acknowledged entries.
    """

    group: str
    members: int
    """How many voters it began with; who votes by now, its log says."""
    addable: int = 0
    """How many more there are that may be added."""
    segment_size_bytes: int = SEGMENT_SIZE_BYTES
    index_segment_size_bytes: int = INDEX_SEGMENT_SIZE_BYTES

    def to_json(self) -> bytes:
        """Encode for the file."""
        return json_objects.encode(self)

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode; FormatError when a key is missing or has another type."""
        plain = json_objects.parse(raw)
        if isinstance(plain, dict):
            raw = json.dumps({"addable": 0} | plain).encode()  # earlier versions did not write it
        return json_objects.decode(cls, raw)


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[int]:
    """Make the folder if need be and hold its lock; yields the lock's file descriptor.

    A process that inherits the descriptor holds the lock too, until it ends. LocalGroupError when
    somebody else holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o640)
    except OSError as error:
        raise LocalGroupError(f"{folder} cannot be used: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "another process"
            raise LocalGroupError(
                f"{folder} is in use by {holder} or members that it left; stop them, or give "
                "--data another folder"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()}\n".encode(), 0)
        yield lock
    finally:
        os.close(lock)


def load_or_create_shape(folder: Path, wanted: GroupShape) -> GroupShape:
    """Return the shape of the group whose log the folder holds, or write the wanted one.

    To be called with the lock held. LocalGroupError when the folder holds another group, the same
    one with another number of members, or something else.
    """
    path = folder / SHAPE_FILE
    try:
        found = GroupShape.from_json(path.read_bytes())
    except FileNotFoundError:
        _require_empty(folder)
        _write(path, wanted.to_json())
        return wanted
    except (OSError, FormatError) as error:
        raise LocalGroupError(f"{path} cannot be read: {error}; give another folder") from error
    if (found.group, found.members) != (wanted.group, wanted.members):
        raise LocalGroupError(
            f"{folder} holds the group {found.group} of {found.members} members; start it with "
            f"--group {found.group} --members {found.members}, or give --data another folder"
        )
    if found.addable > wanted.addable:
        raise LocalGroupError(
            f"{folder} holds a group with {found.addable} addable members, which may vote by now; "
            f"start it with --addable {found.addable} at least, or give --data another folder"
        )
    if found.addable < wanted.addable:
        found = dataclasses.replace(found, addable=wanted.addable)
        _write(path, found.to_json())
    return found


def _require_empty(folder: Path) -> None:
    ours = (LOCK_FILE, UNFINISHED_SHAPE_FILE)
    others = sorted(path.name for path in folder.iterdir() if path.name not in ours)
    if others:
        raise LocalGroupError(
            f"{folder} holds {others[0]} and no {SHAPE_FILE}, so it is no local group's; give "
            "--data an empty or a new folder"
        )


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(UNFINISHED_SHAPE_FILE)
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
