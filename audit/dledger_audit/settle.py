"""Distinguish what moved while the logs were read from what is damaged.

A manifest holds only for a moment. Retention removes segments, a restarted member knows a lower
committed index until it has a leader, and a healing member replaces its log. So every member is
asked again after the pass:

    its log begins later        what was removed meanwhile is not missed
    it has another `life`       if anything of it was missing or wrong, it is read once more, and
                                its new status shows whether its copies count and what it lacks;
                                if its life changes again meanwhile, it counts as not read: changed
    its new life ends earlier   what was not served above its new committed index is not missed;
                                other faults there are not read again: changed
    it does not answer          a file that seemed short counts as not served
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from dledger_audit.capture import Capture, change, shortfalls, unconfirmed
from dledger_audit.checks.continuity import continuity, spans
from dledger_audit.checks.electorate import Electorate, Held, is_counted
from dledger_audit.checks.findings import Run, check_name, finding, merged
from dledger_audit.checks.integrity import integrity
from dledger_audit.checks.table import DigestTable
from dledger_audit.passes import Passes
from dledger_audit.verdict import UNREADABLE, judge
from dledger_formats.audit import Finding, Verdict
from dledger_formats.http.status import Manifest
from dledger_formats.log import disk
from pyspark_dledger.digests import DIGEST_SCHEMA
from pyspark_dledger.layout import Flag
from pyspark_dledger.plan import in_order

AskAgain = Callable[[], Mapping[str, Manifest]]
"""Returns the present manifests of the members that answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What was read, with the manifests that describe it."""

    capture: Capture
    electorate: Electorate
    table: DigestTable
    first: Mapping[str, Manifest]
    """The first manifests of the same members, also of members that were read once more."""
    again: Mapping[str, Manifest]
    """The manifests of the members that answered once more, after the pass."""


def settle(passes: Passes, capture: Capture, ask_again: AskAgain) -> Settled:
    """Read the logs, ask the members again, and read once more what moved meanwhile."""
    first, electorate = capture.manifests, capture.electorate
    rows = passes.digests(capture.manifests, electorate.cuts)
    present = ask_again()
    troubled = _troubled(rows, capture.manifests, electorate.held)
    held, moved = dict(electorate.held), dict[str, Manifest]()
    for member, old in capture.manifests.items():
        new = present.get(member)
        if new is None:
            rows = _unserved(rows, member)
        elif new.life == old.life:
            begin = max(held[member].first, new.status.ledger_begin_index)
            held[member] = replace(held[member], first=begin)
            rows = rows.filter(
                pc.or_(
                    pc.not_equal(rows["member"], member),
                    pc.greater_equal(rows["last_index"], begin),
                )
            )
        elif member in troubled:
            moved[member] = _limited(new, old.status.committed_index)
    if moved:
        faults = _beyond(rows, capture.manifests, held, moved)
        held |= {member: held_by(manifest) for member, manifest in moved.items()}
        rows = pa.concat_tables([_without(rows, moved), passes.digests(moved, electorate.cuts)])
        restless = _restless(rows, moved, held, ask_again)
        rows = _without(rows, restless)
        manifests = {**capture.manifests, **moved}
        capture = replace(
            capture,
            manifests={m: each for m, each in manifests.items() if m not in restless},
            findings=(
                *(each for each in capture.findings if each.member not in moved),
                *(change(member, electorate.held[member]) for member in restless),
                *(each for each in faults if each.member not in restless),
            ),
        )
    highest = electorate.highest_index
    electorate = _restated(electorate, capture.manifests, held)
    short = shortfalls(capture.manifests, electorate, highest)
    again = [each for each in short if each.member in moved]
    return Settled(
        capture=replace(capture, findings=(*capture.findings, *again)),
        electorate=electorate,
        table=DigestTable.of(rows, tuple(electorate.held)),
        first={member: first[member] for member in capture.manifests},
        again=present,
    )


def held_by(manifest: Manifest) -> Held:
    """Return the range of entries that a member reports."""
    return Held(
        first=max(0, manifest.status.ledger_begin_index), last=manifest.status.committed_index
    )


def sizes_of(manifests: Mapping[str, Manifest]) -> dict[str, dict[int, int]]:
    """Return the sizes of each member's data files in bytes, by position."""
    return {
        member: {disk.start_offset(file.name): file.size_bytes for file in in_order(manifest.data)}
        for member, manifest in manifests.items()
    }


