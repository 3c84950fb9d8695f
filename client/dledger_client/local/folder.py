"""The folder of a local group.

group.json        the group's shape, written before the first member starts
lock              held by the process that runs the group, and by each of its members
dledger-n0/ …     the stores of the members
n0.log …          the output of each member since its last start
admin-token, audit-token
                  the tokens of a group that demands them
"""

import contextlib
import dataclasses
import fcntl
import os
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from dledger_client.local.errors import LocalGroupError
from dledger_client.local.processes import how_to_stop, process_name, with_file
from dledger_formats import json_objects
from dledger_formats.folders import sync_folder
from dledger_formats.json_objects import FormatError

SHAPE_FILE: Final = "group.json"
UNFINISHED_SHAPE_FILE: Final = "group.new"
LOCK_FILE: Final = "lock"
STORE_PREFIX: Final = "dledger-"
"""The prefix of the name of a member's store folder, before the member's id."""
MEMBERS_ALLOWED: Final = (1, 3, 5, 7)
ADDABLE_ALLOWED: Final = range(7)
SEGMENT_SIZE_BYTES: Final = 16 << 20
"""A small size, because segments are allocated in full and each member has two or three."""
INDEX_SEGMENT_SIZE_BYTES: Final = 5 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShape:
    """The properties of a group that are fixed while the folder contains its log.

    With fewer members than before, the group could elect a leader that lacks acknowledged entries.
    """

    group: str
    members: int
    """Number of initial voters; the log records the current voters."""
    addable: int = 0
    """Number of further members that may be added."""
    broker: bool = False
    """Whether the members are RocketMQ brokers; no other member can use a broker's log."""
    segment_size_bytes: int = SEGMENT_SIZE_BYTES
    index_segment_size_bytes: int = INDEX_SEGMENT_SIZE_BYTES
    identity: str = ""
    """The group's identity. It is generated when the folder is first used, and kept."""

    def to_json(self) -> bytes:
        """Encode the shape for its file."""
        return json_objects.encode(self)

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode a shape. Raises FormatError if a key is missing or has the wrong type."""
        return json_objects.decode(cls, raw)


@contextlib.contextmanager
def kept_or_temporary(given: Path | None) -> Iterator[Path]:
    """Yield the given folder, or one that is removed at the end. Raises LocalGroupError."""
    if given is not None:
        yield given.expanduser().absolute()
        return
    try:
        temporary = tempfile.TemporaryDirectory(prefix="dledger-local-")
    except OSError as error:
        raise LocalGroupError(
            f"cannot make a temporary folder: {error.strerror}; name a folder with --data"
        ) from error
    with temporary as folder:
        yield Path(folder)


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[int]:
    """Create the folder if necessary and hold its lock; yield the lock's file descriptor.

    A process that inherits the descriptor also holds the lock until it exits. Raises
    LocalGroupError if another process holds the lock, or the folder cannot be written.
    """
    with _raised_as_local_group_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o640)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            raise LocalGroupError(_in_use(folder, holder)) from None
        with _raised_as_local_group_error(folder):
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{process_name(os.getpid())}\n".encode(), 0)
        yield lock
    finally:
        os.close(lock)


def _in_use(folder: Path, holder: str) -> str:
    """Return which processes use a folder, and how to stop them; `holder` took its lock."""
    users = with_file(folder / LOCK_FILE)
    other = "or choose another folder with --data"
    if not users or holder in (process_name(pid) for pid in users):
        return f"{folder} is in use by {holder or 'another process'}; stop that process, {other}"
    named = {}
    for path in sorted(folder.glob(f"{STORE_PREFIX}*/{LOCK_FILE}")):
        with contextlib.suppress(OSError):
            name = path.read_text(errors="replace").strip()
            named[name] = path.parent.name.removeprefix(STORE_PREFIX)
    names = [process_name(pid) for pid in users]
    living = sorted(f"{named[name]} ({name})" if name in named else name for name in names)
    return (
        f"{folder} is in use by {', '.join(living)}, which a group that was killed has left "
        f"running; {how_to_stop(users)}, {other}"
    )


def load_or_create_shape(folder: Path, wanted: GroupShape) -> GroupShape:
    """Return the shape of the group whose log the folder contains, or write the wanted shape.

    The caller must hold the folder's lock. Raises LocalGroupError if the folder contains another
    group, the same group with another number of members, or anything else, or cannot be written.
    """
    path = folder / SHAPE_FILE
    try:
        found = GroupShape.from_json(path.read_bytes())
    except FileNotFoundError:
        require_empty(folder)
        return create_shape(folder, wanted)
    except (OSError, FormatError) as error:
        raise LocalGroupError(
            f"cannot read {path}: {error}; choose another folder with --data"
        ) from error
    if (found.group, found.members) != (wanted.group, wanted.members):
        raise LocalGroupError(
            f"{folder} contains group {found.group} with {found.members} members; start it with "
            f"--group {found.group} --members {found.members}, or choose another folder with --data"
        )
    if found.broker != wanted.broker:
        kind, how = ("brokers", "with") if found.broker else ("plain members", "without")
        raise LocalGroupError(
            f"{folder} contains the log of {kind}; start it {how} --broker, or choose another "
            "folder with --data"
        )
    if found.addable > wanted.addable:
        raise LocalGroupError(
            f"{folder} contains a group with {found.addable} addable members, which may be voters "
            f"by now; start it with --addable {found.addable} or more, or choose another folder "
            "with --data"
        )
    # In a folder of an earlier release, no member has one; the lock admits one process.
    identity = found.identity or str(uuid.uuid4())
    kept = dataclasses.replace(found, addable=wanted.addable, identity=identity)
    if kept != found:
        _write(path, kept.to_json())
    return kept


def create_shape(folder: Path, wanted: GroupShape) -> GroupShape:
    """Found a group with an identity of its own, and return its shape."""
    founded = dataclasses.replace(wanted, identity=str(uuid.uuid4()))
    _write(folder / SHAPE_FILE, founded.to_json())
    return founded


def require_empty(folder: Path) -> None:
    """Raise LocalGroupError if the folder contains anything but its lock."""
    ours = (LOCK_FILE, UNFINISHED_SHAPE_FILE)
    others = sorted(path.name for path in folder.iterdir() if path.name not in ours)
    if SHAPE_FILE in others:
        raise LocalGroupError(f"{folder} contains a group already; start it without --seed")
    if others:
        raise LocalGroupError(
            f"{folder} contains {others[0]} but no {SHAPE_FILE}, so it does not belong to a local "
            "group; choose an empty or a new folder with --data"
        )


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(UNFINISHED_SHAPE_FILE)
    with _raised_as_local_group_error(path.parent):
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)


@contextlib.contextmanager
def _raised_as_local_group_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:  # what `mkdir` says of a file
        raise LocalGroupError(f"cannot use {error.filename} as a folder: it is a file") from error
    except OSError as error:
        raise LocalGroupError(f"cannot use folder {folder}: {error.strerror}") from error
