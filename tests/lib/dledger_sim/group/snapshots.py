"""A member's snapshots on its simulated disk, and the state that it keeps.

A snapshot is durable as a whole or absent, as tests/store/test_snapshot_crashes.py shows for real
snapshots. Like a real store, it never loads a damaged snapshot.
"""

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from io import BytesIO
from typing import BinaryIO, Final, NamedTuple, Self

from dledger_formats.log.checksum import crc32
from dledger_formats.log.snapshot_meta import SnapshotMeta
from dledger_node.errors import Damage, StoreDamagedError, StoreFullError
from dledger_node.state_machine.machine import CommittedEntry, Make
from dledger_node.store.snapshots.held_snapshots import HeldSnapshots
from dledger_sim.group.disk import Entry, KeptSnapshot, SimDisk

BODY_BYTES: Final = 8
_LANES: Final = 8
_DUMP: Final = struct.Struct(f">q{_LANES}I")
_INDEX: Final = struct.Struct(">q")


class SimState:
    """A state that depends on every applied entry and their order: the last digests of a chain."""

    def __init__(self, count: int = 0, digests: Sequence[int] = (0,) * _LANES) -> None:
        self._count = count
        self._digests = list(digests)

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        """See `StateMachine`."""
        for index, body in entries:
            before = self._digests[self._count % _LANES]
            self._count += 1
            digest = crc32(body, crc32(_INDEX.pack(index), before))
            self._digests[self._count % _LANES] = digest

    def copy(self) -> Self:
        """See `StateMachine`."""
        return type(self)(self._count, self._digests)

    def dump(self) -> Iterator[bytes]:
        """See `StateMachine`."""
        yield _DUMP.pack(self._count, *self._digests)

    def load(self, file: BinaryIO) -> None:
        """See `StateMachine`."""
        raw = file.read()
        if len(raw) != _DUMP.size:
            raise ValueError(f"a state of {len(raw)} bytes")
        self._count, *self._digests = _DUMP.unpack(raw)


def applicable(entries: Sequence[Entry], first_index: int) -> list[CommittedEntry]:
    """Return the entries to apply; a state does not see no-ops and memberships."""
    return [
        CommittedEntry(index, entry.body.to_bytes(BODY_BYTES, "big"))
        for index, entry in enumerate(entries, first_index)
        if entry.body >= 0
    ]


class States(NamedTuple):
    """The kind of state that the members of a group keep."""

    make: Make
    applicable: Callable[[Sequence[Entry], int], list[CommittedEntry]]
    """Returns the entries to apply, which begin with the one of this index."""


DIGESTS: Final = States(lambda _: SimState(), applicable)


class SimSnapshots(HeldSnapshots):
    """The snapshots of a disk; see `dledger_node.store.snapshots.snapshots.Snapshots`."""

    def __init__(self, disk: SimDisk, reserved: int) -> None:
        """Verify all snapshots, as a member does at its start."""
        self._disk = disk
        self._kept = disk.snapshots
        self._reserved = reserved
        super().__init__(
            [kept.meta for kept in self._kept.values() if kept.sound],
            {index: "it is damaged" for index, kept in self._kept.items() if not kept.sound},
        )

    def read(self, meta: SnapshotMeta, load: Callable[[BinaryIO], None]) -> None:
        """See `Snapshots`."""
        self.verify(self._kept[meta.last_included_index].data, meta, load)

    @staticmethod
    def verify(data: bytes, meta: SnapshotMeta, load: Callable[[BinaryIO], None]) -> None:
        """See `Snapshots`."""
        if not KeptSnapshot(meta, data).sound:
            raise StoreDamagedError(f"{data!r} is not {meta}", Damage.BAD_SNAPSHOT)
        load(BytesIO(data))

    def is_sound(self, meta: SnapshotMeta) -> bool:
        """See `Snapshots`."""
        kept = self._kept.get(meta.last_included_index)
        if kept is not None and kept.meta == meta and not kept.sound:
            self._distrust(meta.last_included_index, "it has rotted")
            return False
        return kept is not None

    def chunk(self, meta: SnapshotMeta, offset: int, size: int) -> bytes | None:
        """See `Snapshots`."""
        kept = self._kept.get(meta.last_included_index)
        return kept.data[offset : offset + size] if kept is not None else None

    def save(self, kept: KeptSnapshot, keep: Collection[int], *, pruning: bool = True) -> bool:
        """See `Snapshots`; return False if there is a newer snapshot. Without `pruning`, a crash
        came before the removal of old snapshots.
        """
        if kept.meta.last_included_index <= self.newest_index:
            return False
        if self._disk.full:
            self._prune(1, keep)
            raise StoreFullError("no room for a snapshot")
        self.adopt(kept)
        if pruning:
            self._prune(self._reserved, keep)
        return True

    def adopt(self, kept: KeptSnapshot) -> None:
        """See `Snapshots`."""
        self._kept[kept.meta.last_included_index] = kept
        self._disk.rotted = False
        self._note(kept.meta)

    def discard(self, index: int) -> None:
        """See `Snapshots`."""
        self._forget(index)
        del self._kept[index]

    def _prune(self, reserved: int, keep: Collection[int]) -> None:
        for index in self._surplus(reserved, keep):
            self.discard(index)


def kept_snapshot(index: int, term: int, data: bytes) -> KeptSnapshot:
    """Return a new snapshot with its metadata."""
    meta = SnapshotMeta(
        last_included_index=index,
        last_included_term=term,
        data_bytes=len(data),
        data_crc32=crc32(data),
    )
    return KeptSnapshot(meta, data)