def ends_of(manifests: Mapping[str, Manifest]) -> dict[str, int]:
    """Return the position in bytes at which each member's readable entries end."""
    return {
        member: max(
            (
                disk.start_offset(file.name) + file.readable_bytes
                for file in in_order(manifest.data)
            ),
            default=0,
        )
        for member, manifest in manifests.items()
    }


def _restated(
    electorate: Electorate, manifests: Mapping[str, Manifest], held: Mapping[str, Held]
) -> Electorate:
    """Return the electorate by these manifests, with the same voters."""
    voters = electorate.voters & manifests.keys()
    return replace(
        electorate,
        held={member: held[member] for member in manifests},
        counted=frozenset(each for each in voters if is_counted(manifests[each].status)),
    )


def _beyond(
    rows: pa.Table,
    manifests: Mapping[str, Manifest],
    held: Mapping[str, Held],
    moved: Mapping[str, Manifest],
) -> list[Finding]:
    """Report faults of the first reading that are above the new committed indexes.

    A restarted member serves less than it reported at first, so what it did not serve is no fault.
    """
    first = {member: manifests[member] for member in moved}
    table = DigestTable.of(_only(rows, moved), tuple(first))
    runs = merged(
        [
            *integrity(table, ends_of(first)),
            *continuity(spans(table), {each: held[each] for each in moved}, sizes_of(first)),
        ]
    )
    found = []
    for member, manifest in moved.items():
        last = manifest.status.committed_index
        lost = [
            run for run in runs if run.member == member and run.last_index > last and _is_fault(run)
        ]
        if lost:
            low = max(last + 1, min(run.first_index for run in lost))
            high = max(run.last_index for run in lost)
            found.append(unconfirmed(member, sorted({run.check for run in lost}), low, high))
    return found


def _is_fault(run: Run) -> bool:
    """Return whether a run excludes the verdict Sound, other than by entries not served."""
    return run.check not in (UNREADABLE, check_name(Flag.SHORT_FILE)) and _is_wrong(run)


def _is_wrong(run: Run) -> bool:
    """Return whether a run excludes the verdict Sound."""
    return judge([finding(run, is_elsewhere=False)]) is not Verdict.SOUND


def _troubled(
    rows: pa.Table, manifests: Mapping[str, Manifest], held: Mapping[str, Held]
) -> set[str]:
    """Return the members of which anything is missing or wrong.

    An index file counts, too: a member that opens its log again serves none meanwhile.
    """
    table = DigestTable.of(rows, tuple(manifests))
    flagged = table.pick((table.flags & ~int(Flag.NO_CRC)) != 0)
    runs = merged(
        [
            *integrity(flagged, ends_of(manifests)),
            *continuity(spans(table), held, sizes_of(manifests)),
        ]
    )
    return {run.member for run in runs if _is_wrong(run)}


def _restless(
    rows: pa.Table,
    moved: Mapping[str, Manifest],
    held: Mapping[str, Held],
    ask_again: AskAgain,
) -> list[str]:
    """Return the members that are still troubled, and moved again."""
    troubled = _troubled(_only(rows, moved), moved, {member: held[member] for member in moved})
    if not troubled:
        return []
    present = ask_again()
    return sorted(
        member
        for member in troubled
        if member not in present or present[member].life != moved[member].life
    )


def _limited(manifest: Manifest, committed_index: int) -> Manifest:
    """Limit a manifest to the entries that the first one had."""
    lower = min(committed_index, manifest.status.committed_index)
    return replace(manifest, status=replace(manifest.status, committed_index=lower))


def _only(rows: pa.Table, members: Mapping[str, object]) -> pa.Table:
    return rows.filter(pc.is_in(rows["member"], pa.array(list(members), pa.string())))


def _without(rows: pa.Table, members: Mapping[str, object] | list[str]) -> pa.Table:
    listed = pa.array(list(members), pa.string())
    return rows.filter(pc.invert(pc.is_in(rows["member"], listed)))


def _unserved(rows: pa.Table, member: str) -> pa.Table:
    """Count files of a member that seemed short as not served."""
    is_short = pc.and_(
        pc.equal(rows["member"], member), pc.equal(rows["flags"], int(Flag.SHORT_FILE))
    )
    flags = pc.if_else(is_short, pa.scalar(int(Flag.UNREADABLE), pa.int32()), rows["flags"])
    return rows.set_column(DIGEST_SCHEMA.get_field_index("flags"), "flags", flags)
