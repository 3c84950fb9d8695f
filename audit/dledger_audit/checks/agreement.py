"""Compare the entries of one disputed piece among all members that hold it.

Damaged entries do not count as copies, since their bytes are not what was written. A finding names
a member only if a majority of the voters holds a different version; otherwise the audit cannot say
which version is right.

An entry's chain CRC covers the headers of all entries before it. Where chain CRCs begin to differ
although the entries agree, the members' histories before that entry differ.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from dledger_audit.checks.electorate import Electorate
from dledger_audit.verdict import HISTORY, MINORITY, NO_MAJORITY, TOO_FEW_COPIES
from pyspark_dledger.digests import Words
from pyspark_dledger.layout import DAMAGED, Bools, Flag, Longs

WEAK: Final = "weak"
"""The kind of an `Outcome` that is no finding: the entries are not intact on a majority."""
READ_AGAIN: Final = "read_again"
"""The kind of an `Outcome` that is no finding: these members' copies of the piece were read intact.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """Consecutive entries of one member, as `pyspark_dledger.packs` describes them."""

    segment: int
    first_index: int
    flags: npt.NDArray[np.int32]
    identities: Words
    chains: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run of entries with one result."""

    kind: str
    first_index: int
    last_index: int
    member: str = ""
    segment: int = -1
    members: str = ""
    """The members that hold different versions, if no version is a majority's; for `READ_AGAIN`,
    those that were read.
    """
    reason: str = ""
    """How it is known, if not from the comparison entry by entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copies:
    """The copies of a piece, a row per member."""

    members: tuple[str, ...]
    votes: npt.NDArray[np.bool_]
    """Whose copies count; one column."""
    first_index: int
    segment: Longs
    intact: npt.NDArray[np.bool_]
    unreadable: npt.NDArray[np.bool_]
    identity: Words
    chain: Words


def agreement(
    packs: Mapping[str, Sequence[Pack]],
    first_index: int,
    last_index: int,
    electorate: Electorate,
    *,
    is_fresh: bool,
    has_differed: bool,
) -> Iterator[Outcome]:
    """Yield the outcomes of the piece with these indexes, given all packs of it by member.

    `is_fresh` says that the chain CRCs before the piece do not differ, `has_differed` that whole
    copies of it did in the first reading: then `READ_AGAIN` names the members with intact copies.
    """
    copies = _copies(packs, first_index, last_index, electorate)
    if copies is None:
        return
    alike, split = _versions(copies.identity, copies.intact, copies.votes)
    most = (alike * copies.votes).max(axis=0)
    is_decided = most >= electorate.majority
    yield from _of_members(copies, MINORITY, copies.intact & (alike < most) & is_decided)
    yield from _without_majority(copies, split & ~is_decided)
    yield from _histories(copies, electorate, ~split, is_fresh=is_fresh)
    known = copies.intact | ~copies.unreadable
    unknown = len(electorate.voters) - (known & copies.votes).sum(axis=0)
    held = (copies.intact & copies.votes).sum(axis=0)
    for kind, chosen in (
        (TOO_FEW_COPIES, held + unknown < electorate.majority),
        (WEAK, ~is_decided),
    ):
        for first, last in _runs(chosen):
            yield _outcome(copies, kind, first, last)
    whole = np.flatnonzero(copies.intact.all(axis=1)).tolist()
    if has_differed and whole:
        members = ", ".join(sorted(copies.members[row] for row in whole))
        yield _outcome(copies, READ_AGAIN, 0, last_index - first_index, members=members)


def _copies(
    packs: Mapping[str, Sequence[Pack]], first: int, last: int, electorate: Electorate
) -> _Copies | None:
    """Align the packs; only members that should hold the piece take part."""
    members = tuple(
        member
        for member, held in electorate.held.items()
        if held.first <= first and last <= held.last
    )
    if not members:
        return None
    shape = (len(members), last + 1 - first)
    segment = np.full(shape, -1, np.int64)
    intact, unreadable = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    identity, chain = np.zeros(shape, np.uint64), np.zeros(shape, np.uint64)
    for row, member in enumerate(members):
        for pack in packs.get(member, ()):
            at = slice(pack.first_index - first, pack.first_index - first + len(pack.flags))
            segment[row, at] = pack.segment
            intact[row, at] = (pack.flags & int(DAMAGED)) == 0
            unreadable[row, at] = (pack.flags & int(Flag.UNREADABLE)) != 0
            identity[row, at], chain[row, at] = pack.identities, pack.chains
    return _Copies(
        members=members,
        votes=np.array([[member in electorate.counted] for member in members], np.bool_),
        first_index=first,
        segment=segment,
        intact=intact,
        unreadable=unreadable,
        identity=identity,
        chain=chain,
    )


def _versions(
    values: Words, among: npt.NDArray[np.bool_], votes: npt.NDArray[np.bool_]
) -> tuple[Longs, Bools]:
    """Count the votes for each value; also return where the values are not all equal."""
    alike = np.zeros(values.shape, np.int64)
    split = np.zeros(values.shape[1], np.bool_)
    for row in range(len(values)):
        same = among & among[row] & (values == values[row])
        alike[row] = (same & votes).sum(axis=0)
        split |= (among & among[row] & (values != values[row])).any(axis=0)
    return alike, split


def _histories(
    copies: _Copies, electorate: Electorate, agrees: Bools, *, is_fresh: bool
) -> Iterator[Outcome]:
    """Yield where chain CRCs begin to differ although the entries agree."""
    covered = copies.intact & (copies.chain != 0)
    alike, split = _versions(copies.chain, covered, copies.votes)
    begins = split & ~np.concatenate(([not is_fresh], split[:-1])) & agrees
    most = (alike * copies.votes).max(axis=0)
    is_decided = most >= electorate.majority
    yield from _of_members(copies, HISTORY, covered & (alike < most) & begins & is_decided)
    for first, last in _runs(begins & ~is_decided):
        yield _outcome(copies, HISTORY, first, last, members=_holders(copies, covered, first))


def _of_members(copies: _Copies, kind: str, chosen: npt.NDArray[np.bool_]) -> Iterator[Outcome]:
    for row, member in enumerate(copies.members):
        for first, last in _runs(chosen[row]):
            segment = int(copies.segment[row, first])
            yield _outcome(copies, kind, first, last, member=member, segment=segment)


def _without_majority(copies: _Copies, chosen: Bools) -> Iterator[Outcome]:
    for first, last in _runs(chosen):
        members = _holders(copies, copies.intact, first)
        yield _outcome(copies, NO_MAJORITY, first, last, members=members)


def _holders(copies: _Copies, among: npt.NDArray[np.bool_], at: int) -> str:
    return ", ".join(sorted(np.array(copies.members)[among[:, at]].tolist()))


def _outcome(copies: _Copies, kind: str, first: int, last: int, **fields: object) -> Outcome:
    return Outcome(
        kind=kind,
        first_index=copies.first_index + first,
        last_index=copies.first_index + last,
        **fields,  # type: ignore[arg-type]
    )


def _runs(chosen: Bools) -> list[tuple[int, int]]:
    """Return the first and the last position of each run of true elements."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], chosen, [False])).astype(np.int8)))
    pairs: list[tuple[int, int]] = [
        (int(first), int(end) - 1) for first, end in edges.reshape(-1, 2)
    ]
    return pairs
