"""Bounds how long all processes of a machine, or of a container, wait for a silent member.

A log has thousands of segments. If a member does not answer, each request for one of them uses up
its attempts. So the processes share a small file for each member. The file has two times: how long
the member was silent, and up to which moment that is counted. Several processes wait at once, and
the second time keeps them from counting the same seconds twice.

A second in which the member answers takes one second of silence away. A member that was silent for
`SILENT_S_MAX` is no longer asked. The last third of that time is kept for its manifest, which an
audit requests after the pass: a member that answers that request is asked again for everything. An
answer that asks for more time, or reports an error, does not count as silence.

The environment has the bound and the folder (`shared_files`).
"""

import math
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark_dledger import shared_files

VARIABLE: Final = "DLEDGER_READ_PATIENCE"
SILENT_S_MAX: Final = 30.0
MANIFEST_FROM: Final = 2 / 3
"""From this share of the time on, only the manifest is requested."""
_STATE: Final = struct.Struct("<dd")


class Patience:
    """How long one member may still be silent."""

    def __init__(
        self, file: Path, silent_s_max: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Share a file with the other processes.

        `clock` must be the same for all of them, such as the machine's monotonic clock.
        """
        self._file = file
        self._silent_s_max = silent_s_max
        self.clock = clock

    def left_s(self, *, for_manifest: bool) -> float:
        """Return the seconds for which the member may still be silent; 0 if it is not asked."""
        share = 1 if for_manifest else MANIFEST_FROM
        return max(0.0, share * self._silent_s_max - self._silent_s())

    def waited(self, began_s: float) -> None:
        """Count the time since `began_s` as silence, except what another process has counted."""
        now = self.clock()
        with shared_files.locked(self._file) as descriptor:
            silent_s, until_s = _unpacked(os.pread(descriptor, _STATE.size, 0))
            silent_s += max(0.0, now - max(began_s, until_s))
            os.pwrite(descriptor, _STATE.pack(silent_s, max(now, until_s)), 0)

    def answered(self, began_s: float, *, is_manifest: bool) -> None:
        """Subtract the time since `began_s` from the silence; a manifest ends all silence."""
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
    """Bound the silence of each member within the block, also in processes started there."""
    with shared_files.shared(VARIABLE, silent_s_max, "dledger-patience-"):
        yield


def patience_of(place: str) -> Patience | None:
    """Return how long a member may be silent; None without a bound."""
    found = shared_files.bound_of(VARIABLE, place)
    return None if found is None else Patience(found[1], float(found[0]))


def _unpacked(raw: bytes) -> tuple[float, float]:
    if len(raw) != _STATE.size:  # no process has waited yet
        return 0.0, 0.0
    silent_s, until_s = _STATE.unpack(raw)
    return silent_s, until_s
