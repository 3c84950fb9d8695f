"""After a simulated power cut at any moment, the store opens and keeps its promises.

A model of the disk stands between the store and its files. It tracks what was synced: contents by
fdatasync, names by fsync of their folder. A power cut leaves each sector of each file as it was
synced or as it was written later, and any prefix of the changes of names. Cuts come before a sync.
"""

import contextlib
import os
import random
from pathlib import Path

import pytest

from dledger_formats.log import disk as disk_format
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.segments import segment_list
from dledger_node.store.segments.segment import Segment

pytestmark = pytest.mark.storefaults

SECTOR_BYTES = 512
SIZES = {"segment_size_bytes": 4096, "index_segment_size_bytes": 1600}


class PowerCut(BaseException):
    """Not an Exception, so that no handler in the store catches it."""


class Disk:
    """The durable content of the disk under one store folder."""

    def __init__(self, choices: random.Random, patch: pytest.MonkeyPatch) -> None:
        self.choices = choices
        self.cut_probability = 0.0
        self.contents: dict[int, bytes] = {}
        self.names: dict[str, dict[str, int]] = {"data": {}, "index": {}}
        self._sync = Segment.sync
        self._sync_folder = segment_list.sync_folder
        patch.setattr(Segment, "sync", lambda file: self.sync(file))
        patch.setattr(segment_list, "sync_folder", self.sync_folder)

    def sync(self, file: Segment) -> None:
        self._maybe_cut()
        self._sync(file)
        with contextlib.suppress(FileNotFoundError):  # the file has been removed
            self.contents[file.path.stat().st_ino] = file.read(0, file.size)

    def sync_folder(self, folder: Path) -> None:
        self._maybe_cut()
        self._sync_folder(folder)
        if folder.name in self.names:
            self.names[folder.name] = inodes(folder)

    def leave(self, source: Path, target: Path) -> None:
        """Write to `target` what a power cut leaves of `source`; all of it is durable then."""
        keep = self.choices.random()
        target.mkdir()
        for path in source.glob("checkpoint*"):
            (target / path.name).write_bytes(path.read_bytes())
        for folder in ("data", "index"):
            (target / folder).mkdir()
            now = inodes(source / folder)
            for name, inode in self._names_left(folder, now).items():
                old = self.contents.get(inode, bytes(4096 if folder == "data" else 1600))
                new = (source / folder / name).read_bytes() if now.get(name) == inode else old
                (target / folder / name).write_bytes(self._mixed(old, new, keep))
        self.contents, self.names = {}, {name: inodes(target / name) for name in self.names}
        for path in (*(target / "data").iterdir(), *(target / "index").iterdir()):
            self.contents[path.stat().st_ino] = path.read_bytes()

    def _names_left(self, folder: str, now: dict[str, int]) -> dict[str, int]:
        """Apply a prefix of the changes: removals, newest first, then additions, oldest first."""
        names = dict(self.names[folder])
        removed = sorted((name for name in names if now.get(name) != names[name]), reverse=True)
        added = sorted(name for name in now if now[name] != names.get(name))
        done = self.choices.randrange(len(removed) + len(added) + 1)
        for name in removed[:done]:
            del names[name]
        for name in added[: max(0, done - len(removed))]:
            names[name] = now[name]
        return names

    def _mixed(self, old: bytes, new: bytes, keep: float) -> bytes:
        return b"".join(
            (new if self.choices.random() < keep else old)[at : at + SECTOR_BYTES]
            for at in range(0, len(new), SECTOR_BYTES)
        )

    def _maybe_cut(self) -> None:
        if self.choices.random() < self.cut_probability:
            raise PowerCut


def inodes(folder: Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}


