"""Read the headers of a data file, and skip the large bodies between them."""

from collections.abc import Callable
from typing import Final

import numpy as np

from dledger_formats.http.status import SegmentFile
from dledger_formats.log import disk
from pyspark_dledger.files import Files, Window
from pyspark_dledger.layout import Longs, Records

SKIPPED_BYTES_MIN: Final = 64 << 10
"""Bodies of at least this size are skipped. One more request costs about as much as these bytes."""

UnitsFrom = Callable[[int], Records]
"""Returns the index units of the entries from an offset in the file on, maybe none."""


class HeaderWindow(Window):
    """A window with zeros in place of large bodies, where the index files give their places.

    `extend` fills in the bodies: entries that are not where the index files say must be searched
    for.
    """

    def __init__(
        self, files: Files, file: SegmentFile, window_bytes: int, units_from: UnitsFrom
    ) -> None:
        super().__init__(files, file, window_bytes)
        self._units_from = units_from
        self._is_sparse = False

    def extend(self, start: int) -> bool:
        if not self._is_sparse:
            return super().extend(start)
        self._is_sparse = False
        super()._load(start)
        return True

    def _load(self, start: int) -> None:
        end = self._end(start)
        spans = header_spans(self._units_from(start), self._pos, start, end)
        self._is_sparse = len(spans) > 1
        if not self._is_sparse:
            super()._load(start)
            return
        raw = bytearray(spans[-1][1] - start)
        for low, high in spans:
            part = self._read(low, high)
            raw[low - start : low - start + len(part)] = part
            if len(part) < high - low:
                self.is_short = True
                del raw[low - start + len(part) :]
                break
        self._start, self._bytes = start, np.frombuffer(raw, np.uint8)

    @property
    def _pos(self) -> int:
        return disk.start_offset(self._file.name)


def header_spans(units: Records, pos: int, start: int, end: int) -> list[tuple[int, int]]:
    """Return which bytes of a file hold the headers of the entries between two offsets.

    `pos` is the file's own offset in the data files. The last span ends with the header after the
    last whole entry. There are no spans if the units do not say where entries are.
    """
    offsets = units["pos"].astype(np.int64) - pos
    sizes = units["size"].astype(np.int64)
    ends = offsets + sizes
    fits = (
        (offsets == np.concatenate(([start], ends))[:-1])
        & (sizes >= disk.ENTRY_HEADER_SIZE)
        & (ends <= end)
    )
    count = len(fits) if fits.all() else int(np.argmin(fits))
    if not count:
        return []
    is_large = sizes[:count] - disk.ENTRY_HEADER_SIZE >= SKIPPED_BYTES_MIN
    lows: Longs = np.concatenate(([start], ends[:count][is_large]))
    last = min(int(ends[count - 1]) + disk.ENTRY_HEADER_SIZE, end)
    highs: Longs = np.concatenate((offsets[:count][is_large] + disk.ENTRY_HEADER_SIZE, [last]))
    return [
        (low, high) for low, high in zip(lows.tolist(), highs.tolist(), strict=True) if low < high
    ]
