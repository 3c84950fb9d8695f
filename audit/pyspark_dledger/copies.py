"""The copies of a group's log that entries are read from: running members, and folders."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from dledger_formats.http.status import Manifest, NodeStatus
from dledger_formats.log import disk
from pyspark_dledger.bearer import Bearer
from pyspark_dledger.files import Files
from pyspark_dledger.folder import FolderFiles
from pyspark_dledger.http_reader import TIMEOUT_SECONDS, HttpFiles
from pyspark_dledger.plan import in_order
from pyspark_dledger.ranges import IndexRange


class RefusedError(Exception):
    """The request cannot be carried out, and nothing was changed; the message says why."""


class OpenFiles(Files, Protocol):
    """A copy's files, its manifest, and the status in that, which may be had for less."""

    def manifest(self) -> Manifest: ...

    def status(self) -> NodeStatus: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One copy of the log, at the instant of its manifest; Spark pickles it."""

    member: str
    place: str
    """The member's URL, or a folder."""
    manifest: Manifest
    is_archive: bool = False
    """Whether this is an archive, whose positions and checksums are its own."""

    @property
    def first_index(self) -> int:
        """Index of the first entry; only meaningful if there is one.

        A front that was removed since the status was made is no longer among the files. A first
        file that does not show its first entry has lost it, and nothing was removed.
        """
        begin, files = self.manifest.status.ledger_begin_index, self.manifest.data
        first = min(files, key=lambda file: disk.start_offset(file.name), default=None)
        return max(begin, first.first_index) if first is not None else begin

    @property
    def committed_index(self) -> int:
        """The last index that is read; -1 for none."""
        return self.manifest.status.committed_index if self.manifest.data else -1

    @property
    def leads(self) -> bool:
        """Whether the member is a leader."""
        status = self.manifest.status
        return status.leader_id is not None and status.leader_id == status.self_id

    def open(self) -> AbstractContextManager[Files]:
        """Open the copy's files."""
        return opened(self.place)

    def part(self, wanted: IndexRange) -> "Copy":
        """Return the copy with only those files in its manifest that a read of a range needs.

        A group of 1 TB has thousands of files, and each task carries the manifests of all members.
        """
        files = in_order(self.manifest.data)
        firsts = [file.first_index for file in files]
        low = max((k for k, first in enumerate(firsts) if first <= wanted.first), default=0)
        high = min((k for k, first in enumerate(firsts) if first > wanted.last), default=len(files))
        start = max(0, wanted.first - 2) * disk.INDEX_UNIT_SIZE
        end = (wanted.last + 1) * disk.INDEX_UNIT_SIZE
        index = [
            file
            for file in self.manifest.index
            if disk.start_offset(file.name) < end
            and disk.start_offset(file.name) + file.size_bytes > start
        ]
        data = files[max(0, low - 1) : high + 1]
        return replace(self, manifest=replace(self.manifest, data=data, index=index))


def opened(
    place: str,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    attempts_max: int | None = None,
    bearer: Bearer | None = None,
) -> AbstractContextManager[OpenFiles]:
    """Open the files of a member's URL, or of a folder. Raises ValueError for a wrong URL."""
    if "://" in place:
        return HttpFiles(
            place, timeout_seconds=timeout_seconds, attempts_max=attempts_max, bearer=bearer
        )
    return FolderFiles(Path(place))
