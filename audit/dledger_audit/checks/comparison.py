"""Compare the pieces of all members by their digests.

A piece is a range of at most 4096 indexes which each member should hold as a whole or not at all
(`pyspark_dledger.digests`). Where the members that hold a piece whole agree, their copies are
counted here. Every other piece is *disputed*, and compared entry by entry (`agreement`).

Each member counts only up to its own committed index, so one that lags does not keep the others
from being compared. A voter that was not read, that has not committed an entry or that has removed
it might hold it: the voter counts as *unknown*, neither as a copy nor as a missing one.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dledger_audit.checks.electorate import Electorate
from dledger_audit.checks.findings import Run, run_of
from dledger_audit.checks.seen import Difference
from dledger_audit.checks.table import DigestTable
from dledger_audit.verdict import CRITICAL, HISTORY, MINORITY, TOO_FEW_COPIES
from pyspark_dledger.digests import PIECE_BITS
from pyspark_dledger.layout import DAMAGED, Bools, Flag, Longs

Grid = npt.NDArray[np.int64]
Range = tuple[int, int]
"""First and last index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result for all pieces that are not disputed, and the list of those that are."""

    too_few: list[Run]
    weak: list[Range]
    """Entries that were not read intact, and equal, from a majority of the voters."""
    disputed: list[Range]
    fresh: frozenset[int]
    """First indexes of the disputed pieces before which the members' chain CRCs do not differ."""
    differing: list[Range]
    """The disputed pieces of which whole copies, or their chains, differ."""
    differences: list[Difference]
    """What differs in those pieces, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pieces:
    """The pieces of which anything was read, in order; grids have a row per member."""

    start: Longs
    end: Longs
    expected: npt.NDArray[np.bool_]
    count: Grid
    unreadable: Grid
    digest: Grid
    chain: Grid
    covered: Grid


def compare(table: DigestTable, electorate: Electorate) -> Comparison:
    """Compare all pieces."""
    pieces = _pieces(table, electorate)
    whole = pieces.expected & (pieces.count == pieces.end - pieces.start)
    chained = whole & (pieces.covered == pieces.end - pieces.start)
    splits = _differ(whole, pieces.digest)
    chains_split = _differ(whole & (pieces.covered > 0), pieces.chain) | _differ(
        whole & (pieces.covered > 0), pieces.covered
    )
    partly = pieces.expected & ~whole & ((pieces.count > 0) | _is_mixed(pieces))
    # A chain CRC covers everything before, so chains that differ once differ from then on.
    split_before = np.concatenate(([False], np.logical_or.accumulate(chains_split)[:-1]))
    chains_begin = chains_split & ~split_before
    disputed = splits | partly.any(axis=0) | chains_begin
    counted = np.array([[member in electorate.counted] for member in table.members], np.bool_)
    counted = counted.reshape(len(table.members), 1)
    intact = (whole & counted).sum(axis=0)
    lost = pieces.count + pieces.unreadable < pieces.end - pieces.start
    missing = (pieces.expected & counted & lost).sum(axis=0)
    unknown = len(electorate.voters) - intact - missing
    too_few = ~disputed & (intact + unknown < electorate.majority)
    weak = ~disputed & (intact < electorate.majority)
    gaps, weak_gaps = _unread(pieces, electorate)
    return Comparison(
        too_few=[
            run_of(TOO_FEW_COPIES, CRITICAL, first, last)
            for first, last in sorted([*_ranges(pieces, too_few), *gaps])
        ],
        weak=sorted([*_ranges(pieces, weak), *weak_gaps]),
        disputed=_ranges(pieces, disputed),
        fresh=frozenset(pieces.start[disputed & ~split_before].tolist()),
        differing=_ranges(pieces, splits | chains_begin),
        differences=sorted(
            [
                *_differences(table, pieces, MINORITY, whole, pieces.digest, splits),
                *_differences(
                    table, pieces, HISTORY, chained, pieces.chain, chains_begin & ~splits
                ),
            ],
            key=lambda each: each.first_index,
        ),
    )


def _pieces(table: DigestTable, electorate: Electorate) -> _Pieces:
    cuts = np.array(electorate.cuts, np.int64)
    starts = table.first_index >> PIECE_BITS << PIECE_BITS
    if len(cuts):
        before = np.searchsorted(cuts, table.first_index, "right") - 1
        starts = np.where(before >= 0, np.maximum(starts, cuts[before]), starts)
    start, piece = np.unique(starts, return_inverse=True)
    end = ((start >> PIECE_BITS) + 1) << PIECE_BITS
    if len(cuts):
        after = np.append(cuts, np.iinfo(np.int64).max)[np.searchsorted(cuts, start, "right")]
        end = np.minimum(end, after)
    shape = (len(table.members), len(start))
    grids = {name: np.zeros(shape, np.int64) for name in ("count", "unreadable", "covered")}
    marks = {name: np.zeros(shape, np.int64) for name in ("digest", "chain")}
    intact = ~table.has(DAMAGED)
    at = (table.member[intact], piece[intact])
    np.add.at(grids["count"], at, table.entries[intact])
    np.add.at(grids["covered"], at, table.covered[intact])
    np.bitwise_xor.at(marks["digest"], at, table.digest[intact])
    np.bitwise_xor.at(marks["chain"], at, table.chain_digest[intact])
    unread = table.has(Flag.UNREADABLE)
    np.add.at(grids["unreadable"], (table.member[unread], piece[unread]), table.entries[unread])
    expected = np.zeros(shape, np.bool_)
    for number, member in enumerate(table.members):
        held = electorate.held[member]
        expected[number] = (held.first <= start) & (end - 1 <= held.last)
    return _Pieces(start=start, end=end, expected=expected, **grids, **marks)


def _is_mixed(pieces: _Pieces) -> Bools:
    """Return where a member did not serve some of a piece, but served the rest."""
    mixed: Bools = (pieces.unreadable > 0) & (pieces.unreadable < pieces.end - pieces.start)
    return mixed


def _differ(among: npt.NDArray[np.bool_], values: Grid) -> Bools:
    """Return in which columns the chosen values are not all equal."""
    low = np.where(among, values, np.iinfo(np.int64).max).min(axis=0, initial=2**63 - 1)
    high = np.where(among, values, np.iinfo(np.int64).min).max(axis=0, initial=-(2**63))
    differ: Bools = (low != high) & (among.sum(axis=0) > 1)
    return differ


def _differences(
    table: DigestTable,
    pieces: _Pieces,
    kind: str,
    among: npt.NDArray[np.bool_],
    values: Grid,
    chosen: Bools,
) -> Iterator[Difference]:
    """Yield the chosen pieces that have different values on the members in `among`."""
    for piece in np.flatnonzero(_differ(among, values) & chosen).tolist():
        yield Difference(
            kind=kind,
            first_index=int(pieces.start[piece]),
            last_index=int(pieces.end[piece]) - 1,
            versions={
                table.members[row]: int(values[row, piece])
                for row in np.flatnonzero(among[:, piece]).tolist()
            },
        )


def _ranges(pieces: _Pieces, chosen: Bools) -> list[Range]:
    """Join consecutive chosen pieces."""
    joined: list[Range] = []
    pairs = zip(pieces.start[chosen].tolist(), pieces.end[chosen].tolist(), strict=True)
    for start, end in pairs:
        if joined and joined[-1][1] + 1 == start:
            joined[-1] = (joined[-1][0], end - 1)
        else:
            joined.append((start, end - 1))
    return joined


def _unread(pieces: _Pieces, electorate: Electorate) -> tuple[list[Range], list[Range]]:
    """Return the ranges that no digest covers: those that too few voters can hold, and all."""
    lost, weak = [], []
    for first, last in _holes(pieces, electorate):
        holders = [
            member
            for member, held in electorate.held.items()
            if held.first <= first and last <= held.last
        ]
        if not holders:
            continue
        weak.append((first, last))
        missing = len(electorate.counted.intersection(holders))
        if len(electorate.voters) - missing < electorate.majority:
            lost.append((first, last))
    return lost, weak


def _holes(pieces: _Pieces, electorate: Electorate) -> Iterator[Range]:
    """Yield the ranges between the pieces, divided at the cuts."""
    cuts = electorate.cuts
    if not cuts:
        return
    ends = [cuts[0], *pieces.end.tolist()]
    starts = [*pieces.start.tolist(), cuts[-1]]
    for first, end in zip(ends, starts, strict=True):
        edges = [first, *(cut for cut in cuts if first < cut < end), end]
        for low, high in itertools.pairwise(edges):
            if low < high:
                yield low, high - 1
