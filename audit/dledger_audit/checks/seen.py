"""Keep what the first reading saw, where the second one does not show it.

Disputed pieces are read a second time, entry by entry, which may be hours later. A member that no
longer serves its copy, because it restarts or retention has removed the segment, is unknown there.
But members whose whole and intact copies had different digests held different entries, whatever
they serve later.

If a majority of the voters had one digest, the other members are named nevertheless: for the whole
piece, since it is not known which of its entries differ. Without such a majority, or if the copies
were read again and are equal now, the members' logs changed meanwhile.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dledger_audit.checks.agreement import READ_AGAIN, Outcome
from dledger_audit.checks.electorate import Electorate
from dledger_audit.verdict import CHANGED, DIVERGENCE

REASON: Final = "the first reading shows that some of them differ, the second one not which"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A piece of which whole copies differ by their digests."""

    kind: str
    """The check that reports a member which differs from a majority."""
    first_index: int
    last_index: int
    versions: Mapping[str, int]
    """The digest of each whole copy, by member."""


def unshown(
    differences: Sequence[Difference], outcomes: Sequence[Outcome], electorate: Electorate
) -> Iterator[Outcome]:
    """Yield an outcome for each difference that is in none of the second reading's outcomes.

    The differences are those of separate pieces, in order.
    """
    of_piece: list[list[Outcome]] = [[] for _ in differences]
    starts = [each.first_index for each in differences]
    for outcome in outcomes:
        at = bisect_right(starts, outcome.first_index) - 1
        if at >= 0 and outcome.first_index <= differences[at].last_index:
            of_piece[at].append(outcome)
    for difference, found in zip(differences, of_piece, strict=True):
        yield from _of_piece(difference, found, electorate)


def _of_piece(
    difference: Difference, outcomes: Sequence[Outcome], electorate: Electorate
) -> Iterator[Outcome]:
    first, last = difference.first_index, difference.last_index
    named = {each.member for each in outcomes if each.kind in DIVERGENCE}
    again = {
        member
        for each in outcomes
        if each.kind == READ_AGAIN
        for member in each.members.split(", ")
    }
    right = _of_majority(difference, electorate)
    if "" in named or (named and not right):
        return
    wrong = difference.versions.keys() - right if right else set[str]()
    # Copies that were read again were compared, so one that is not named equals the others now.
    kept = {member for member in wrong if member not in again or not again & right}
    for member in sorted(kept - named):
        yield Outcome(
            kind=difference.kind, first_index=first, last_index=last, member=member, reason=REASON
        )
    if not kept and not named:
        members = ", ".join(sorted(difference.versions))
        yield Outcome(kind=CHANGED, first_index=first, last_index=last, members=members)


def _of_majority(difference: Difference, electorate: Electorate) -> set[str]:
    """Return the members with the digest that a majority of the voters has; empty if none has."""
    versions = difference.versions
    votes = Counter(versions[member] for member in versions.keys() & electorate.counted)
    return {member for member, digest in versions.items() if votes[digest] >= electorate.majority}