class Story:
    """A store that is written to, and the entries that it may and must hold after a power cut."""

    def __init__(self, choices: random.Random, folder: Path) -> None:
        self.choices = choices
        self.folder = folder
        self.body_size_max = choices.choice([40, 1500])
        self.term = 0
        self.begin_index = 0
        self.bodies: list[bytes] = []
        """The longest log that may be found; any prefix down to `durable_index` may be too."""
        self.durable_index = -1
        self.replaced: tuple[int, list[bytes]] | None = None
        """Beginning and bodies of the old log, of which a prefix may be found instead."""

    def open(self) -> None:
        self.store = LogStore.open(self.folder, **SIZES)
        begin_index, end_index = self.store.begin_index, self.store.end_index
        found = [self.store.entry(index)[1] for index in range(begin_index, end_index + 1)]
        assert self.durable_index <= end_index
        if self.replaced is not None and begin_index == self.replaced[0]:
            assert found == self.replaced[1][: len(found)]
        elif found:
            assert (begin_index, found) == (self.begin_index, self.bodies[: len(found)])
        self.begin_index, self.bodies, self.replaced = begin_index, found, None
        self.durable_index = end_index
        self.term = max(self.term, self.store.end_term)

    def step(self) -> None:
        match self.choices.randrange(13):
            case 0:
                self.truncate()
            case 12:
                self.replace()
            case 1 | 2 | 3:
                self.flush()
            case 4:
                self.store.save_checkpoint(self.durable_index - self.choices.randrange(20))
            case 5:
                self.store.preallocate()
            case _:
                self.append()

    def append(self) -> None:
        sizes = self.choices.choices(range(self.body_size_max), k=self.choices.randrange(1, 20))
        bodies = [self.choices.randbytes(size) for size in sizes]
        self.bodies += bodies
        self.store.append_bodies(bodies, self.term)

    def flush(self) -> None:
        target = self.store.flush_target()
        self.store.flush(target)
        self.store.flushed(target)
        self.durable_index = self.store.durable_index
        self.replaced = None

    def replace(self) -> None:
        """Replace the log, as a member does that lags behind its leader's first entry."""
        first_index = self.begin_index + len(self.bodies) + self.choices.randrange(1, 30)
        bodies = [self.choices.randbytes(self.choices.randrange(400)) for _ in range(5)]
        self.term += 1
        packed = disk_format.pack_entries(
            bodies, magic=disk_format.NORMAL, first_index=first_index, term=self.term,
            pos=SIZES["segment_size_bytes"] * self.choices.randrange(1, 20),
            previous_chain_crc=self.choices.randrange(1 << 32),
        )  # fmt: skip
        block = self.store.front.check(
            packed.data, first_index=first_index, last_index=first_index + 4, term=self.term
        )
        if self.replaced is None:
            self.replaced = (self.begin_index, self.bodies)
        self.begin_index, self.bodies, self.durable_index = first_index, bodies, -1
        self.store.replace(block)

    def truncate(self) -> None:
        first_index = self.begin_index + len(self.bodies) - self.choices.randrange(15)
        if first_index <= max(self.begin_index, self.store.committed_index):
            return
        self.durable_index = min(self.durable_index, first_index - 1)
        self.store.truncate(first_index)
        del self.bodies[first_index - self.begin_index :]
        self.term += 1

    def abandon(self) -> None:
        """Release the files without syncing them."""
        self.store._files.data.close()
        self.store._files.index.close()
        self.store._lock.close()


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(80))
def test_a_power_cut_at_any_moment_keeps_every_promise(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    choices = random.Random(seed)
    disk = Disk(choices, monkeypatch)
    story = Story(choices, memory_path / "0")
    story.open()
    disk.names = {name: inodes(story.folder / name) for name in disk.names}
    for number in range(1, 6):
        disk.cut_probability = choices.choice([0, 0.05, 0.3])
        with contextlib.suppress(PowerCut):
            for _ in range(choices.randrange(40)):
                story.step()
        story.abandon()
        disk.leave(story.folder, memory_path / str(number))
        story.folder = memory_path / str(number)
        while True:
            try:
                story.open()
            except PowerCut:
                disk.leave(story.folder, story.folder.with_name(story.folder.name + "x"))
                story.folder = story.folder.with_name(story.folder.name + "x")
                disk.cut_probability /= 2
            else:
                break
    story.abandon()
