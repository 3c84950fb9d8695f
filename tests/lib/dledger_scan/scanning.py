"""Scan all segments of a log on disk, one after the other."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dledger_formats.http.status import Manifest
from dledger_formats.log import disk
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import read_range
from pyspark_dledger import plan
from pyspark_dledger.files import GoneError
from pyspark_dledger.layout import Flag
from pyspark_dledger.ranges import IndexRange
from pyspark_dledger.segments import WINDOW_BYTES, Absent, Run, scan


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """A log's files, read from disk as `dledger_logs.serve` serves them."""

    root: Path
    manifest: Manifest

    def read_file(self, name: str, start: int, end: int) -> bytes:
        """Return the requested bytes of a small file or a snapshot's file."""
        path = self.root / name
        if not path.exists():
            raise GoneError(f"{path} is gone")
        return path.read_bytes()[start:end]

    def read(self, folder: str, name: str, start: int, end: int) -> bytes:
        """Return the requested bytes, as far as they are readable."""
        files = self.manifest.data if folder == disk.DATA_FOLDER else self.manifest.index
        path = self.root / folder / name
        if not path.exists():
            raise GoneError(f"{path} is gone")
        return read_range(path, next(file for file in files if file.name == name), start, end)


def scan_log(
    log: Log,
    *,
    said: Manifest | None = None,
    wanted: IndexRange | None = None,
    window_bytes: int = WINDOW_BYTES,
) -> list[Run]:
    """Return the runs of all segments; `said` replaces the log's own manifest."""
    known = said or manifest(log, "n0")
    files = LocalFiles(log.root, known)
    segments = plan.segments(known, wanted or IndexRange())
    return [run for segment in segments for run in scan(segment, files, window_bytes)]


def flags_of(runs: Iterable[Run]) -> dict[int, Flag]:
    """Map every index to its flags; assert that each occurs once and in order."""
    flags: dict[int, Flag] = {}
    for run in runs:
        if isinstance(run, Absent):
            found = dict.fromkeys(range(run.first_index, run.last_index + 1), run.flag)
        else:
            pairs = zip(run.index.tolist(), run.flags.tolist(), strict=True)
            found = {index: Flag(bits) for index, bits in pairs}
        assert not flags or next(iter(found)) > next(reversed(flags))
        assert list(found) == sorted(found)
        flags |= found
    return flags


def flagged(runs: Iterable[Run]) -> dict[int, Flag]:
    """Map the indexes of flagged entries to their flags."""
    return {index: flags for index, flags in flags_of(runs).items() if flags}
