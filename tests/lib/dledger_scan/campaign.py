"""Plant faults in groups of three logs, one in each group, and audit them; audit sound groups, too.

    python -m dledger_scan.campaign --seed 7 --faults 1000 --sound 1000

Each history, the kind of the fault and its place follow from the seed and a number, so `--seed 7
--only 123` repeats one group. A fault is found if a finding names the member, the segment and the
entry. Faults of archives are planted and proven in the same way.
"""

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from dledger_audit.compaction.archive import Archive
from dledger_audit.compaction.proof.verify import Sources, verify
from dledger_compaction.faults import FAULTS, Sound
from dledger_compaction.model import key_history, naive
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.log import disk, memberships
from dledger_logs import damage
from dledger_logs.histories import history, register_history, small_shape, with_membership
from dledger_logs.layout import Log, manifest
from dledger_logs.write import Entry, Shape, write_log
from dledger_scan.local_audit import local_audit

MEMBERS: Final = ("n0", "n1", "n2")
TOMBSTONE_ENTRIES: Final = 60
NO_PLACE: Final = "no place"
HISTORIES_MAX: Final = 20
"""Number of histories that are tried for a kind of fault that few have a place for."""
UNIT_FIELDS: Final = {"magic": 3, "pos": 11, "size": 15, "index": 23, "term": 31}
"""The lowest byte of each field of an index unit."""

Places: TypeAlias = tuple[int, int]
Logs: TypeAlias = dict[str, Log]


