"""Copy the log of an archive to the folder of a new group's member (docs/compaction.md).

The bytes are checked while they are copied. A copy is complete once `copy_log` has returned: its
caller writes it beside the member's folder and renames it, or records it after the last member.
"""

import hashlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from dledger_formats.folders import sync
from dledger_formats.json_objects import FormatError
from dledger_formats.log import disk
from dledger_formats.log.archives import INFO_BYTES_MAX, INFO_FILE, ArchiveInfo, FileDigest
from dledger_formats.settings import NO_STATE_MACHINE

BLOCK_BYTES: Final = 4 << 20


class SeedError(Exception):
    """An archive cannot begin a group; the message says why, and what to do."""


def read_archive(archive: Path) -> ArchiveInfo:
    """Read what an archive holds. Raises SeedError if the folder is not an archive."""
    try:
        with (archive / INFO_FILE).open("rb") as file:
            return ArchiveInfo.from_json(file.read(INFO_BYTES_MAX + 1))
    except (OSError, FormatError) as error:
        why = f"{INFO_FILE}: {error.strerror}" if isinstance(error, OSError) else error
        raise SeedError(
            f"{archive} is no archive: {why}; name a folder that `dledger-audit compact` made"
        ) from error


def check_members(archive: Path, info: ArchiveInfo, members: Collection[str]) -> None:
    """Raise SeedError if the archive's log names other members than the new group's first voters.

    `members` are those voters.
    """
    named = {*info.voters, *info.learners}
    if named and (sorted(info.voters) != sorted(members) or info.learners):
        raise SeedError(
            f"the log of {archive} names the voters {', '.join(info.voters)} and "
            f"{len(info.learners)} learners, and this group has {', '.join(members)}: a group "
            "from this archive needs the members that its log names"
        )


def check_front(archive: Path, info: ArchiveInfo, state_machine: str) -> None:
    """Raise SeedError if the archive lacks first entries that the state of the group needs."""
    if info.first_index > 0 and state_machine != NO_STATE_MACHINE:
        raise SeedError(
            f"{archive} begins with entry {info.first_index}, since the log had lost the entries "
            f"before when it was first compacted, and the state machine {state_machine} needs all "
            "of them: begin a group without a state machine with it"
        )


def copy_log(
    archive: Path, info: ArchiveInfo, target: Path, small_files: Mapping[str, bytes]
) -> None:
    """Copy an archive's log durably to `target`, which must not exist, and add the small files.

    Raises SeedError if a file is damaged, or OSError. A part of the copy may then be left.
    """
    source = archive / info.folder
    for name in (disk.DATA_FOLDER, disk.INDEX_FOLDER):
        (target / name).mkdir(parents=True)
    for file in info.files:
        _copy(source / file.name, target / file.name, file)
    for name, raw in small_files.items():
        (target / name).write_bytes(raw)
        sync(target / name)
    for made in (target / disk.DATA_FOLDER, target / disk.INDEX_FOLDER, target, target.parent):
        sync(made)


def _copy(source: Path, target: Path, file: FileDigest) -> None:
    """Copy the used bytes of a file; the rest of the copy is a hole. Raises SeedError."""
    digest, left = hashlib.sha256(), file.used_bytes
    with source.open("rb") as old, target.open("xb") as new:
        while left and (block := old.read(min(left, BLOCK_BYTES))):
            digest.update(block)
            new.write(block)
            left -= len(block)
        new.truncate(source.stat().st_size)
        new.flush()
        os.fsync(new.fileno())
    if left or digest.hexdigest() != file.sha256:
        raise SeedError(
            f"{source} is damaged: it is not as {INFO_FILE} describes it; restore the archive"
        )
