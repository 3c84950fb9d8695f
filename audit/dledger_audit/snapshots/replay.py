"""Replay the log between snapshots: a state and the entries after it give the next state.

Spark reduces the entries between two snapshots to what they do to each key. A roll begins with a
state, applies these changes, and compares the bytes with each snapshot on its way. The first roll
begins with the empty state if the log still has its first entry, or else with the oldest snapshot
that the log continues. Further rolls begin with the snapshots that it does not lead to, so that
they show which of these belong together.
"""

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from dledger_audit.snapshots.gathering import Gathered
from dledger_audit.snapshots.reading import Listed, Outcome
from dledger_audit.snapshots.registers import UNREADABLE, Register, is_register
from dledger_formats.http.status import Manifest
from pyspark_dledger.ranges import IndexRange

ROLLS_MAX: Final = 8
STATE_BYTES_MAX: Final = 64 << 20
"""Data of a snapshot that is replayed: 8 million keys of a register."""
ROLLED_KEYS_MAX: Final = 1 << 29
"""Keys of all states together that the driver computes, which takes it a minute."""
CHANGES_MAX: Final = 1 << 22
"""Changed keys of all steps together that the driver holds, at 28 bytes each."""


@dataclass(frozen=True, slots=True)
class Version:
    """The state at an index, as one or more members have it."""

    index: int
    digest: bytes
    holders: tuple[Listed, ...] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Chain:
    """Versions that the log leads to, one from the other."""

    root: Version | None
    """None for the empty state before the first entry."""
    versions: tuple[Version, ...]
    contradicted: tuple[Version, ...]
    """Versions that the log does not lead to from here."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What the replays show."""

    chains: tuple[Chain, ...] = ()
    skipped: str = ""
    """Why nothing was replayed, or not all, if that is because of the state's size or kind."""


class ReplayPass(Protocol):
    """Reads what a replay needs."""

    def changes(
        self, manifests: Mapping[str, Manifest], steps: Sequence[IndexRange], rows_max: int
    ) -> pa.Table | None:
        """Return what the entries of each step do, as one row of DELTA_SCHEMA per key and step.

        None if there are more than `rows_max`.
        """
        ...

    def data(self, listed: Listed) -> bytes | None:
        """Return the data of a snapshot; None if it can no longer be read."""
        ...


def replay(passes: ReplayPass, gathered: Gathered) -> Replayed:
    """Replay the log between the snapshots, if their state is a register."""
    versions = versions_of(gathered)
    if not versions:
        return Replayed()
    if not any(read.outcome is Outcome.WHOLE and is_register(read.head) for read in gathered.reads):
        return Replayed(skipped="this state machine is not replayed")
    largest = max(each.held.data_bytes for v in versions for each in v.holders)
    if largest > STATE_BYTES_MAX:
        return Replayed(skipped=f"a snapshot has more than {STATE_BYTES_MAX >> 20} MiB")
    steps = steps_of(versions, gathered.manifests)
    if not steps:
        return Replayed()
    changes = passes.changes(gathered.manifests, steps, CHANGES_MAX)
    if changes is None:
        return Replayed(skipped=f"the entries change more than {CHANGES_MAX:,} keys")
    budget = Budget(ROLLED_KEYS_MAX)
    chains = tuple(_chains(passes, versions, Changes.of(changes, steps), budget))
    skipped = f"the states on the way have more than {ROLLED_KEYS_MAX:,} keys in all"
    return Replayed(chains, skipped if budget.is_spent else "")


def versions_of(gathered: Gathered) -> list[Version]:
    """Return the different states that the members have, by index."""
    holders = defaultdict[tuple[int, bytes], list[Listed]](list)
    for read in gathered.reads:
        if read.outcome is Outcome.WHOLE:
            holders[read.listed.index, read.digest].append(read.listed)
    return [
        Version(index, digest, tuple(holders[index, digest])) for index, digest in sorted(holders)
    ]


def steps_of(versions: Sequence[Version], manifests: Mapping[str, Manifest]) -> list[IndexRange]:
    """Return the entries between the states, as far as the log has them, in order.

    If the log still has its first entry, it leads from the empty state to the first snapshot.
    """
    logs = [log.status for log in manifests.values() if log.status.committed_index >= 0]
    begin = min((max(0, log.ledger_begin_index) for log in logs), default=0)
    end = max((log.committed_index for log in logs), default=-1)
    edges = sorted({each.index for each in versions if begin - 1 <= each.index <= end})
    if begin == 0:
        edges = sorted({-1, *edges})
    return [IndexRange(first=low + 1, last=high) for low, high in itertools.pairwise(edges)]


@dataclass(slots=True)
class Budget:
    """Bounds the time of the driver."""

    keys_left: int

    @property
    def is_spent(self) -> bool:
        """Whether more keys were taken than there were."""
        return self.keys_left < 0

    def spend(self, keys: int) -> bool:
        """Take the keys of one state; return whether that many were left."""
        self.keys_left -= keys
        return not self.is_spent


@dataclass(frozen=True, slots=True)
class Changes:
    """What the entries of each step do to the keys."""

    steps: Sequence[IndexRange]
    bounds: Sequence[int]
    """Where the rows of each step begin, and where those of the last one end."""
    table: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, table: pa.Table, steps: Sequence[IndexRange]) -> "Changes":
        """Convert rows of DELTA_SCHEMA."""
        table = table.sort_by("step")
        columns = {name: table[name].to_numpy() for name in ("step", "key", "first", "value")}
        bounds = np.searchsorted(columns["step"], np.arange(len(steps) + 1)).tolist()
        return cls(steps, bounds, columns)

    def roll(self, state: Register, index: int, budget: Budget) -> Iterator[tuple[int, bytes]]:
        """Yield the index and the digest of each state after the one at an index.

        Stops once the budget is spent, or before a step with an unreadable entry.
        """
        for number, step in enumerate(self.steps):
            if step.first <= index:
                continue
            rows = slice(self.bounds[number], self.bounds[number + 1])
            keys, first = self.table["key"][rows], self.table["first"][rows]
            is_readable = not (first == UNREADABLE).any()
            if not is_readable or not budget.spend(len(state.keys) + len(keys)):
                return
            state = state.after(keys, first, self.table["value"][rows])
            yield step.last, hashlib.sha256(state.dump()).digest()


def _chains(
    passes: ReplayPass, versions: Sequence[Version], changes: Changes, budget: Budget
) -> Iterator[Chain]:
    """Roll from the empty state, and from each version that nothing led to."""
    first, last = changes.steps[0].first, changes.steps[-1].last
    open_ = [each for each in versions if first - 1 <= each.index < last]
    root: Version | None = None
    state: Register | None = Register.empty() if first == 0 else None
    for _ in range(ROLLS_MAX):
        while state is None and open_:
            root, *open_ = open_
            state = _state_of(passes, root)
        if state is None or budget.is_spent:
            return
        states = dict(changes.roll(state, root.index if root else -1, budget))
        led_to = [each for each in versions if states.get(each.index) == each.digest]
        yield Chain(
            root,
            tuple(led_to),
            tuple(each for each in versions if each.index in states and each not in led_to),
        )
        open_ = [each for each in open_ if each not in led_to]
        state = None


def _state_of(passes: ReplayPass, version: Version) -> Register | None:
    """Return the state of a version; None if no member has it any more, or it is no register."""
    for listed in version.holders:
        data = passes.data(listed)
        if data is not None and hashlib.sha256(data).digest() == version.digest:
            try:
                return Register.of(data)
            except ValueError:
                return None
    return None
