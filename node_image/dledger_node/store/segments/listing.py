"""Which files of a folder are segments, and whether they are whole."""

from pathlib import Path

from dledger_formats.log import disk
from dledger_node.errors import Damage, StoreDamagedError


def starts_of(folder: Path, file_size: int, used_end: int = 0) -> list[int]:
    """Return where the segments of a folder begin.

    Raises StoreDamagedError if a file is not a segment, or was cut short: if another file has the
    right size, or if it is the last and ends before `used_end`, up to where the log is known to
    have reached. Otherwise the segment size may have been changed.
    """
    found = [(_start_of(path), path) for path in sorted(folder.iterdir())]
    sizes = {path: path.stat().st_size for _, path in found}
    for start, path in found:
        size = sizes[path]
        is_cut = file_size in sizes.values() or (
            (start, path) == found[-1] and start + size < used_end
        )
        if size < file_size and is_cut:
            raise StoreDamagedError(
                f"{path} was cut short: it has {size} bytes, and segments have {file_size}",
                Damage.UNREADABLE,
            )
        if size != file_size:
            raise StoreDamagedError(
                f"{path} has {size} bytes; segments have {file_size}. Was the segment size "
                "changed?",
                Damage.UNKNOWN_FORMAT,
            )
    return [start for start, _ in found]


def whole_starts_of(folder: Path, file_size: int, used_end: int) -> list[int]:
    """Return where the segments that were not cut short begin. Raises as `starts_of` does."""
    try:
        return starts_of(folder, file_size, used_end)
    except StoreDamagedError as error:
        if error.damage is not Damage.UNREADABLE:
            raise
    found = [(_start_of(path), path) for path in sorted(folder.iterdir())]
    return [start for start, path in found if path.stat().st_size == file_size]


def _start_of(path: Path) -> int:
    try:
        return disk.start_offset(path.name)
    except ValueError as error:
        raise StoreDamagedError(f"{path}: {error}; move it away", Damage.UNKNOWN_FORMAT) from None
