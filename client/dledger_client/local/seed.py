"""Begin a local group with the log of an archive (docs/compaction.md).

Every member gets a copy, whose bytes are checked while they are copied. `group.json` is written
after the last copy, so a crash in between leaves a folder that no group starts from.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dledger_client.local.errors import LocalGroupError
from dledger_formats.json_objects import FormatError
from dledger_formats.log import disk
from dledger_formats.log.archives import INFO_BYTES_MAX, INFO_FILE, ArchiveInfo, FileDigest

BLOCK_BYTES: Final = 4 << 20


def read_seed(archive: Path) -> ArchiveInfo:
    """Read what an archive holds. Raises LocalGroupError if it is none."""
    try:
        with (archive / INFO_FILE).open("rb") as file:
            return ArchiveInfo.from_json(file.read(INFO_BYTES_MAX + 1))
    except (OSError, FormatError) as error:
        raise LocalGroupError(
            f"{archive} is no archive: {error}; name a folder that `dledger-audit compact` made"
        ) from error


def copy_seed(archive: Path, info: ArchiveInfo, folder: Path, members: Sequence[str]) -> None:
    """Copy an archive's log to the folders of a group's voters, which must not exist.

    Raises LocalGroupError if the log names other members, or is damaged.
    """
    named = {*info.voters, *info.learners}
    if named and (sorted(info.voters) != sorted(members) or info.learners):
        raise LocalGroupError(
            f"the log of {archive} names the voters {', '.join(info.voters)} and "
            f"{len(info.learners)} learners, and this group has {', '.join(members)}: a group "
            "from this archive needs the members that its log names"
        )
    source = archive / info.folder
    try:
        for member in members:
            target = folder / f"dledger-{member}"
            for name in (disk.DATA_FOLDER, disk.INDEX_FOLDER):
                (target / name).mkdir(parents=True)
            for file in info.files:
                _copy(source / file.name, target / file.name, file)
            for name, raw in info.small_files().items():
                (target / name).write_bytes(raw)
                _sync(target / name)
            for made in (target / disk.DATA_FOLDER, target / disk.INDEX_FOLDER, target, folder):
                _sync(made)
    except OSError as error:
        raise LocalGroupError(
            f"{archive} cannot be copied to {folder}: {error}; remove {folder}, and try again"
        ) from error


def _copy(source: Path, target: Path, file: FileDigest) -> None:
    """Copy the used bytes of a file; the rest of the copy is a hole. Raises LocalGroupError."""
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
        raise LocalGroupError(
            f"{source} is damaged: it is not as {INFO_FILE} describes it; restore the archive, "
            f"and remove {target.parent.parent.parent}"
        )


def _sync(path: Path) -> None:
    """Make a file's content durable, or the names in a folder."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
