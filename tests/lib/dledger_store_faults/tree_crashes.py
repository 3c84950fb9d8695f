"""A model of what a disk may hold of a tree of folders after a crash, from the system calls.

Contents are durable by fsync of the file, names by fsync of their folder. Before that, a file holds
its durable content, all or half of its written content, or zeros. Of the name changes in a folder
any prefix may have been applied, independently of other folders. A rename within a folder is one
change.
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
"""The file or folder of each name."""
Tree = dict[str, bytes | None]
"""Contents by path; None for a folder."""


@dataclass(slots=True)
class _Folder:
    durable: Names = field(default_factory=dict)
    later: list[Names] = field(default_factory=list)
    """The names after each later change."""


@dataclass(slots=True)
class _File:
    written: bytes = b""
    synced: bytes = b""


@dataclass(slots=True)
class TreeRecorder:
    """Follows an existing folder and passes the legal states before each call to `on_moment`."""

    top: Path
    on_moment: Callable[[Iterator[Tree]], None]
    deaf_to: str = ""
    """Syncs that have no effect here, `files` or `folders`; as a control, promises must break."""
    _nodes: list[_Folder | _File] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)
    """The place in `_nodes` of each existing inode; a file system reuses inodes."""

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Patch `os`; the current content of the folder is durable."""
        self._detect()
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
            self._detect()
            self.on_moment(self._states())
            result = call(*args, **kwargs)
            if name == "fsync":
                self._synced(os.fstat(args[0]).st_ino)
            self._detect()
            return result

        return wrapper

    def _synced(self, inode: int) -> None:
        if inode in self._numbers:
            node = self._nodes[self._numbers[inode]]
            if self.deaf_to != ("files" if isinstance(node, _File) else "folders"):
                _sync(node)

    def _detect(self) -> None:
        """Detect all changes since the last call."""
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
        """Yield every legal state of a folder or file."""
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
    """Write a state to a folder that does not exist yet."""
    top.mkdir(parents=True)
    for path, content in sorted(tree.items()):
        if content is None:
            (top / path).mkdir()
        else:
            (top / path).write_bytes(content)
