"""`archive.json`: what an archive of a compacted log holds, see docs/compaction.md.

The archive's folder also holds the folder that `ArchiveInfo.folder` names, with a member's files.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from dledger_formats import json_objects
from dledger_formats.json_objects import FormatError
from dledger_formats.log import properties

INFO_FILE: Final = "archive.json"
INFO_BYTES_MAX: Final = 64 << 20
FORMAT: Final = 1
FOLDER_NAME: Final = re.compile(r"log-[0-9]{20}-[0-9a-f]{16}(?:-again)?")
"""The names that a folder with a log may have."""
_FILE_NAME: Final = re.compile(r"(?:data|index)/[0-9]{20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigest:
    """One file of an archive."""

    name: str
    """The file's path in the log's folder, such as data/00000000000000000000."""
    used_bytes: int
    """Bytes from the file's start that were written; the rest reads as zeros."""
    sha256: str
    """SHA-256 of the used bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveInfo:
    """The content of `archive.json`."""

    format: int
    group: str
    group_identity: str
    """The group's identity; empty if the copies did not contain it."""
    decoder: str
    tombstone_entries: int
    first_index: int
    clean_index: int
    """The clean point: entries up to here are compacted, and those after it are unchanged."""
    end_index: int
    end_term: int
    voters: list[str]
    """The voters by the last membership in the log; none if it has no membership."""
    learners: list[str]
    segment_bytes: int
    index_segment_bytes: int
    dead_entries: int
    """Number of entries up to the clean point that this run replaced by no-ops."""
    dead_bytes: int
    """Total bytes of their bodies."""
    source_first_index: int
    """The first entry that was read from the members, not from the previous archive."""
    source_sha256: str
    """SHA-256 of the entries from that one to the end, as the members hold them, without blanks."""
    previous_sha256: str
    """The `copy_sha256` of the previous archive; empty for a first run."""
    copy_sha256: str
    """SHA-256 of the names, sizes and digests of all files."""
    files: list[FileDigest]
    folder: str
    """Name of the folder with the log."""

    def to_json(self) -> bytes:
        """Encode as JSON."""
        return json_objects.encode(self)

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode. Raises FormatError for a wrong content, or the content of a later version."""
        info = json_objects.decode(cls, raw)
        if info.format != FORMAT:
            raise FormatError(f"it has the format {info.format}; use the version that wrote it")
        _check_names(info)
        return info

    def small_files(self) -> dict[str, bytes]:
        """Return the content of the log's files without entries, by name."""
        checkpoint = {
            "committedIndex": self.end_index,
            "endIndex": self.end_index,
            "beginIndex": self.first_index,
        }
        return {
            "currterm": properties.encode({"voteLeader": "", "currTerm": self.end_term}),
            "checkpoint": properties.encode(checkpoint),
        }


def digest_of(files: Sequence[FileDigest]) -> str:
    """Return the digest of an archive's files."""
    lines = "".join(f"{each.name} {each.used_bytes} {each.sha256}\n" for each in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def _check_names(info: ArchiveInfo) -> None:
    """Refuse names that could lead out of the archive, since they are joined to its path."""
    if not FOLDER_NAME.fullmatch(info.folder):
        raise FormatError(f"{info.folder[:80]!r} is not the name of an archive's log")
    for file in info.files:
        if not _FILE_NAME.fullmatch(file.name) or file.used_bytes < 0:
            raise FormatError(
                f"{file.name[:80]!r} with {file.used_bytes} bytes is not a file of a log"
            )
