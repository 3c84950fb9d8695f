"""What a group's earlier audits read, as a file.

    FOLDER/history.parquet    rows of DIGEST_SCHEMA, of whole and sound chunks alone; its metadata
                              has, as JSON, the group, the number of audits, what each member
                              reported about itself, its suspect chunks, and which known entries
                              the next audit reads again
    FOLDER/lock               locked by the audit that reads and replaces the history

A *suspect* chunk was known, and was not found unchanged when it was last read. Every audit reads it
until it is as before, so an audit that reads only a part never takes it for sound.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from dledger_audit import folder_lock
from dledger_audit.folder_lock import FolderInUseError
from dledger_audit.history.chunks import (
    CHUNK,
    chunk_starts,
    member_numbers,
    starts_of,
    whole_chunks,
)
from dledger_audit.history.compared import Compared
from dledger_formats.folders import sync_folder
from dledger_formats.http.status import Manifest, NodeStatus
from pyspark_dledger.digests import DIGEST_SCHEMA
from pyspark_dledger.layout import Longs

FILE: Final = "history.parquet"
VERSION: Final = 1
PARTS: Final = 7
"""One of so many successive audits reads a known chunk again."""
_KEY: Final = b"dledger-audit"


class HistoryError(Exception):
    """The history cannot be read or written, or is that of another group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReport:
    """What a member reported about itself: in the last audit, and the highest of all audits."""

    life: str
    term: int
    """The highest one."""
    committed_index: int
    """The highest one: what was committed stays so, also if the member knows less later."""
    begin_index: int

    @classmethod
    def of(cls, manifest: Manifest) -> "MemberReport":
        """Return what a manifest reports."""
        status = manifest.status
        return cls(
            life=manifest.life,
            term=status.term,
            committed_index=status.committed_index,
            begin_index=max(0, status.ledger_begin_index),
        )

    def since(self, before: "MemberReport | None") -> "MemberReport":
        """Return this report with the highest term and committed index of it and `before`."""
        if before is None:
            return self
        return replace(
            self,
            term=max(self.term, before.term),
            committed_index=max(self.committed_index, before.committed_index),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What earlier audits read; empty before the first one."""

    group: str
    identity: str = ""
    audits: int = 0
    reports: Mapping[str, MemberReport] = field(default_factory=dict)
    suspects: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The first indexes of the suspect chunks of each member that has some."""
    part: int = 0
    """Which part of what is known the next audit reads again, of PARTS."""
    again_from: int = 0
    """Where the part before it ended."""
    rows: pa.Table = field(default_factory=DIGEST_SCHEMA.empty_table)

    def chunks(self, member: str) -> Longs:
        """Return the first indexes of the known chunks of a member, in order."""
        return starts_of(self.rows, member)

    @property
    def again(self) -> tuple[int, int]:
        """Return the first known entry that the next audit reads again, and the end after the last.

        Each part of a round begins where the one before it ended, and the last one ends with what
        is known then. The ends come from the bounds of the log alone, which only rise, so an entry
        is read in no later part of the next round than of this one, however much the log has grown.
        """
        starts = chunk_starts(self.rows)
        if not len(starts):
            return 0, 0
        first = max(int(starts.min()), self.again_from if self.part else 0)
        chunks = max(0, int(starts.max()) + CHUNK - first) // CHUNK
        return first, first + CHUNK * -(-chunks // (PARTS - self.part))

    def after(
        self,
        rows: pa.Table,
        found: Compared,
        manifests: Mapping[str, Manifest],
        suspects: Mapping[str, frozenset[int]],
        group: Collection[str],
    ) -> "History":
        """Return the history after an audit that read these rows and found this in them.

        `suspects` are the suspect chunks that it leaves. A known chunk is kept as it was, unless it
        was mended: if it changed, the next audit reports that, too. A member's highest committed
        index and term are kept, and its whole last report if it does not report its log now.
        Members that are no longer in the group are forgotten.
        """
        whole = whole_chunks(rows)
        new = whole.filter(pa.array(found.of_rows(whole, found.is_learned)))
        old = self.rows.filter(pa.array(~found.of_rows(self.rows, found.is_mended)))
        kept = pa.concat_tables([old, new])
        listed = {member: each for member, each in manifests.items() if not each.is_unlisted}
        now = {
            member: MemberReport.of(each).since(self.reports.get(member))
            for member, each in listed.items()
        }
        reports = {
            member: each for member, each in {**self.reports, **now}.items() if member in group
        }
        begin = min((each.begin_index for each in reports.values()), default=0)
        is_in_group = member_numbers(kept, list(reports)) >= 0
        kept = kept.filter(pa.array(is_in_group & (chunk_starts(kept) + CHUNK > begin)))
        return replace(
            self,
            identity=self.identity or identity_of(manifests),
            audits=self.audits + 1,
            reports=reports,
            part=(self.part + 1) % PARTS if len(self.rows) else 0,
            again_from=self.again[1],
            suspects={
                member: still
                for member, starts in suspects.items()
                if member in group
                and (still := frozenset(start for start in starts if start + CHUNK > begin))
            },
            rows=kept.combine_chunks(),
        )

    def check_group(self, manifests: Mapping[str, Manifest]) -> None:
        """Raise HistoryError if the members are those of another group."""
        identity = identity_of(manifests)
        if self.identity and identity and self.identity != identity:
            raise HistoryError(
                f"the history is of a group {self.group} with the identity {self.identity}, and "
                f"the members are of one with {identity}; keep another folder for each group"
            )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the history from its reading to its replacement.

    Of two audits at the same time, one would otherwise replace what the other has kept. Raises
    HistoryError if another audit holds the lock, also one that names the folder by a URI. A folder
    that cannot be locked is no error: nothing can be kept there either, and the audit must not fail
    because of that.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            fd = folder_lock.open_lock(folder)
            stack.callback(os.close, fd)
            _lock(fd, folder)
        yield


def _lock(fd: int, folder: Path) -> None:
    cure = "audit again once that has ended"
    try:
        folder_lock.lock(fd, folder, holder="another audit", cure=cure)
    except FolderInUseError as error:
        raise HistoryError(str(error)) from error


def load(folder: Path, group: str) -> History:
    """Read the history of a group; an empty one if there is none yet. Raises HistoryError."""
    path = folder / FILE
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return History(group=group)
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error}") from error
    try:
        table = pq.read_table(path)
        metadata = json.loads((table.schema.metadata or {})[_KEY])
        if metadata["version"] != VERSION:
            raise HistoryError(
                f"{path} is of version {metadata['version']}; this release knows {VERSION}"
            )
        history = History(
            group=metadata["group"],
            identity=metadata["identity"],
            audits=metadata["audits"],
            reports={member: MemberReport(**each) for member, each in metadata["members"].items()},
            suspects={m: frozenset(starts) for m, starts in metadata.get("suspects", {}).items()},
            part=metadata.get("part", 0) % PARTS,
            again_from=metadata.get("again_from", 0),
            rows=table.replace_schema_metadata().cast(DIGEST_SCHEMA),
        )
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise HistoryError(
            f"{path} cannot be read: {error}; remove it, and the next audit begins another"
        ) from error
    if history.group != group:
        raise HistoryError(f"{path} is the history of the group {history.group}, not of {group}")
    return history


def save(history: History, folder: Path) -> None:
    """Write the history; a crash leaves the old file or the new one. Raises HistoryError."""
    metadata: dict[str, Any] = {
        "version": VERSION,
        "group": history.group,
        "identity": history.identity,
        "audits": history.audits,
        "members": {member: asdict(each) for member, each in history.reports.items()},
        "part": history.part,
        "again_from": history.again_from,
        "suspects": {member: sorted(starts) for member, starts in history.suspects.items()},
    }
    rows = history.rows.replace_schema_metadata({_KEY: json.dumps(metadata).encode()})
    unfinished = folder / f"{FILE}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            pq.write_table(rows, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(folder / FILE)
        sync_folder(folder)
    except OSError as error:
        raise HistoryError(f"the history cannot be written: {error}") from error


def identity_of(manifests: Mapping[str, Manifest]) -> str:
    """Return the identity of a group; empty if no member reports it."""
    statuses: list[NodeStatus] = [each.status for each in manifests.values()]
    return max((status.group_identity for status in statuses), default="")
