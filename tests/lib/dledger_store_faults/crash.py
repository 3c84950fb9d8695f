"""Open and judge every disk state that a crash may leave of a recorded story.

At each moment of a story the legal states of the disk are enumerated: which name changes were
applied, which unsynced sectors were written, in which version, and one of them torn. If there are
few, all are judged; if there are many: none, all, single ones, all but single ones, random ones.
"""

import hashlib
import itertools
import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dledger_node.errors import NodeError
from dledger_node.store.log.log_store import LogStore
from dledger_store_faults.account import Account
from dledger_store_faults.contents import LARGER_SEGMENTS, SMALL_SEGMENTS
from dledger_store_faults.disk_model import (
    FOLDERS,
    SECTOR_BYTES,
    DiskState,
    Names,
    Recorder,
    apply_changes,
)
from dledger_store_faults.story import Story
from dledger_store_faults.tally import Tally

FIRST_STEPS_MAX = 10
STEPS = 9
STATES_OF_A_MOMENT = 24
STATES_WITHIN_A_RECOVERY = 4
SUBSETS_OF = 3
NAMINGS_MAX = 6

Image = dict[str, bytes]
"""Contents by path within the store's folder."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A state of the disk, and the promises at that moment."""

    disk: DiskState
    account: Account


def judge_states(top: Path, count: int, seed: int, deaf_to: str = "") -> Tally:
    """Judge `count` states, distinct for each moment, of as many stories as needed."""
    choices, tally, began = random.Random(seed), Tally(), time.monotonic()
    while tally.faults < count:
        sizes = LARGER_SEGMENTS if choices.randrange(8) == 0 else SMALL_SEGMENTS
        moments = record(top / "store", sizes, choices, deaf_to)
        tally.count("stories")
        tally.count("moments", len(moments))
        for moment in moments:
            judge_moment(top, moment, choices, tally, count)
            if tally.faults >= count:
                break
    tally.seconds = time.monotonic() - began
    return tally


def record(
    folder: Path, sizes: dict[str, int], choices: random.Random, deaf_to: str = ""
) -> list[Moment]:
    """Record the moments of a store's second run, which ends by a kill, and of its third.

    The first run only writes a log. A kill loses nothing and makes nothing durable.
    """
    shutil.rmtree(folder, ignore_errors=True)
    account = Account(sizes)
    Story(folder, sizes, choices, account.process, lazy=True).live(
        choices.randrange(FIRST_STEPS_MAX)
    )
    account.durable_index = len(account.terms) - 1  # the store was closed
    moments: list[Moment] = []
    recorder = Recorder(folder, lambda disk: moments.append(Moment(disk, account.copy())), deaf_to)
    with recorder.recording():
        for killed in (True, False):
            story = Story(
                folder, sizes, choices, account.process, lazy=True, between_steps=recorder.observe
            )
            # Entries that an open store serves must survive the next crash.
            account.found(story.end_index, story.committed_index)
            recorder.observe(promised=True)
            story.live(STEPS, killed=killed)
    return moments


def judge_moment(
    top: Path, moment: Moment, choices: random.Random, tally: Tally, count: int
) -> None:
    """Judge the states of one moment, and sometimes the states of a crash during recovery."""
    seen: set[bytes] = set()
    limit = min(count, tally.faults + STATES_OF_A_MOMENT)
    for image in itertools.islice(images(moment.disk, choices), 3 * STATES_OF_A_MOMENT):
        if tally.faults >= limit:
            break
        if is_new(image, seen):
            write_image(top / "image", image)
            moment.account.copy().judge(top / "image", tally)
    if choices.randrange(8) == 0:
        image = next(itertools.islice(images(moment.disk, choices), 2, None), None)
        if image is not None:
            judge_recovery(top, image, moment.account, choices, tally, count)


def judge_recovery(
    top: Path, image: Image, account: Account, choices: random.Random, tally: Tally, count: int
) -> None:
    """Judge the states of a second crash, while the store recovers from the first."""
    moments: list[Moment] = []
    write_image(top / "recovering", image)
    recorder = Recorder(
        top / "recovering", lambda disk: moments.append(Moment(disk, account.copy()))
    )
    with recorder.recording():
        try:
            store = LogStore.open(top / "recovering", **account.sizes)
        except NodeError:
            return  # already judged
    store.close()
    for moment in moments:
        seen: set[bytes] = set()
        for again in itertools.islice(images(moment.disk, choices), STATES_WITHIN_A_RECOVERY):
            if tally.faults < count and is_new(again, seen):
                write_image(top / "image", again)
                moment.account.copy().judge(top / "image", tally)
                tally.count("within recoveries")


