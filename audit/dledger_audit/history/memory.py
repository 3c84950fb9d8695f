"""The memory of a group's audits, as a file.

    FOLDER/history.parquet    rows of DIGEST_SCHEMA, of whole and sound chunks alone; its metadata
                              has, as JSON, the group, the number of audits, what each member said
                              of itself when it was read last, and its suspect chunks
    FOLDER/lock               locked by the audit that reads and replaces the history

A *suspect* chunk was known, and was not found as it was when it was read last. It is read by every
audit until it is as it was, so an audit that reads only a part never takes it for sound.

A *chunk* is the 4096 entries from a multiple of 4096 on. A member's log may divide one between two
segments, so a chunk has one row or two.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dledger_audit.places import LOCK_FILE
from dledger_formats.http.status import Manifest, NodeStatus
from pyspark_dledger.digests import DIGEST_SCHEMA, PIECE_BITS
from pyspark_dledger.layout import Bools, Flag, Longs

FILE: Final = "history.parquet"
VERSION: Final = 1
CHUNK: Final = 1 << PIECE_BITS
_KEY: Final = b"dledger-audit"


class HistoryError(Exception):
    """The history cannot be read or written, or is that of another group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a member said of itself when it was audited last."""

    life: str
    term: int
    committed_index: int
    begin_index: int

    @classmethod
    def of(cls, manifest: Manifest) -> "Said":
        """Take over what a manifest says."""
        status = manifest.status
        return cls(
            life=manifest.life,
            term=status.term,
            committed_index=status.committed_index,
            begin_index=max(0, status.ledger_begin_index),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory before the first audit, or behind some."""

    group: str
    identity: str = ""
    audits: int = 0
    said: Mapping[str, Said] = field(default_factory=dict)
    suspects: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The first indexes of the suspect chunks of each member that has some."""
    rows: pa.Table = field(default_factory=DIGEST_SCHEMA.empty_table)

    def chunks(self, member: str) -> dict[int, pa.Table]:
        """Return the rows of each chunk of a member, by the chunk's first index."""
        rows = self.rows.filter(pc.equal(self.rows["member"], member))
        starts = chunk_starts(rows)
        order = np.argsort(starts, kind="stable")
        rows = rows.take(pa.array(order))
        found, firsts, counts = np.unique(starts[order], return_index=True, return_counts=True)
        places = zip(found.tolist(), firsts.tolist(), counts.tolist(), strict=True)
        return {start: rows.slice(first, count) for start, first, count in places}

    def after(
        self,
        rows: pa.Table,
        manifests: Mapping[str, Manifest],
        suspects: Mapping[str, frozenset[int]],
    ) -> "Memory":
        """Return the memory after an audit that read these rows and leaves these suspect chunks.

        A chunk that is known already stays as it is: if it changed, the next audit says so, too. So
        does what a member said of itself, if it tells nothing of its log now.
        """
        new = whole_chunks(rows)
        is_known = pc.is_in(_keys(new), value_set=_keys(self.rows))
        kept = pa.concat_tables([self.rows, new.filter(pc.invert(is_known))])
        told = {member: each for member, each in manifests.items() if not each.is_unlisted}
        said = {**self.said, **{member: Said.of(each) for member, each in told.items()}}
        begin = min((each.begin_index for each in said.values()), default=0)
        kept = kept.filter(pa.array(chunk_starts(kept) + CHUNK > begin))
        return replace(
            self,
            identity=self.identity or identity_of(manifests),
            audits=self.audits + 1,
            said=said,
            suspects={
                member: still
                for member, starts in suspects.items()
                if (still := frozenset(start for start in starts if start + CHUNK > begin))
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
    """Hold the history from its reading to its replacement.

    Of two audits that end at once, one would replace what the other has kept. Raises HistoryError
    if another audit holds it. A folder that cannot be locked is not held: nothing can be kept there
    either, which must not cost the audit.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
            stack.callback(os.close, fd)
            _lock(fd, folder)
        yield


def _lock(fd: int, folder: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise HistoryError(
            f"{folder} is in use by another audit; audit again once that has ended"
        ) from error


def load(folder: Path, group: str) -> Memory:
    """Read the memory of a group; an empty one if there is none yet. Raises HistoryError."""
    path = folder / FILE
    if not path.exists():
        return Memory(group=group)
    try:
        table = pq.read_table(path)
        said = json.loads((table.schema.metadata or {})[_KEY])
        if said["version"] != VERSION:
            raise HistoryError(
                f"{path} is of version {said['version']}; this release knows {VERSION}"
            )
        memory = Memory(
            group=said["group"],
            identity=said["identity"],
            audits=said["audits"],
            said={member: Said(**each) for member, each in said["members"].items()},
            suspects={m: frozenset(starts) for m, starts in said.get("suspects", {}).items()},
            rows=table.replace_schema_metadata().cast(DIGEST_SCHEMA),
        )
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise HistoryError(
            f"{path} cannot be read: {error}; remove it, and the next audit begins another"
        ) from error
    if memory.group != group:
        raise HistoryError(f"{path} is the history of the group {memory.group}, not of {group}")
    return memory


def save(memory: Memory, folder: Path) -> None:
    """Write the memory; a crash leaves the old file or the new one. Raises HistoryError."""
    said: dict[str, Any] = {
        "version": VERSION,
        "group": memory.group,
        "identity": memory.identity,
        "audits": memory.audits,
        "members": {member: asdict(each) for member, each in memory.said.items()},
        "suspects": {member: sorted(starts) for member, starts in memory.suspects.items()},
    }
    rows = memory.rows.replace_schema_metadata({_KEY: json.dumps(said).encode()})
    unfinished = folder / f"{FILE}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            pq.write_table(rows, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(folder / FILE)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HistoryError(f"the history cannot be written: {error}") from error


def whole_chunks(rows: pa.Table) -> pa.Table:
    """Return the rows of the chunks that a member has whole and sound, entry by entry."""
    sound = rows.filter(pa.array(_is_sound(rows)))
    starts = chunk_starts(sound)
    counts = sound["entries"].to_numpy()
    names = sound["member"].combine_chunks().dictionary_encode()
    keys = np.stack([names.indices.to_numpy().astype(np.int64), starts])
    _, number = np.unique(keys, axis=1, return_inverse=True)
    totals = np.bincount(number.reshape(-1), weights=counts, minlength=1)
    return sound.filter(pa.array(totals[number.reshape(-1)] == CHUNK))


def chunk_starts(rows: pa.Table) -> Longs:
    """Return the first index of the chunk of each row."""
    starts: Longs = rows["first_index"].to_numpy() >> PIECE_BITS << PIECE_BITS
    return starts


def identity_of(manifests: Mapping[str, Manifest]) -> str:
    """Return the identity of a group; empty if no member tells it."""
    said: list[NodeStatus] = [each.status for each in manifests.values()]
    return max((status.group_identity for status in said), default="")


def _is_sound(rows: pa.Table) -> Bools:
    flags = rows["flags"].to_numpy()
    sound: Bools = (flags & ~int(Flag.NO_CRC)) == 0
    return sound


def _keys(rows: pa.Table) -> pa.ChunkedArray:
    """Return a text for the member and the chunk of each row."""
    starts = pa.array(chunk_starts(rows)).cast(pa.string())
    return pc.binary_join_element_wise(rows["member"].combine_chunks(), starts, "/")
