"""Each entry once and in order, from the first copy that has it intact."""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np

from dledger_formats.log import disk
from pyspark_dledger import plan
from pyspark_dledger.copies import Copy, RefusedError
from pyspark_dledger.decode import Entries
from pyspark_dledger.files import Files
from pyspark_dledger.layout import Flag
from pyspark_dledger.ranges import IndexRange
from pyspark_dledger.segments import WINDOW_BYTES, Run, Scan, scan

HARMLESS: Final = Flag.NO_CRC | Flag.INDEX_FILE_DIFFERS | Flag.BAD_BLANK
"""Flags of entries that are as they were written."""

FEW_ENTRIES: Final = 256
SMALL_WINDOW_BYTES: Final = 5 << 20
"""Bytes that are read at a time for so few entries: enough for the largest entry."""


class NoIntactCopyError(RefusedError):
    """No copy has the entries intact."""

    silent: frozenset[str] = frozenset()
    """The members whose copies could not be read."""


class UnauthorizedCopyError(NoIntactCopyError):
    """No copy that was read has the entries intact, and others demand the group's audit token."""

    is_from_all = False
    """Whether every copy demands the token, so that none was read."""


class _Why(NamedTuple):
    """Why a copy did not give entries."""

    text: str
    is_unauthorized: bool = False
    is_silent: bool = False
    """Whether the copy could not be read. An attempt at another segment may wait as long."""
    member: str = ""


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive intact entries of one copy: those from `start` to before `end` of a run."""

    entries: Entries
    start: int
    end: int
    member: str = ""
    segment: int = -1
    """Offset of its segment in the data files of the member."""

    @property
    def first_index(self) -> int:
        """Index of the first entry."""
        return int(self.entries.index[self.start])

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(slots=True)
class _Chain:
    """The last entry that was yielded, whose chain_crc the next one continues.

    A scan cannot check an entry after a damaged header, since that header's chain_crc is lost. But
    another copy has it, so the two are checked here.
    """

    index: int = -1
    chain_crc: int = 0
    is_archive: bool = False
    """An archive has a chain of its own."""

    def allows(self, entries: Slice, copy: Copy) -> bool:
        """Return whether the first entry of a slice may follow."""
        header = disk.EntryHeader(*entries.entries.headers[entries.start].item())
        is_known = self.index == entries.first_index - 1 and self.is_archive == copy.is_archive
        if not (is_known and self.chain_crc and header.chain_crc):
            return True
        return header.chain_crc == disk.chain_crc_of(header, self.chain_crc)

    def follow(self, entries: Slice, copy: Copy) -> None:
        """Record a slice as the last one that was yielded."""
        last = entries.end - 1
        self.index = int(entries.entries.index[last])
        self.chain_crc = int(entries.entries.headers["chain_crc"][last])
        self.is_archive = copy.is_archive


class Reader:
    """Reads copies, each over one connection. Use it as a context manager."""

    def __init__(
        self,
        window_bytes: int = WINDOW_BYTES,
        *,
        harmless: Flag = HARMLESS,
        open_copy: Callable[[Copy], AbstractContextManager[Files]] = Copy.open,
        scan: Scan = scan,
    ) -> None:
        """Prepare to read `window_bytes` at a time; `harmless` are flags of intact entries."""
        self._scan = scan
        self._open = open_copy
        self._window_bytes = window_bytes
        self._harmless = harmless
        self._silent: dict[str, int] = {}
        """Places that could not be read, with the number of the last attempt that failed."""
        self._stack = ExitStack()
        self._files: dict[str, Files] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, copies: Sequence[Copy], first: int, last: int) -> Iterator[Slice]:
        """Yield the entries `first` to `last`; later copies are read only where earlier ones fail.

        Raises NoIntactCopyError; UnauthorizedCopyError if a token may help.
        """
        chain = _Chain()
        if any(copy.first_index < first for copy in copies):
            with contextlib.suppress(NoIntactCopyError):
                list(self._read(copies, first - 1, first - 1, [], chain))
        yield from self._read(copies, first, last, [], chain)

    def _read(
        self, copies: Sequence[Copy], first: int, last: int, reasons: list[_Why], chain: _Chain
    ) -> Iterator[Slice]:
        """Yield the entries from the first copy, or else from others.

        After a segment that could not be read, the other copies come first, because each attempt
        may take a minute.
        """
        while first <= last:
            if not copies:
                raise _no_copy(first, last, reasons)
            copies = sorted(copies, key=lambda each: self._silent.get(each.place, 0))
            first = yield from self._read_first(copies, first, last, reasons, chain)

    def _read_first(
        self, copies: Sequence[Copy], first: int, last: int, reasons: list[_Why], chain: _Chain
    ) -> Generator[Slice, None, int]:
        """Read up to a segment of the first copy that cannot be read, or up to `last`.

        Return the index after the last entry that was read.
        """
        copy, others = copies[0], copies[1:]
        index, absent = first, [*reasons, _Why(f"{copy.member}: missing")]
        for found, start, end, reason, pos in self._spans(copy, first, last):
            low, high = max(start, index), min(end, last)
            if high < low:
                continue
            if reason.is_silent:
                self._silent[copy.place] = 1 + max(self._silent.values(), default=0)
            if low > index:
                yield from self._read(others, index, low - 1, absent, chain)
            index = high + 1
            while isinstance(found, Entries) and low <= high:
                at = int(found.index[0])
                entries = Slice(found, low - at, high - at + 1, copy.member, pos)
                if chain.allows(entries, copy):
                    chain.follow(entries, copy)
                    yield entries
                    low = high + 1
                else:
                    why = [*reasons, _Why(f"{copy.member}: bad_chain_crc")]
                    yield from self._read(others, low, low, why, chain)
                    low += 1
            if low <= high:
                text = f"{copy.member}: {reason.text}"
                why = [*reasons, reason._replace(text=text, member=copy.member)]
                yield from self._read(others, low, high, why, chain)
            if reason.is_silent:
                return index
        yield from self._read(others, index, last, absent, chain)
        return last + 1

    def _spans(
        self, copy: Copy, first: int, last: int
    ) -> Iterator[tuple[Entries | None, int, int, _Why, int]]:
        """Yield runs of one copy as (entries or None if not intact, first, last, why, segment).

        Absent entries are treated like damaged ones.
        """
        if copy.place not in self._files:
            self._files[copy.place] = self._stack.enter_context(self._open(copy))
        window_bytes = self._window_bytes
        if last - first < FEW_ENTRIES:
            window_bytes = min(window_bytes, SMALL_WINDOW_BYTES)
        for segment in plan.segments(copy.manifest, IndexRange(first=first, last=last)):
            for run in self._scan(segment, self._files[copy.place], window_bytes):
                for part in _divided(run, self._harmless):
                    yield *part, segment.pos


def _no_copy(first: int, last: int, reasons: Sequence[_Why]) -> NoIntactCopyError:
    """Return an error that says why no copy gave the entries, and what to do."""
    why = "; ".join(each.text for each in reasons)
    if any(each.is_unauthorized for each in reasons):
        error = UnauthorizedCopyError(
            f"the entries {first} to {last} cannot be read without the group's audit token ({why})"
        )
        error.is_from_all = all(each.is_unauthorized for each in reasons)
        return error
    damaged = NoIntactCopyError(
        f"no copy has the entries {first} to {last} intact ({why}); audit the group, and mend or "
        "replace the damaged member first"
    )
    damaged.silent = frozenset(each.member for each in reasons if each.is_silent)
    return damaged


def _divided(run: Run, harmless: Flag) -> Iterator[tuple[Entries | None, int, int, _Why]]:
    """Divide a run where intact and other entries meet."""
    if not isinstance(run, Entries):
        is_silent = run.flag == Flag.UNREADABLE and not run.is_gone
        why = _Why(run.reason or _name(run.flag), run.is_unauthorized, is_silent)
        yield None, run.first_index, run.last_index, why
        return
    bad = (run.flags & ~int(harmless)) != 0
    if not bad.any():
        yield run, int(run.index[0]), int(run.index[-1]), _Why("")
        return
    edges = [0, *(np.flatnonzero(bad[1:] != bad[:-1]) + 1).tolist(), len(run)]
    for start, end in itertools.pairwise(edges):
        first, last = int(run.index[start]), int(run.index[end - 1])
        flags = Flag(int(np.bitwise_or.reduce(run.flags[start:end])) & ~int(harmless))
        yield (None if bad[start] else run), first, last, _Why(_name(flags))


def _name(flag: Flag) -> str:
    return ", ".join(each.name.lower() for each in flag if each.name)
