"""Locate the entries of a data segment, without trusting any single byte of it.

The index file gives the entries' places, and is trusted where the data confirms it. Elsewhere each
header leads to the next one. Where neither works, the next header whose pos matches its own place
is searched for.

A *view* is an array of the segment's bytes from some offset on.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from dledger_formats.http.status import SegmentFile
from dledger_formats.log import disk
from pyspark_dledger.files import Window
from pyspark_dledger.layout import HEADER, Bools, Bytes, Longs, Records

WALK_ENTRIES_MAX: Final = 4096
SEARCH_BYTES: Final = 1 << 20

_POS_OFFSET: Final = HEADER.fields["pos"][1] if HEADER.fields else 0
assert _POS_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Contiguous entries: byte offsets in a view, and the number of bytes of each entry."""

    offsets: Longs
    sizes: Longs

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def end(self) -> int:
        """Offset after the last entry; there must be at least one entry."""
        return int(self.offsets[-1] + self.sizes[-1])

    def head(self, count: int) -> Self:
        """Return the first `count` entries."""
        return type(self)(offsets=self.offsets[:count], sizes=self.sizes[:count])


def headers_at(view: Bytes, offsets: Longs) -> Records:
    """Gather the headers at these offsets, with one copy per entry."""
    if not len(offsets):
        return np.empty(0, HEADER)
    count = len(view) - HEADER.itemsize + 1
    rows = np.ndarray((count,), f"V{HEADER.itemsize}", view.data, strides=(1,))
    return rows[offsets].view(HEADER)  # np.take would first copy all overlapping rows


def is_plausible(headers: Records) -> Bools:
    """Return which headers, taken by themselves, could belong to entries."""
    size = headers["size"].astype(np.int64)
    plausible: Bools = (
        np.isin(headers["magic"], disk.ENTRY_MAGICS)
        & (size == headers["body_size"].astype(np.int64) + disk.ENTRY_HEADER_SIZE)
        & (size >= disk.ENTRY_HEADER_SIZE)
        & (size <= disk.ENTRY_SIZE_MAX)
    )
    return plausible


def locate(view: Bytes, index: int, last_index: int, units: Records, pos: int) -> Located:
    """Locate entries from `index`, which starts at the view's first byte, up to `last_index`.

    `units` are the index file's units from `index` on; `pos` is the view's offset in the data
    files. The result is empty if the view starts with no complete, plausible entry. It ends with
    the units, if there are any: those of later entries may only not have been fetched yet.
    """
    found = _locate_by_units(view, index, last_index, units, pos)
    if not len(found):
        found = _walk(view)
        found = found.head(len(units)) if len(units) else found
    return found.head(last_index - index + 1)


def _locate_by_units(view: Bytes, index: int, last_index: int, units: Records, pos: int) -> Located:
    """Trust contiguous units until a plausible header contradicts one.

    If the unit makes sense and the header does not, the header is damaged and the unit is trusted,
    provided that a plausible header follows or the units reach `last_index`.
    """
    offsets = units["pos"].astype(np.int64) - pos
    sizes = units["size"].astype(np.int64)
    ends = offsets + sizes
    count = _leading(
        (units["index"] == np.arange(index, index + len(units)))
        & (offsets == np.concatenate(([0], ends))[:-1])
        & (sizes >= disk.ENTRY_HEADER_SIZE)
        & (ends <= len(view))
    )
    headers = headers_at(view, offsets[:count])
    plausible = is_plausible(headers)
    count = _leading(~plausible | (headers["size"] == sizes[:count]))
    if index + count - 1 < last_index:
        confirmed = np.flatnonzero(plausible[:count])
        count = int(confirmed[-1]) + 1 if len(confirmed) else 0
    return Located(offsets=offsets[:count], sizes=sizes[:count])


def _leading(holds: Bools) -> int:
    """Count the leading elements that are true."""
    return len(holds) if holds.all() else int(np.argmin(holds))


def _walk(view: Bytes) -> Located:
    """Follow headers while they are plausible, for at most WALK_ENTRIES_MAX entries.

    The limit returns the caller to the index file soon after a single bad unit.
    """
    raw, edges = view.data, [0]
    while len(edges) <= WALK_ENTRIES_MAX and edges[-1] + disk.ENTRY_HEADER_SIZE <= len(raw):
        header = disk.unpack_header(raw, edges[-1])
        end = edges[-1] + header.size
        if (
            header.magic in (0, disk.BLANK)  # a later version may write other magics
            or header.size != disk.ENTRY_HEADER_SIZE + header.body_size
            or not disk.ENTRY_HEADER_SIZE <= header.size <= disk.ENTRY_SIZE_MAX
            or end > len(raw)
        ):
            break
        edges.append(end)
    return Located(offsets=np.array(edges[:-1], np.int64), sizes=np.diff(edges).astype(np.int64))


def blank_size(view: Bytes) -> int:
    """Return the size of the blank record at the view's first byte; 0 if there is none."""
    if len(view) < disk.BLANK_SIZE_MIN:
        return 0
    magic, size = disk.BLANK_HEADER.unpack_from(view.data)
    return size if magic == disk.BLANK and size >= disk.BLANK_SIZE_MIN else 0


def ends_with_blank(data: Window, at: int, file: SegmentFile, *, zeroed: bool) -> bool:
    """Return whether a blank fills a file from an offset on; `zeroed` if its bytes must be zero.

    The window may end within the blank, which may be as long as an entry.
    """
    view = data.view(at)
    if len(view) < disk.BLANK_SIZE_MIN and data.extend(at):
        view = data.view(at)
    if at + blank_size(view) != file.size_bytes:
        return False
    at += disk.BLANK_SIZE_MIN
    while zeroed and len(view := data.view(at)):
        if view.any():
            return False
        at += len(view)
    return True


def find_header(view: Bytes, pos: int, indexes: range) -> tuple[int, int] | None:
    """Search for the next plausible header; return its offset in the view and its index.

    The header's pos must match its own place, where `pos` is the pos that a header at the view's
    first byte would hold, and its index must be in `indexes`.
    """
    end = len(view) - HEADER.itemsize + 1
    for low in range(0, end, SEARCH_BYTES):
        count = min(SEARCH_BYTES, end - low)
        stored = np.ndarray((count,), ">i8", view.data, offset=low + _POS_OFFSET, strides=(1,))
        offsets = np.flatnonzero(stored == np.arange(pos + low, pos + low + count)) + low
        headers = headers_at(view, offsets)
        plausible = is_plausible(headers)
        for offset, index in zip(offsets[plausible], headers["index"][plausible], strict=True):
            if int(index) in indexes:
                return int(offset), int(index)
    return None
