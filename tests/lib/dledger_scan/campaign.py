"""Plant faults in groups of three logs, one in each group, and audit them; audit sound groups, too.

    python -m dledger_scan.campaign --seed 7 --faults 1000 --sound 1000

Each history, the kind of the fault and its place follow from the seed and a number, so `--seed 7
--only 123` repeats one group. Half of the faults are at the first or the last entry of a segment or
of the log. A fault is found if a finding names the member, the segment, and the entries and at most
one more, and the verdict is not Sound; only a wrong index unit, which a restart mends, may leave it
Sound. Faults of archives are planted and proven in the same way, each at one place.
"""

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from dledger_audit.compaction.archive import Archive
from dledger_audit.compaction.proof.verify import Sources, verify
from dledger_compaction.faults import FAULTS, Sound
from dledger_compaction.model import key_history, naive
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.audit import Finding, Verdict
from dledger_formats.http.status import Manifest
from dledger_formats.log import disk
from dledger_logs import damage
from dledger_logs.fronts import by_rule, with_retention
from dledger_logs.histories import history, register_history, small_shape, with_membership
from dledger_logs.layout import Log, manifest
from dledger_logs.write import Entry, Shape, write_log
from dledger_scan.local_audit import local_audit
from dledger_scan.log_faults import CHANGES, SPOILS, VOTERS, Place, fits

LEARNER: Final = "n3"
TOMBSTONE_ENTRIES: Final = 60
NO_PLACE: Final = "no place"
HISTORIES_MAX: Final = 20
"""Number of histories that are tried for a kind of fault that few have a place for."""

Logs: TypeAlias = dict[str, Log]


@dataclass(frozen=True, slots=True)
class Fault:
    """A planted fault: its member, its segment, and the entries that are wrong."""

    member: str
    first_index: int
    last_index: int
    segment: str


def made(folder: Path, entries: Mapping[str, Sequence[Entry]], shape: Shape) -> Logs:
    """Write the logs of a group."""
    return {member: write_log(folder / member, each, shape) for member, each in entries.items()}


def written(rng: random.Random) -> tuple[list[Entry], Shape]:
    """Return a history and a shape."""
    count, seed = rng.randrange(150, 500), rng.randrange(1 << 30)
    make = rng.choice([history, register_history])
    entries = make(count, seed=seed)
    if rng.random() < 0.5:
        at = rng.choice([n for n in range(1, count) if entries[n].magic == disk.NORMAL])
        entries = with_membership(entries, at, VOTERS)
    return entries, small_shape(rng.choice([4096, 8192]))


def chosen_index(kind: str, log: Log, entries: Sequence[Entry], rng: random.Random) -> int:
    """Choose an entry: a usual one, or one at an edge of the log or of a segment."""
    usual = [index for index, each in enumerate(entries) if fits(kind, index, each)]
    edges = [places[end].index for name in log.segments for places in [log.places_in(name)]
             for end in (0, -1)]  # fmt: skip
    fitting = [index for index in edges if index in usual]
    return rng.choice(fitting if fitting and rng.random() < 0.5 else usual)


def planted(kind: str, folder: Path, rng: random.Random) -> tuple[Logs, Fault]:
    """Write a group with one fault."""
    entries, shape = written(rng)
    logs = made(folder, dict.fromkeys(VOTERS, entries), shape)
    member = rng.choice(VOTERS)
    place = Place(member, chosen_index(kind, logs[member], entries, rng), rng)
    if kind in SPOILS:
        first, last = SPOILS[kind](logs[member], place)
    else:
        changed = list(entries)
        changed[place.index] = CHANGES[kind](entries[place.index], rng)
        logs[member] = write_log(folder / "changed", changed, shape)
        first = last = place.index
    return logs, Fault(member, first, last, logs[member].place(first).segment)


def is_named(findings: Sequence[Finding], fault: Fault) -> bool:
    """Return whether a finding above info names the member, the segment and the entries."""
    return any(
        each.severity != "info"
        and each.member == fault.member
        and each.segment == fault.segment
        and each.first_index <= fault.last_index
        and fault.first_index <= each.last_index
        and each.last_index - each.first_index <= fault.last_index - fault.first_index + 1
        for each in findings
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
    if not is_named(summary.first_findings, planted_fault):
        return kind, f"{planted_fault} is not among {summary.first_findings}"
    if summary.verdict is Verdict.SOUND and not kind.endswith("in an index unit"):
        return kind, f"{planted_fault} leaves the verdict Sound"
    return kind, ""


def sound(number: int, seed: int) -> str:
    """Audit a sound group; return the findings, or an empty text.

    The members' logs may have different ends, tails that are not committed, and fronts that
    retention removed. All have segments of one size, as members of one group do. There may be a
    learner, and all entries may lack checksums.
    """
    rng = random.Random(f"sound {seed} {number}")
    entries, shape = written(rng)
    members = [*VOTERS, LEARNER] if rng.random() < 0.5 else VOTERS
    ends = {member: rng.randrange(len(entries) // 2, len(entries)) for member in members}
    ends[rng.choice(VOTERS)] = len(entries) - 1
    tails = {
        member: [
            replace(each, term=max(each.term, entries[-1].term))
            for each in history(rng.randrange(9), seed=rng.randrange(1 << 30))
        ]
        for member in members
    }
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        logs = made(
            Path(folder),
            {member: [*entries, *tails[member]] for member in members},
            replace(shape, has_checksums=rng.random() < 0.9),
        )
        if rng.random() < 0.5:
            logs = {member: _without_front(log, ends[member], rng) for member, log in logs.items()}
        says = {member: _says(logs, member, ends[member]) for member in members}
        summary = local_audit(logs, says)
    above = [each for each in summary.first_findings if each.severity != "info"]
    if summary.verdict is Verdict.SOUND and not above:
        return ""
    return f"{summary.verdict}: {above or summary.first_findings}"


def _without_front(log: Log, end: int, rng: random.Random) -> Log:
    """Remove some or none of the segments before the one with the last committed entry."""
    sealed = [name for name in log.segments if log.places_in(name)[-1].index < end]
    return damage.remove_front(log, rng.randrange(len(sealed) + 1))


def _says(logs: Logs, member: str, end: int) -> Manifest:
    """Return the manifest of a member, which explains its front."""
    served = manifest(logs[member], member, peers=VOTERS, committed_index=end)
    learners = [LEARNER] if LEARNER in logs else []
    status = replace(served.status, voters=list(VOTERS), learners=learners)
    begin = logs[member].first_index
    return with_retention(
        replace(served, status=status), *([by_rule(0, begin - 1)] if begin else [])
    )


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
