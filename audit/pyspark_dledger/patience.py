"""Bounds how long all processes of a machine, or of a container, wait for a silent member.

A member that says nothing would delay each request by all its attempts, and a log has thousands of
segments. So the processes share a small file per member. It has the time for which the member was
silent, and until when that is counted, because several processes wait at once. Each
second in which the member answers makes up for one in which it did not. After `SILENT_S_MAX`, it is
not asked any more. The last third of that time is left for its manifest, which is asked for behind
the pass: a member that answers then is back, whatever was before. An answer that asks for more
time, or tells of an error, is no silence.

The environment carries the bound and the folder, since Spark's workers inherit it.
"""

import math
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark_dledger import shared_files

VARIABLE: Final = "DLEDGER_READ_PATIENCE"
SILENT_S_MAX: Final = 30.0
MANIFEST_FROM: Final = 2 / 3
"""From this share of the time on, only the manifest is asked for."""
_STATE: Final = struct.Struct("<dd")


class Patience:
    """How long one member may be silent yet."""

    def __init__(
        self, file: Path, silent_s_max: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Share a file with the other processes; `clock` must be the same for all of them, as the
        machine's monotonic clock is.
        """
        self._file = file
        self._silent_s_max = silent_s_max
        self.clock = clock

    def left_s(self, *, for_manifest: bool) -> float:
        """Return the seconds for which the member may still be silent; 0 if it is not asked."""
        share = 1 if for_manifest else MANIFEST_FROM
        return max(0.0, share * self._silent_s_max - self._silent_s())

    def waited(self, began_s: float) -> None:
        """Count the time since then as silence, except what another process has counted."""
        now = self.clock()
        with shared_files.locked(self._file) as descriptor:
            silent_s, until_s = _unpacked(os.pread(descriptor, _STATE.size, 0))
            silent_s += max(0.0, now - max(began_s, until_s))
            os.pwrite(descriptor, _STATE.pack(silent_s, max(now, until_s)), 0)

    def answered(self, began_s: float, *, is_manifest: bool) -> None:
        """Count the time since then as one in which the member answered."""
        if not self._silent_s():
            return
        took_s = math.inf if is_manifest else self.clock() - began_s
        with shared_files.locked(self._file) as descriptor:
            silent_s, until_s = _unpacked(os.pread(descriptor, _STATE.size, 0))
            os.pwrite(descriptor, _STATE.pack(max(0.0, silent_s - took_s), until_s), 0)

    def _silent_s(self) -> float:
        try:
            return _unpacked(self._file.read_bytes())[0]
        except FileNotFoundError:
            return 0.0


@contextmanager
def bounded(silent_s_max: float = SILENT_S_MAX) -> Iterator[None]:
    """Bound the silence of each member within the block, also in processes that begin there."""
    with tempfile.TemporaryDirectory(prefix="dledger-patience-") as folder:
        os.environ[VARIABLE] = f"{silent_s_max}:{folder}"
        try:
            yield
        finally:
            del os.environ[VARIABLE]


def patience_of(place: str) -> Patience | None:
    """Return how long a member may be silent; None without a bound."""
    silent_s_max, colon, folder = os.environ.get(VARIABLE, "").partition(":")
    if not colon:
        return None
    return Patience(shared_files.path_of(Path(folder), place), float(silent_s_max))


def _unpacked(raw: bytes) -> tuple[float, float]:
    if len(raw) != _STATE.size:  # nobody has waited yet
        return 0.0, 0.0
    silent_s, until_s = _STATE.unpack(raw)
    return silent_s, until_s
