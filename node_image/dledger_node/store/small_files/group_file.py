"""The file `group` in a member's folder: which group the folder belongs to.

It holds the group's name and its identity, which distinguishes it from other groups of that name.
It is durable before the member makes its first promise. A folder without it was written by an
earlier release or by Java, and is claimed for the group of the member that opens it.

A release that writes files which earlier ones would misread records the number of its format here
first. This release writes format 1, which is not recorded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger_formats.http.status import identities_differ
from dledger_node.errors import (
    ForeignFolderError,
    LaterFormatError,
    StoreDamagedError,
    StoreError,
)
from dledger_node.store.small_files import ballast
from dledger_node.store.small_files.properties import parse_number, read_properties
from dledger_node.store.small_files.whole_file import saving

FILE_NAME: Final = "group"
_GROUP: Final = "group"
_IDENTITY: Final = "identity"
_ADOPTED: Final = "adopted"
_FORMAT: Final = "format"
_FOREIGN: Final = "foreignIndex"
_TRUE: Final = "true"
_OPTIONAL: Final = (_IDENTITY, _ADOPTED, _FORMAT, _FOREIGN)

FORMAT: Final = 1
"""The format of all files of a folder that this release writes and reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOwner:
    """The group to which a folder belongs."""

    group: str
    identity: str = ""
    """Empty while the group has none."""
    adopted: bool = False
    """Whether `dledger-node store adopt` created this identity. The rest of the earlier group may
    return at any time, so members without an identity then count as strangers.
    """
    foreign_index: int = -1
    """An entry that differs from the group's entry of the same index and term, so that the folder
    holds another group's log; -1 if none is known.
    """


class GroupFile:
    """The file of one folder: what it holds, and how to replace it."""

    def __init__(self, folder: Path, owner: FolderOwner) -> None:
        self.owner = owner
        self.folder = folder

    def save(self, owner: FolderOwner) -> None:
        """Record another owner, durably; blocks for two fsyncs. Raises StoreError."""
        save_owner(self.folder, owner)
        self.owner = owner


def load_owner(folder: Path) -> FolderOwner | None:
    """Return the owner of a folder; None if the file is missing. Changes nothing.

    Raises StoreError if the file cannot be trusted, LaterFormatError if the folder's files have a
    later format.
    """
    path = folder / FILE_NAME
    try:
        values = read_properties(path, (_GROUP,), optional=_OPTIONAL)
        number = _number(path, values, _FORMAT, 1, FORMAT)
        foreign_index = _number(path, values, _FOREIGN, 0, -1)
    except StoreDamagedError as error:
        # Not damage to heal: no peer knows which group the folder belongs to.
        raise StoreError(
            f"{error}. It says which group the folder belongs to. Remove the file if the folder "
            "is certainly this group's"
        ) from error
    if values is None:
        return None
    if number > FORMAT:
        raise LaterFormatError(
            f"the files of {folder} have format {number}; this release reads format {FORMAT}. "
            "Nothing was changed. Run the later release on this folder"
        )
    return FolderOwner(
        group=values[_GROUP],
        identity=values.get(_IDENTITY, ""),
        adopted=values.get(_ADOPTED) == _TRUE,
        foreign_index=foreign_index,
    )


def save_owner(folder: Path, owner: FolderOwner) -> None:
    """Record the owner of a folder, durably; blocks for two fsyncs.

    Releases the ballast on a full volume. Raises StoreError, or StoreFullError if that does not
    suffice.
    """
    path = folder / FILE_NAME
    values = {_GROUP: owner.group}
    values |= {_IDENTITY: owner.identity} if owner.identity else {}
    values |= {_ADOPTED: _TRUE} if owner.adopted else {}
    values |= {_FOREIGN: str(owner.foreign_index)} if owner.foreign_index >= 0 else {}
    with saving(path):
        ballast.save_properties(path, values)


def check_owner(folder: Path, group: str, identity: str) -> None:
    """Raise ForeignFolderError if the folder belongs to another group. Changes nothing.

    `identity` is that of the settings; empty if they have none.
    """
    owner = load_owner(folder)
    if owner is None:
        return
    if owner.group != group:
        raise ForeignFolderError(
            f"{folder} belongs to the group {owner.group}, and this member to {group}; give "
            "this member its own folder, or correct the name of its group (DLEDGER_GROUP, or "
            "--group of `dledger group local`)"
        )
    if identities_differ(owner.identity, identity):
        raise ForeignFolderError(
            f"{folder} belongs to another group named {group}, whose identity is {owner.identity}; "
            f"DLEDGER_GROUP_IDENTITY of this member is {identity}. Give this member its own "
            "folder, or correct the identity if the folder is this group's"
        )
    if owner.foreign_index >= 0:
        raise ForeignFolderError(foreign_log(folder, owner))


def foreign_log(folder: Path, owner: FolderOwner) -> str:
    """Return the error message for a folder that holds another group's log."""
    return (
        f"{folder} holds the log of another group: its entry {owner.foreign_index} is not that of "
        f"the group {owner.group}, although it has the same term. Give this member an empty "
        "folder. If the folder is certainly this group's, audit the group, and remove the file "
        f"{FILE_NAME} from the folder"
    )


def _number(
    path: Path, values: Mapping[str, str] | None, key: str, smallest: int, default: int
) -> int:
    return parse_number(path, values, key, smallest) if values and key in values else default


def claim(folder: Path, group: str, identity: str) -> GroupFile:
    """Check a folder's owner, record what its file does not say yet, and return the file.

    The caller holds the folder's lock. Raises ForeignFolderError, StoreError.
    """
    check_owner(folder, group, identity)
    known = load_owner(folder)
    if known is None or (identity and not known.identity):
        known = FolderOwner(group=group, identity=identity)
        save_owner(folder, known)
    return GroupFile(folder, known)
