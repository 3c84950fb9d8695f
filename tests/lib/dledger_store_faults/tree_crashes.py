"""What a disk may hold of a tree of folders after a crash, known from the calls that were made.

Contents are durable by fsync of the file, names by fsync of their folder; nothing else is. Before
that a file holds what was durable, all of what was written, half of it, or zeros; and of a folder's
changes of names any prefix may have come through, each folder for itself. A rename within a folder
is one change.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_CALLS = ("fsync", "mkdir", "rename", "replace", "rmdir", "unlink")

Names = dict[str, int]
"""Which file or folder has a name."""
Tree = dict[str, bytes | None]
"""Contents by path; None for a folder."""


@dataclass(slots=True)
class _Folder:
    durable: Names = field(default_factory=dict)
    later: list[Names] = field(default_factory=list)
    """The names after each change since."""


@dataclass(slots=True)
class _File:
    written: bytes = b""
    synced: bytes = b""


@dataclass(slots=True)
class TreeRecorder:
    """Follows a folder that exists; `on_moment` hears of the legal states before each call."""

    top: Path
    on_moment: Callable[[Iterator[Tree]], None]
    deaf_to: str = ""
    """Syncs that make nothing durable here: `files` or `folders`. Then promises must be broken."""
    _nodes: list[_Folder | _File] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)
    """By inode, of what is there now: its place in `_nodes`. A disk gives inodes again."""

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Stand before `os`; what the folder holds now is durable."""
        self._look()
        for node in self._nodes:
            _sync(node)
        real = {name: getattr(os, name) for name in _CALLS}
        for name, call in real.items():
            setattr(os, name, self._wrapped(name, call))
        try:
            yield
        finally:
            for name, call in real.items():
                setattr(os, name, call)

    def _wrapped(self, name: str, call: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._look()
            self.on_moment(self._states())
            result = call(*args, **kwargs)
            if name == "fsync":
                self._hear_sync(os.fstat(args[0]).st_ino)
            self._look()
            return result

        return wrapper

    def _hear_sync(self, inode: int) -> None:
        if inode in self._numbers:
            node = self._nodes[self._numbers[inode]]
            if self.deaf_to != ("files" if isinstance(node, _File) else "folders"):
                _sync(node)

    def _look(self) -> None:
        """Note what has changed since the last look."""
        listed: dict[int, dict[str, int]] = {os.stat(self.top).st_ino: {}}
        contents: dict[int, bytes] = {}
        for path, folders, files in os.walk(self.top):
            names = listed[os.stat(path).st_ino]
            for name in (*folders, *files):
                names[name] = os.stat(Path(path, name)).st_ino
            listed |= {names[name]: {} for name in folders}
            contents |= {names[name]: Path(path, name).read_bytes() for name in files}
        there = listed.keys() | contents.keys()
        self._numbers = {inode: at for inode, at in self._numbers.items() if inode in there}
        for inode in sorted(there - self._numbers.keys(), key=lambda one: one not in listed):
            self._numbers[inode] = len(self._nodes)
            self._nodes.append(_Folder() if inode in listed else _File())
        for inode, names in listed.items():
            folder = self._nodes[self._numbers[inode]]
            assert isinstance(folder, _Folder)
            now = {name: self._numbers[inode] for name, inode in names.items()}
            if now != (folder.later[-1] if folder.later else folder.durable):
                folder.later.append(now)
        for inode, written in contents.items():
            file = self._nodes[self._numbers[inode]]
            assert isinstance(file, _File)
            file.written = written

    def _states(self) -> Iterator[Tree]:
        return self._trees(self._numbers[os.stat(self.top).st_ino], "")

    def _trees(self, number: int, path: str) -> Iterator[Tree]:
        """Every legal state of what a folder or file may hold."""
        node = self._nodes[number]
        if isinstance(node, _File):
            for content in _contents(node):
                yield {path: content}
            return
        for names in (node.durable, *node.later):
            parts = [
                list(self._trees(each, f"{path}/{name}" if path else name))
                for name, each in sorted(names.items())
            ]
            for chosen in itertools.product(*parts):
                tree: Tree = {path: None} if path else {}
                for part in chosen:
                    tree |= part
                yield tree


def _sync(node: _Folder | _File) -> None:
    if isinstance(node, _File):
        node.synced = node.written
    elif node.later:
        node.durable, node.later = node.later[-1], []


def _contents(file: _File) -> set[bytes]:
    if file.written == file.synced:
        return {file.written}
    half = file.written[: len(file.written) // 2]
    return {file.synced, file.written, half, bytes(len(file.written))}


def write_tree(top: Path, tree: Tree) -> None:
    """Put a state on a disk, in a folder that does not exist yet."""
    top.mkdir(parents=True)
    for path, content in sorted(tree.items()):
        if content is None:
            (top / path).mkdir()
        else:
            (top / path).write_bytes(content)
