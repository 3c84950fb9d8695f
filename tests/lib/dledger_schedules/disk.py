"""What a crash may leave of a store's folder, followed call by call at little cost.

The rules are those of `dledger_store_faults.disk_model`, with one addition: a sync in progress
makes durable what was written before it began. Of a file's unsynced content only the newest
version is kept.
"""

import os
from collections.abc import Callable
from pathlib import Path

from dledger_store_faults.disk_model import (
    FOLDERS,
    NOT_RECORDED,
    DiskState,
    NameChange,
    Names,
    apply_changes,
)

Place = tuple[str, str]


class Disk:
    """The durable and the current state of one folder; its initial content is durable."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders = {name: str(folder / name).rstrip("/") for name in FOLDERS}
        self._numbers = {os.stat(path).st_ino: name for name, path in self._folders.items()}
        self._names = {name: self._list(name) for name in FOLDERS}
        self._durable_names = {name: dict(names) for name, names in self._names.items()}
        self._changes: list[NameChange] = []
        self._durable: dict[int, bytes] = {}
        for folder_name, names in self._names.items():
            for name, file in names.items():
                self._durable[file] = self._content(folder_name, name)
        self._gone: dict[int, bytes] = {}
        """The last content of files without a name."""
        self._syncs = 0
        self._synced: dict[int, int] = {}
        """By file: the newest sync that made its content durable."""

    def begin_sync(self, fd: int) -> Callable[[], None]:
        """Note what a sync covers; the result is to be called when the sync returns."""
        file = os.fstat(fd).st_ino
        self._syncs += 1
        number = self._syncs
        if file in self._numbers:
            self._detect_names()
            covered = [c for c in self._changes if c.folder == self._numbers[file]]
            return lambda: self._end_folder_sync(covered)
        with open(f"/proc/self/fd/{fd}", "rb") as opened:
            content = opened.read()
        return lambda: self._end_sync(file, number, content)

    def before_removal(self, path: str) -> Callable[[], None]:
        """Note the content of a file that loses its name; call the result afterwards."""
        place = self._place(path)
        self._detect_names()
        if place is None or place[1] not in self._names[place[0]]:
            return lambda: None
        self._keep(place)
        return lambda: self._removed(place)

    def before_rename(self, source: str, target: str) -> Callable[[], None]:
        """Note the content of a file that is renamed; call the result afterwards."""
        old, new = self._place(source), self._place(target)
        self._detect_names()
        if old is None or new is None:
            return lambda: None
        if new[1] in self._names[new[0]]:
            self._keep(new)
        return lambda: self._renamed(old, new)

    def state(self) -> DiskState:
        """Return the states that a crash at this moment may leave."""
        self._detect_names()
        present = {file: self._durable.get(file, b"") for file in self._gone}
        present.update(self._gone)
        for folder, names in self._names.items():
            for name, file in names.items():
                present[file] = self._content(folder, name)
        return DiskState(
            {file: _versions(self._durable.get(file, b""), now) for file, now in present.items()},
            {folder: dict(names) for folder, names in self._durable_names.items()},
            tuple(self._changes),
        )

    def _end_sync(self, file: int, number: int, content: bytes) -> None:
        if number > self._synced.get(file, 0):
            self._synced[file] = number
            self._durable[file] = content

    def _end_folder_sync(self, covered: list[NameChange]) -> None:
        left = [c for c in covered if any(c is other for other in self._changes)]
        self._changes = apply_changes(self._durable_names, self._changes, left)

    def _removed(self, place: Place) -> None:
        self._names[place[0]].pop(place[1], None)
        self._changes.append(NameChange(*place, None))

    def _renamed(self, old: Place, new: Place) -> None:
        file = self._names[old[0]].pop(old[1])
        self._names[new[0]][new[1]] = file
        self._changes.append(NameChange(*new, file, old))

    def _keep(self, place: Place) -> None:
        self._gone[self._names[place[0]][place[1]]] = self._content(*place)

    def _detect_names(self) -> None:
        """Detect new files."""
        for folder in FOLDERS:
            known = self._names[folder]
            for name, file in self._list(folder).items():
                if known.get(name) != file:
                    known[name] = file
                    self._changes.append(NameChange(folder, name, file))

    def _content(self, folder: str, name: str) -> bytes:
        with open(f"{self._folders[folder]}/{name}", "rb") as file:
            return file.read()

    def _place(self, path: str) -> Place | None:
        folder, _, name = path.rpartition("/")
        for each, text in self._folders.items():
            if folder == text and name not in NOT_RECORDED:
                return each, name
        return None

    def _list(self, folder: str) -> Names:
        with os.scandir(self._folders[folder]) as entries:
            return {
                entry.name: entry.inode()
                for entry in entries
                if entry.is_file() and entry.name not in NOT_RECORDED
            }


def _versions(durable: bytes, present: bytes) -> tuple[bytes, ...]:
    return (durable,) if durable == present else (durable, present)
