"""Read all snapshots of all members, while the members take and remove snapshots.

A member takes a snapshot at most once a second and keeps the last few. So a snapshot that a
manifest lists may be gone when it is read. A snapshot that was not read whole gets a second
reading: the members are asked again, and what they still list is read once more.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dledger_audit.checks.electorate import is_counted
from dledger_audit.snapshots.reading import Listed, Outcome, SnapshotRead
from dledger_formats.http.retention import HeldSnapshot
from dledger_formats.http.status import Manifest

ROUNDS_MAX: Final = 4
LOOKS: Final = 2
"""How often a snapshot that is not whole is read before it is judged."""
SNAPSHOTS_MAX: Final = 100
"""Snapshots of a member that are read, the newest ones: as many as its settings allow."""


class SnapshotPass(Protocol):
    """Reads snapshots."""

    def snapshots(
        self, manifests: Mapping[str, Manifest], wanted: Sequence[Listed]
    ) -> list[SnapshotRead]:
        """Read these snapshots, and the entries of the log where they end.

        Where the newest one of a member is gone, the one that replaced it is read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Gathered:
    """The snapshots of all members."""

    manifests: Mapping[str, Manifest]
    """The last manifests of the members whose snapshots count."""
    reads: tuple[SnapshotRead, ...]
    """What was read, of snapshots that were whole or are still listed."""
    missed: tuple[str, ...] = ()
    """Members that removed each snapshot before it was read."""


def gather(
    passes: SnapshotPass,
    manifests: Mapping[str, Manifest],
    ask_again: Callable[[], Mapping[str, Manifest]],
) -> Gathered:
    """Read the snapshots of the members whose storage is sound."""
    latest = dict(manifests)
    reads: dict[Listed, SnapshotRead] = {}
    looks = Counter[Listed]()
    for _ in range(ROUNDS_MAX):
        reads = _standing(reads, latest)
        listed = [each for manifest in _counted(latest).values() for each in listed_by(manifest)]
        wanted = [each for each in listed if each not in reads or _is_open(reads[each], looks)]
        if not wanted:
            break
        found = passes.snapshots(_counted(latest), wanted)
        looks.update(wanted)
        reads |= {read.listed: read for read in found}
        if all(read.outcome is Outcome.WHOLE for read in found):
            break
        present = ask_again()
        latest |= present
        for read in found:
            if read.listed.member not in present:
                looks[read.listed] = LOOKS  # each attempt may take 20 seconds
    counted, reads = _counted(latest), _standing(reads, latest)
    readers = {read.listed.member for read in reads.values()}
    return Gathered(
        manifests=counted,
        reads=tuple(reads.values()),
        missed=tuple(
            member
            for member, manifest in counted.items()
            if listed_by(manifest) and member not in readers
        ),
    )


def listed_by(manifest: Manifest) -> list[Listed]:
    """Return the snapshots that a member lists, the oldest first."""
    held = manifest.retention.snapshots if manifest.retention is not None else []
    return [Listed(manifest.status.self_id, each) for each in held[-SNAPSHOTS_MAX:]]


def newest_of(wanted: Sequence[Listed]) -> set[Listed]:
    """Return the newest snapshot of each member."""
    newest = dict[str, Listed]()
    for each in sorted(wanted, key=lambda each: each.index):
        newest[each.member] = each
    return set(newest.values())


def newest_held(manifest: Manifest) -> HeldSnapshot | None:
    """Return the newest snapshot that a member lists."""
    listed = listed_by(manifest)
    return listed[-1].held if listed else None


def _standing(
    reads: Mapping[Listed, SnapshotRead], latest: Mapping[str, Manifest]
) -> dict[Listed, SnapshotRead]:
    """Drop snapshots that were not whole and are no longer listed: the member removed them."""
    listed = {each for manifest in _counted(latest).values() for each in listed_by(manifest)}
    return {
        each: read
        for each, read in reads.items()
        if read.outcome is Outcome.WHOLE or each in listed
    }


def _counted(manifests: Mapping[str, Manifest]) -> dict[str, Manifest]:
    return {
        member: manifest for member, manifest in manifests.items() if is_counted(manifest.status)
    }


def _is_open(read: SnapshotRead, looks: Mapping[Listed, int]) -> bool:
    return read.outcome is not Outcome.WHOLE and looks[read.listed] < LOOKS
