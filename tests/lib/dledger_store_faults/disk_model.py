"""A model of what a disk may hold after a crash, from the system calls that a store made.

Contents are durable by fsync or fdatasync of the file, names by fsync of their folder. Before that,
each sector of a file may be in any state since the last sync, and so may the file's length. Of the
name changes in a folder any prefix may have been applied, independently of other folders. This
allows more states than ext4 and XFS do.

Writes are detected by comparing files at every recorded call and at every call of `observe`.
"""

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECTOR_BYTES = 512
FOLDERS = ("", "data", "index")
NOT_RECORDED = {"lock"}
_CALLS = ("fdatasync", "fsync", "ftruncate", "posix_fallocate", "rename", "replace", "unlink")

Names = dict[str, int]


@dataclass(frozen=True, slots=True)
class NameChange:
    """A name that was created in, renamed into or removed from `folder`."""

    folder: str
    name: str
    file: int | None
    """The file that has the name now; None if the name was removed."""
    source: tuple[str, str] | None = None
    """The previous folder and name of a renamed file."""


@dataclass(frozen=True, slots=True)
class DiskState:
    """The state at a moment at which the power may fail."""

    versions: dict[int, tuple[bytes, ...]]
    """By file: the durable content, then every later content."""
    names: dict[str, Names]
    """By folder: the durable names."""
    changes: tuple[NameChange, ...]
    """Name changes that are not durable, in order."""


@dataclass(slots=True)
class Recorder:
    """Follows one store's folder and passes the state at each moment to `on_state`."""

    folder: Path
    on_state: Callable[[DiskState], None]
    deaf_to: str = ""
    """Syncs that have no effect here, `files` or `folders`; as a control, promises must break."""
    _versions: dict[int, list[bytes]] = field(default_factory=dict)
    _current: dict[str, Names] = field(default_factory=dict)
    _durable: dict[str, Names] = field(default_factory=dict)
    _changes: list[NameChange] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.RLock)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Patch `os`; the current content of the folder is durable."""
        for name in FOLDERS:
            (self.folder / name).mkdir(exist_ok=True)
        self._current = {name: self._list(name) for name in FOLDERS}
        self._durable = {name: dict(names) for name, names in self._current.items()}
        for folder, names in self._current.items():
            for name, file in names.items():
                self._versions[file] = [(self.folder / folder / name).read_bytes()]
        real = {name: getattr(os, name) for name in _CALLS}
        for name, call in real.items():
            setattr(os, name, self._wrapped(name, call))
        try:
            yield
        finally:
            for name, call in real.items():
                setattr(os, name, call)

    def observe(self, *, promised: bool = False) -> None:
        """Detect writes and new files since the last call, and report a moment if there are any.

        With `promised` it reports a moment in any case, since a promise was made in the meantime.
        """
        with self._lock:
            if self._detect() or promised:
                self._report()

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                self.observe()
                result = call(*arguments, **options)
                if name in ("fsync", "fdatasync"):
                    self._synced(arguments[0])
                elif name in ("rename", "replace"):
                    self._renamed(Path(arguments[0]), Path(arguments[1]))
                elif name == "unlink":
                    self._unlinked(Path(arguments[0]))
                else:
                    self._detect()
                self._report()
                return result

        return wrapped

    def _synced(self, fd: int) -> None:
        found = os.fstat(fd)
        kind = "folders" if stat.S_ISDIR(found.st_mode) else "files"
        if kind == self.deaf_to:
            return
        if kind == "files":
            if found.st_ino in self._versions:
                del self._versions[found.st_ino][:-1]
            return
        for name in FOLDERS:
            if (self.folder / name).stat().st_ino == found.st_ino:
                mine = [change for change in self._changes if change.folder == name]
                self._changes = apply_changes(self._durable, self._changes, mine)

    def _renamed(self, source: Path, target: Path) -> None:
        old, new = self._place(source), self._place(target)
        if old is None or new is None:
            return
        file = self._current[old[0]].pop(old[1])
        self._current[new[0]][new[1]] = file
        self._changes.append(NameChange(*new, file, old))

    def _unlinked(self, path: Path) -> None:
        place = self._place(path)
        if place is not None and place[1] in self._current[place[0]]:
            del self._current[place[0]][place[1]]
            self._changes.append(NameChange(*place, None))

    def _place(self, path: Path) -> tuple[str, str] | None:
        for name in FOLDERS:
            if path.parent == self.folder / name and path.name not in NOT_RECORDED:
                return name, path.name
        return None

    def _detect(self) -> bool:
        """Detect new files and contents; return whether there were any."""
        changed = False
        for folder in FOLDERS:
            for name, file in self._list(folder).items():
                if self._current[folder].get(name) != file:
                    self._current[folder][name] = file
                    self._changes.append(NameChange(folder, name, file))
                    self._versions[file] = [b""]
                    changed = True
                content = (self.folder / folder / name).read_bytes()
                if content != self._versions[file][-1]:
                    self._versions[file].append(content)
                    changed = True
        return changed

    def _list(self, folder: str) -> Names:
        with os.scandir(self.folder / folder) as entries:
            return {
                entry.name: entry.inode()
                for entry in entries
                if entry.is_file() and entry.name not in NOT_RECORDED
            }

    def _report(self) -> None:
        self.on_state(
            DiskState(
                {file: tuple(versions) for file, versions in self._versions.items()},
                {folder: dict(names) for folder, names in self._durable.items()},
                tuple(self._changes),
            )
        )


def apply_changes(
    names: dict[str, Names], changes: list[NameChange], chosen: list[NameChange]
) -> list[NameChange]:
    """Apply the chosen changes, in order; return the changes that may still be applied later."""
    left = []
    for number, change in enumerate(changes):
        if not any(change is other for other in chosen):
            left.append(change)
            continue
        folder = names[change.folder]
        if change.file is None:
            folder.pop(change.name, None)
            continue
        folder[change.name] = change.file
        if change.source is not None:
            source_folder, source = change.source
            if names[source_folder].get(source) == change.file:
                del names[source_folder][source]
            # The file's old name must not reappear after its new one.
            before = {id(other) for other in changes[:number]}
            left = [
                other
                for other in left
                if not (
                    id(other) in before
                    and other.file == change.file
                    and (other.folder, other.name) == change.source
                )
            ]
    return left