@dataclass(frozen=True, slots=True)
class Fault:
    """A planted fault: its member, and the entries of which a finding must name one."""

    member: str
    first_index: int
    last_index: int
    segment: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fault is to be planted."""

    member: str
    index: int
    rng: random.Random


Spoil: TypeAlias = Callable[[Log, Place], Places]
"""Damages the files of a member; returns the first and the last entry that are wrong."""
Change: TypeAlias = Callable[[Entry, random.Random], Entry]
"""Returns the entry that one member has instead, with right checksums."""


def _header(field: str) -> Spoil:
    def spoil(log: Log, place: Place) -> Places:
        size = damage.HEADER_FIELDS[field][1]
        damage.flip_header(log, place.index, field, place.rng.randrange(8 * size))
        return place.index, place.index

    return spoil


def _unit(field: str) -> Spoil:
    def spoil(log: Log, place: Place) -> Places:
        damage.flip_unit(log, place.index, UNIT_FIELDS[field], 1 << place.rng.randrange(8))
        return place.index, place.index

    return spoil


def _body(where: Callable[[int, random.Random], int]) -> Spoil:
    def spoil(log: Log, place: Place) -> Places:
        size = log.place(place.index).size - disk.ENTRY_HEADER_SIZE
        at = where(size, place.rng)
        damage.flip_body(log, place.index, at, 1 << place.rng.randrange(8))
        return place.index, place.index

    return spoil


def _zeroed(entries: int, *, skip: bool = False) -> Spoil:
    def spoil(log: Log, place: Place) -> Places:
        held = log.places_in(log.place(place.index).segment)
        last = min(held[-1].index, place.index + entries - 1)
        size = log.place(place.index).size
        damage.zero(log, place.index, last, skip=place.rng.randrange(1, size - 4) if skip else 0)
        return place.index, last

    return spoil


def _cut(log: Log, place: Place) -> Places:
    damage.truncate(log, place.index)
    return place.index, log.places_in(log.place(place.index).segment)[-1].index


def _overwritten(log: Log, place: Place) -> Places:
    """Write the bytes of another entry, with its own right checksums, over this one."""
    other = place.index - 1
    at, raw = log.place(place.index), log.entry_bytes(other)
    damage.overwrite(log.data_path(at.segment), at.offset, raw[: at.size])
    return place.index, place.index


def _noise(log: Log, place: Place) -> Places:
    at = log.place(place.index)
    damage.overwrite(log.data_path(at.segment), at.offset, place.rng.randbytes(at.size))
    return place.index, place.index


def _without_body_crc(log: Log, place: Place) -> Places:
    at = log.place(place.index)
    start = at.offset + damage.HEADER_FIELDS["body_crc"][0]
    damage.overwrite(log.data_path(at.segment), start, bytes(4))
    return place.index, place.index


SPOILS: Final[Mapping[str, Spoil]] = {
    **{f"a bit of {field} in a header": _header(field) for field in damage.HEADER_FIELDS},
    **{f"a bit of {field} in an index unit": _unit(field) for field in UNIT_FIELDS},
    "a bit of a body's first byte": _body(lambda size, _: 0),
    "a bit of a body's last byte": _body(lambda size, _: size - 1),
    "a bit within a body": _body(lambda size, rng: rng.randrange(size)),
    "an entry of zeros": _zeroed(1),
    "entries of zeros": _zeroed(5),
    "zeros from the middle of an entry": _zeroed(1, skip=True),
    "a file that was cut short": _cut,
    "an entry over another": _overwritten,
    "noise": _noise,
    "a checksum of zero": _without_body_crc,
}

CHANGES: Final[Mapping[str, Change]] = {
    "another body": lambda entry, rng: replace(entry, body=rng.randbytes(len(entry.body))),
    "a longer body": lambda entry, _: replace(entry, body=entry.body + b"!"),
    "a shorter body": lambda entry, _: replace(entry, body=entry.body[:-1]),
    "an empty body": lambda entry, _: replace(entry, body=b""),
    "another channel": lambda entry, _: replace(entry, channel=entry.channel ^ 5),
    "a no-op instead": lambda entry, _: replace(entry, body=b"", magic=disk.NOOP),
    "a no-op with a body": lambda entry, _: replace(entry, magic=disk.NOOP),
    "a membership that nobody made": lambda entry, _: replace(
        entry, magic=disk.NOOP, channel=memberships.MEMBERSHIP_CHANNEL,
        body=memberships.encode(MEMBERS, ()),
    ),
    "a membership that cannot be read": lambda entry, _: replace(
        entry, magic=disk.NOOP, channel=memberships.MEMBERSHIP_CHANNEL
    ),
    "a magic that nobody knows": lambda entry, _: replace(entry, magic=disk.NORMAL + 77),
    "no checksum": lambda entry, _: replace(entry, is_covered=False),
    "an earlier term": lambda entry, _: replace(entry, term=entry.term - 1),
    "a later term": lambda entry, _: replace(entry, term=entry.term + 1),
}  # fmt: skip


def made(folder: Path, entries: Mapping[str, Sequence[Entry]], shape: Shape) -> Logs:
    """Write the logs of a group."""
    return {member: write_log(folder / member, entries[member], shape) for member in MEMBERS}


def written(rng: random.Random) -> tuple[list[Entry], Shape]:
    """Return a history and a shape."""
    count, seed = rng.randrange(150, 500), rng.randrange(1 << 30)
    make = rng.choice([history, register_history])
    entries = make(count, seed=seed)
    if rng.random() < 0.5:
        at = rng.choice([n for n in range(1, count) if entries[n].magic == disk.NORMAL])
        entries = with_membership(entries, at, MEMBERS)
    return entries, small_shape(rng.choice([4096, 8192]))


def usual(entries: Sequence[Entry], rng: random.Random) -> int:
    """Choose a usual entry with a body, after the first ones."""
    return rng.choice(
        [n for n, each in enumerate(entries) if n > 1 and each.magic == disk.NORMAL
         and len(each.body) > 4 and each.channel == 0]
    )  # fmt: skip


def planted(kind: str, folder: Path, rng: random.Random) -> tuple[Logs, Fault]:
    """Write a group with one fault."""
    entries, shape = written(rng)
    place = Place(rng.choice(MEMBERS), usual(entries, rng), rng)
    if kind in SPOILS:
        logs = made(folder, dict.fromkeys(MEMBERS, entries), shape)
        first, last = SPOILS[kind](logs[place.member], place)
    else:
        changed = list(entries)
        changed[place.index] = CHANGES[kind](entries[place.index], rng)
        logs = made(folder, dict.fromkeys(MEMBERS, entries) | {place.member: changed}, shape)
        first = last = place.index
    segment = logs[place.member].place(first).segment
    return logs, Fault(place.member, first, last, segment)


def is_named(summary: AuditSummary, fault: Fault) -> bool:
    """Return whether a finding above info names the member, the entry, and the segment if any."""
    return any(
        each.severity != "info"
        and each.member == fault.member
        and each.first_index <= fault.last_index
        and fault.first_index <= each.last_index
        and each.segment in ("", fault.segment)
        for each in summary.first_findings
    )


def archive_fault(kind: str, folder: Path, rng: random.Random) -> str:
    """Plant a fault in an archive; return what is wrong with the proof, or an empty text."""
    shape = small_shape()
    entries = key_history(300, rng.randrange(1 << 30), keys=25)
    sources = copies_of({"n0": write_log(folder / "n0", entries, shape)})
    archive = compacted(sources, folder / "a", tombstone_entries=TOMBSTONE_ENTRIES)
    if archive is None:
        return "no archive was made"
    kept = naive(entries, archive.info.clean_index, TOMBSTONE_ENTRIES)
    sound = Sound(archive=archive, source=entries, kept=kept, shape=shape)
    path = folder / "b"
    shutil.copytree(archive.path, path)
    check, plant = FAULTS[kind]
    try:
        index = plant(sound, path, rng)
    except IndexError:  # this history has no place for this kind
        return NO_PLACE
    loaded = Archive.load(path)
    if loaded is None:
        return "the archive is gone"
    found = verify(loaded, Sources(members=sources))
    named = [(each.check, each.index) for each in found.first]
    is_right = check in found.counts if index is None else (check, index) in named
    return "" if found.is_damaged and is_right else f"wanted {check} at {index}, found {named}"


KINDS: Final = (*SPOILS, *CHANGES, *(f"archive: {each}" for each in FAULTS))


def fault(number: int, seed: int) -> tuple[str, str]:
    """Plant and look for one fault; return its kind, and what was wrong."""
    kind, rng = KINDS[number % len(KINDS)], random.Random(f"fault {seed} {number}")
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        if kind.startswith("archive: "):
            for turn in range(HISTORIES_MAX):
                own = Path(folder) / str(turn)
                wrong = archive_fault(kind.removeprefix("archive: "), own, rng)
                if wrong != NO_PLACE:
                    break
            return kind, wrong
        logs, planted_fault = planted(kind, Path(folder), rng)
        summary = local_audit(logs)
    if is_named(summary, planted_fault):
        return kind, ""
    return kind, f"{planted_fault} is not among {summary.first_findings}"


def sound(number: int, seed: int) -> str:
    """Audit a sound group; return the findings, or an empty text.

    Members may have different segments, fronts, ends and tails that are not committed.
    """
    rng = random.Random(f"sound {seed} {number}")
    entries, shape = written(rng)
    uncommitted = {
        member: [*entries, *history(rng.randrange(9), seed=rng.randrange(1 << 30))]
        for member in MEMBERS
    }
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        ends = {member: rng.randrange(len(entries) // 2, len(entries)) for member in MEMBERS}
        ends[rng.choice(MEMBERS)] = len(entries) - 1
        tails = {
            member: [replace(each, term=max(each.term, entries[-1].term)) for each in tail]
            for member, tail in uncommitted.items()
        }
        logs = made(Path(folder), tails, replace(shape, has_checksums=rng.random() < 0.9))
        says = {
            member: manifest(log, member, peers=logs, committed_index=ends[member])
            for member, log in logs.items()
        }
        summary = local_audit(logs, says)
    above = [each for each in summary.first_findings if each.severity != "info"]
    if summary.verdict is Verdict.SOUND and not above:
        return ""
    return f"{summary.verdict}: {above or summary.first_findings}"


def told(number: int, what: str) -> None:
    """Print the progress of the campaign."""
    if number and number % 100 == 0:
        print(f"{number} {what}", file=sys.stderr)


def main() -> int:
    """Run the campaign; return 1 if something was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--sound", type=int, default=0)
    parser.add_argument("--only", type=int, help="plant only the fault, or audit the group, of it")
    chosen = parser.parse_args()
    missed, false, kinds = Counter[str](), 0, Counter[str]()
    for number in range(chosen.faults):
        if chosen.only in (None, number):
            told(number, "faults")
            kind, wrong = fault(number, chosen.seed)
            kinds[kind] += 1
            if wrong:
                missed[kind] += 1
                print(f"fault {number}, {kind}: {wrong}")
    for number in range(chosen.sound):
        told(number, "sound groups")
        if chosen.only in (None, number) and (wrong := sound(number, chosen.seed)):
            false += 1
            print(f"sound group {number}: {wrong}")
    print(
        f"{kinds.total()} faults of {len(kinds)} kinds, {missed.total()} not found "
        f"({dict(missed)}); {chosen.sound} sound groups, {false} with findings above info"
    )
    return 1 if missed or false else 0


if __name__ == "__main__":
    sys.exit(main())
