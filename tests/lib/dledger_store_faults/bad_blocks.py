"""One bad block in a member's files, for members that run in this process.

`FLIP` and `ZERO` change bytes. The other faults are errors of the operating system, injected into
the calls with which the node reads and writes:

    READ      a read fails with EIO, or returns only the bytes before the block; a write of a part
              of the block fails too, since the kernel must read the rest. A write of the whole
              block makes it good again
    WRITE     a write fails with EIO
    SYNC      a write succeeds, the next sync fails with EIO, and the written bytes are lost
    NO_ROOM   a write, or the allocation of the file, fails with ENOSPC
"""

import contextlib
import enum
import errno
import io
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK_BYTES = 1024
_CALLS = ("fdatasync", "fsync", "posix_fallocate", "pread", "pwrite")
_RAW_MODES = {"rb", "wb", "xb", "ab"}


class Fault(enum.StrEnum):
    """The fault of a block."""

    FLIP = "flip"
    ZERO = "zero"
    READ = "EIO when read"
    WRITE = "EIO when written"
    SYNC = "EIO when synced"
    NO_ROOM = "ENOSPC"


BYTES_CHANGE = (Fault.FLIP, Fault.ZERO)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of one of a member's files; names are relative to its store's folder."""

    name: str
    written_as: str
    """A pattern of the name that the file has while these bytes are written."""
    start: int
    end: int


@dataclass(slots=True)
class _Bad:
    """A bad block."""

    fault: Fault
    block: Block
    pattern: re.Pattern[str]
    fd: int
    """Keeps the inode from being reused for another file; -1 if the file does not exist."""
    inode: int
    before: bytes | None = None
    """The content of the block at the last sync; None if it was not written since."""
    met: int = 0
    """Number of times a caller received the error."""


class FaultyDisk:
    """At most one bad block per member, by the member's folder. Any thread may call."""

    def __init__(self) -> None:
        self._bad: dict[str, _Bad] = {}
        self._lock = threading.Lock()
        self._real: dict[str, Any] = {name: getattr(os, name) for name in _CALLS}
        self._open = io.open

    def strike(self, folder: Path, block: Block, fault: Fault) -> None:
        """Make a block go bad."""
        path = folder / block.name
        if fault in BYTES_CHANGE:
            _change(path, block, fault)
            return
        fd = os.open(path, os.O_RDONLY) if path.exists() else -1
        inode = os.fstat(fd).st_ino if fd >= 0 else -1
        bad = _Bad(fault, block, re.compile(block.written_as), fd, inode)
        with self._lock:
            assert str(folder) not in self._bad
            self._bad[str(folder)] = bad

    def is_met(self, folder: Path) -> bool:
        """Return whether a caller has received the error."""
        with self._lock:
            bad = self._bad.get(str(folder))
        return bad is not None and bad.met > 0

    def repair(self, folder: Path) -> int:
        """Make the block good again; return how often a caller received the error."""
        with self._lock:
            bad = self._bad.pop(str(folder), None)
        if bad is None:
            return 0
        if bad.fd >= 0:
            os.close(bad.fd)
        return bad.met

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Patch `os`, and `io.open`, which `pathlib` calls."""
        for name in _CALLS:
            setattr(os, name, getattr(self, f"_{name}"))
        io.open = self._checked_open  # type: ignore[assignment]
        try:
            yield
        finally:
            io.open = self._open
            for name, call in self._real.items():
                setattr(os, name, call)

    # -- patched calls -----------------------------------------------------------------------------

    def _pread(self, fd: int, size: int, at: int) -> bytes:
        data: bytes = self._real["pread"](fd, self.readable(fd, at, size), at)
        return data

    def _pwrite(self, fd: int, data: Any, at: int) -> int:
        self.before_write(fd, at, len(data))
        written: int = self._real["pwrite"](fd, data, at)
        return written

    def _posix_fallocate(self, fd: int, at: int, size: int) -> None:
        found = self._find_written(fd)
        if found is not None and found.fault in (Fault.NO_ROOM, Fault.WRITE):
            found.met += 1
            raise _error(found.fault)
        self._real["posix_fallocate"](fd, at, size)

    def _fsync(self, fd: int) -> None:
        self._before_sync(fd)
        self._real["fsync"](fd)

    def _fdatasync(self, fd: int) -> None:
        self._before_sync(fd)
        self._real["fdatasync"](fd)

    def _checked_open(self, file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if mode not in _RAW_MODES or not self._bad or not isinstance(file, str | Path):
            return self._open(file, mode, *rest, **options)
        raw = _CheckedFile(str(file), mode[0], self)
        if options.get("buffering", rest[0] if rest else -1) == 0:
            return raw
        return io.BufferedReader(raw) if mode == "rb" else io.BufferedWriter(raw)

    # -- checks ------------------------------------------------------------------------------------

    def readable(self, fd: int, at: int, size: int) -> int:
        """Return the bytes readable before a bad block. Raises OSError if it begins at `at`."""
        for bad in list(self._bad.values()):
            if bad.fault is not Fault.READ or os.fstat(fd).st_ino != bad.inode:
                continue
            if at < bad.block.end and at + size > bad.block.start:
                bad.met += 1
                if at >= bad.block.start:
                    raise _error(bad.fault)
                return bad.block.start - at
        return size

    def before_write(self, fd: int, at: int, size: int) -> None:
        """Check a write: fail it, save the content that it replaces, or make the block good."""
        for folder, bad in list(self._bad.items()):
            block = bad.block
            if at >= block.end or at + size <= block.start:
                continue
            if bad.fault is Fault.READ and os.fstat(fd).st_ino == bad.inode:
                if at > block.start or at + size < block.end:
                    bad.met += 1
                    raise _error(bad.fault)
                bad.inode = -1
            elif bad.fault is not Fault.READ and _is_called(fd, folder, bad.pattern):
                if bad.fault is not Fault.SYNC:
                    bad.met += 1
                    raise _error(bad.fault)
                if bad.before is None:
                    bad.before = self._content(fd, block)

    def _before_sync(self, fd: int) -> None:
        found = self._find_written(fd)
        if found is None or found.fault is not Fault.SYNC:
            return
        with self._lock:
            before, found.before = found.before, None
        if before is None:
            return
        found.met += 1
        path = Path(f"/proc/self/fd/{fd}").readlink()
        with self._open(path, "r+b") as file:  # `fd` may be open only for reading
            file.seek(found.block.start)
            file.write(before)
        raise _error(found.fault)

    def _find_written(self, fd: int) -> _Bad | None:
        for folder, bad in list(self._bad.items()):
            if _is_called(fd, folder, bad.pattern):
                return bad
        return None

    def _content(self, fd: int, block: Block) -> bytes:
        """Read a block, with zeros after the end of its file."""
        with self._open(Path(f"/proc/self/fd/{fd}").readlink(), "rb") as file:
            file.seek(block.start)
            return file.read(block.end - block.start).ljust(block.end - block.start, b"\0")


class _CheckedFile(io.FileIO):
    """The file object that the patched `open` returns."""

    def __init__(self, path: str, mode: str, disk: FaultyDisk) -> None:
        super().__init__(path, mode)
        self._disk = disk

    def readinto(self, buffer: Any, /) -> int:
        size = self._disk.readable(self.fileno(), self.tell(), len(buffer))
        return super().readinto(memoryview(buffer)[:size]) or 0

    def readall(self) -> bytes:
        size = max(0, os.fstat(self.fileno()).st_size - self.tell())
        if self._disk.readable(self.fileno(), self.tell(), size) < size:
            raise _error(Fault.READ)
        return super().readall()

    def write(self, data: Any, /) -> int:
        self._disk.before_write(self.fileno(), self.tell(), len(data))
        return super().write(data) or 0


def _is_called(fd: int, folder: str, pattern: re.Pattern[str]) -> bool:
    path = os.readlink(f"/proc/self/fd/{fd}")
    prefix = f"{folder}/"
    return path.startswith(prefix) and pattern.fullmatch(path[len(prefix) :]) is not None


def _change(path: Path, block: Block, fault: Fault) -> None:
    with path.open("r+b") as file:
        file.seek(block.start)
        content = file.read(block.end - block.start)
        file.seek(block.start)
        file.write(bytes(len(content)) if fault is Fault.ZERO else bytes(b ^ 16 for b in content))


def _error(fault: Fault) -> OSError:
    number = errno.ENOSPC if fault is Fault.NO_ROOM else errno.EIO
    return OSError(number, os.strerror(number))
