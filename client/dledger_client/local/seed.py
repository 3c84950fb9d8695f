"""Begin a local group with the log of an archive (docs/compaction.md).

Every member gets a copy (`dledger_formats.seeding`). `group.json` is written after the last one, so
no group starts from a folder that a crash has left incomplete.
"""

from collections.abc import Sequence
from pathlib import Path

from dledger_client.local.errors import LocalGroupError
from dledger_formats import seeding
from dledger_formats.log.archives import ArchiveInfo
from dledger_formats.settings import NO_STATE_MACHINE


def read_seed(archive: Path) -> ArchiveInfo:
    """Read the description of an archive. Raises LocalGroupError if this is not an archive."""
    try:
        return seeding.read_archive(archive)
    except seeding.SeedError as error:
        raise LocalGroupError(str(error)) from error


def copy_seed(
    archive: Path,
    info: ArchiveInfo,
    folder: Path,
    members: Sequence[str],
    state_machine: str = NO_STATE_MACHINE,
) -> None:
    """Copy an archive's log to the folders of a group's voters, which must not exist.

    Raises LocalGroupError if the log names other members, lacks entries that the state machine
    needs, or is damaged.
    """
    try:
        seeding.check_members(archive, info, members)
        seeding.check_front(archive, info, state_machine)
    except seeding.SeedError as error:
        raise LocalGroupError(str(error)) from error
    try:
        for member in members:
            seeding.copy_log(archive, info, folder / f"dledger-{member}", info.small_files())
    except seeding.SeedError as error:
        raise LocalGroupError(f"{error}, and remove {folder}") from error
    except OSError as error:
        raise LocalGroupError(
            f"{archive} cannot be copied to {folder}: {error}; remove {folder}, and try again"
        ) from error