def images(disk: DiskState, choices: random.Random) -> Iterator[Image]:
    """Yield legal states after a crash: the systematic ones, then random ones without end."""
    namings = list(itertools.islice(_namings(disk), NAMINGS_MAX))
    for names in (namings[-1], namings[0], *namings[1:-1]):
        for kept in _kept_sets(_loose_sectors(disk, names), choices):
            yield {
                path: _with_kept(versions, kept, file)
                for path, file, versions in _files(disk, names)
            }
    while True:
        keep = choices.random()
        torn = choices.randrange(4) == 0
        yield {
            path: _mixed(versions, keep, choices, torn=torn)
            for path, _, versions in _files(disk, choices.choice(namings))
        }


def is_new(image: Image, seen: set[bytes]) -> bool:
    """Return whether an image is new, and add it to `seen`."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(image):
        digest.update(f"{path} {len(image[path])} ".encode())
        digest.update(image[path])
    known = len(seen)
    seen.add(digest.digest())
    return len(seen) > known


def write_image(folder: Path, image: Image) -> None:
    """Replace the content of a folder by an image."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    top = str(folder)
    for path, content in image.items():
        fd = os.open(f"{top}/{path}", os.O_WRONLY | os.O_CREAT, 0o640)
        os.write(fd, content)
        os.close(fd)


def _files(
    disk: DiskState, names: dict[str, Names]
) -> Iterator[tuple[str, int, tuple[bytes, ...]]]:
    for folder, files in names.items():
        for name, file in sorted(files.items()):
            yield f"{folder}/{name}".lstrip("/"), file, disk.versions[file]


def _with_kept(versions: tuple[bytes, ...], kept: set[tuple[int, int]], file: int) -> bytes:
    """Return the newest version of the kept sectors, and the durable version of the others."""
    mine = {sector for kept_file, sector in kept if kept_file == file}
    length = len(versions[-1] if mine else versions[0])
    return b"".join(
        _sector(versions[-1] if sector in mine else versions[0], sector, length)
        for sector in range(-(-length // SECTOR_BYTES))
    )


def _mixed(
    versions: tuple[bytes, ...], keep: float, choices: random.Random, *, torn: bool
) -> bytes:
    """Return sectors of random versions, with the length of any; `torn` mixes two in one."""
    if len(versions) == 1:
        return versions[0]
    length = len(choices.choice(versions))
    sectors = [
        _sector(choices.choice(versions) if choices.random() < keep else versions[0], n, length)
        for n in range(-(-length // SECTOR_BYTES))
    ]
    if torn and sectors:
        number = choices.randrange(len(sectors))
        other = _sector(choices.choice(versions), number, length)
        cut = choices.randrange(len(other) + 1)
        sectors[number] = other[:cut] + sectors[number][cut:]
    return b"".join(sectors)


def _sector(content: bytes, number: int, length: int) -> bytes:
    """Return a sector of a file of this length, with zeros after the end of the content."""
    start = number * SECTOR_BYTES
    end = min(length, start + SECTOR_BYTES)
    return content[start:end].ljust(end - start, b"\0")


def _namings(disk: DiskState) -> Iterator[dict[str, Names]]:
    """Yield the legal names: a prefix of the changes of each folder."""
    of_folder = {name: [c for c in disk.changes if c.folder == name] for name in FOLDERS}
    lengths = [range(len(changes) + 1) for changes in of_folder.values()]
    for chosen in itertools.product(*lengths):
        names = {folder: dict(durable) for folder, durable in disk.names.items()}
        done = [
            change
            for changes, length in zip(of_folder.values(), chosen, strict=True)
            for change in changes[:length]
        ]
        apply_changes(names, list(disk.changes), done)
        yield names


def _loose_sectors(disk: DiskState, names: dict[str, Names]) -> list[tuple[int, int]]:
    """Return (file, sector) of each sector that has changed since the last sync."""
    loose = []
    for file in {file for folder in names.values() for file in folder.values()}:
        old, new = disk.versions[file][0], disk.versions[file][-1]
        for sector in range(-(-len(new) // SECTOR_BYTES)):
            part = slice(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES)
            if old[part].ljust(len(new[part]), b"\0") != new[part]:
                loose.append((file, sector))
    return sorted(loose)


def _kept_sets(
    loose: list[tuple[int, int]], choices: random.Random
) -> Iterator[set[tuple[int, int]]]:
    everything = set(loose)
    if len(loose) <= SUBSETS_OF:
        for count in range(len(loose) + 1):
            yield from map(set, itertools.combinations(loose, count))
        return
    yield set()
    yield everything
    for one in choices.sample(loose, min(4, len(loose))):
        yield {one}
        yield everything - {one}
