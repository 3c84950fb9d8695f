"""The grid of one-block faults: every kind of file, block, fault, role and moment.

Its members have every kind of file: a log whose front was removed and the record of that, a state
with one snapshot, producers, memberships. n0 gets the bad block. n2 was away while the last entries
were appended, so the leader has to push them.
"""

import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any, Final

from dledger_client.append.outcomes import Acknowledged
from dledger_formats.log import disk
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_formats.protocol.register import SET
from dledger_node.healing import set_aside
from dledger_node.store.snapshots import snapshots
from dledger_store_faults.bad_blocks import BLOCK_BYTES, BYTES_CHANGE, Block, Fault
from dledger_store_faults.members import LocalMembers, Member

STRUCK: Final = "n0"
SIZES: Final = {"segment_size_bytes": 8192, "index_segment_size_bytes": 1600}
SNAPSHOT_THRESHOLD: Final = 20
SETTINGS: Final[dict[str, Any]] = {
    **SIZES,
    "retention_bytes": 3 * 8192,
    "state_machine": "register",
    "snapshot_threshold": SNAPSHOT_THRESHOLD,
    "snapshots_reserved": 1,
}
LONG_BYTES: Final = 700
ENTRIES: Final = 160
ENTRIES_WITHOUT_N2: Final = 24
SPARE: Final = "spare segment"
_SPARE_NAME: Final = r"(data|index)-\d+\.spare"


class Role(StrEnum):
    """The role of the struck member; at a start, its role before."""

    LEADER = "leader"
    FOLLOWER = "follower"


class Moment(StrEnum):
    """When the block goes bad."""

    START = "at a start"
    """At the start of the struck member: of a follower while its peers have a leader, of a leader
    together with its peers.
    """
    SERVING = "while it serves"


@dataclass(frozen=True, slots=True)
class Cell:
    """One case of the grid."""

    kind: str
    block: Block
    fault: Fault
    role: Role
    moment: Moment

    def __str__(self) -> str:
        block = self.block
        where = f"{block.name} bytes {block.start} to {block.end}"
        return f"{self.kind}: {self.fault} of {where}, {self.role} {self.moment}"


@dataclass(frozen=True, slots=True)
class Template:
    """The folders of a stopped group, which each cell copies."""

    folder: Path
    bodies: dict[int, bytes]
    """The acknowledged bodies, by index."""
    values: dict[int, int]
    """The content of the register."""

    @property
    def struck(self) -> Path:
        """The folder of the struck member's store."""
        return self.folder / f"dledger-{STRUCK}"

    def copy(self, target: Path, *, healing: bool) -> None:
        """Copy the folders; with `healing`, leave the struck member as stopped while it healed."""
        shutil.copytree(self.folder, target)
        if healing:
            set_aside_half(target / f"dledger-{STRUCK}")


def bodies_of(first_number: int, count: int) -> list[bytes]:
    """Return bodies that depend only on their number; every second one sets the register."""
    return [
        SET.pack(number % 40, number)
        if number % 2
        else random.Random(number).randbytes(LONG_BYTES - number % 300)
        for number in range(first_number, first_number + count)
    ]


def values_of(bodies: Sequence[bytes]) -> dict[int, int]:
    """Return the register after applying these bodies."""
    return dict(SET.unpack(body) for body in bodies if len(body) == SET.size)


async def append(group: LocalMembers, bodies: list[bytes], **options: Any) -> dict[int, bytes]:
    """Append bodies, which must all be acknowledged; return them by index."""
    stored: dict[int, bytes] = {}
    async with group.client(**options) as client:
        async for outcome in client.append_all(bodies):
            assert isinstance(outcome, Acknowledged), outcome
            stored[outcome.index] = bodies[outcome.number]
    return stored


async def make_template(folder: Path) -> Template:
    """Bring a group to the state that the module describes, and stop it cleanly."""
    bodies = bodies_of(0, ENTRIES + ENTRIES_WITHOUT_N2)
    async with LocalMembers(folder, SETTINGS) as group:
        group.start(*group.members)
        await group.wait_until_healed(*group.members)
        async with group.client() as client:
            await client.change_membership(ChangeKind.ADD_LEARNER, "n3")
            await client.change_membership(ChangeKind.REMOVE, "n3")
        stored = await append(group, bodies[:ENTRIES], idempotent=True)
        await group.wait_until_healed(*group.members)

        def have_snapshots_and_no_front() -> bool:
            views = [member.status for member in group.members.values()]
            return all(view and view.ledger_begin_index > 0 for view in views) and all(
                any((member.folder / "snapshot").glob("snapshot_*"))
                for member in group.members.values()
            )

        await group.wait_until(have_snapshots_and_no_front, "all have removed segments")
        await group.let_lead(STRUCK)
        await group.members["n2"].stop()
        stored |= await append(group, bodies[ENTRIES:], at_least_once=True)
        both = [group.members["n0"], group.members["n1"]]
        while not await _have_new_snapshots(group, both):
            more = bodies_of(len(bodies), SNAPSHOT_THRESHOLD)
            bodies += more
            stored |= await append(group, more, at_least_once=True)
    return Template(folder, stored, values_of(bodies))


async def _have_new_snapshots(group: LocalMembers, members: Sequence[Member]) -> bool:
    """Return whether the newest snapshots are so recent that a restart takes no new ones."""

    def lags() -> list[int]:
        return [_lag_of_snapshot(member) for member in members]

    await group.wait_until_healed(*(member.settings.self_id for member in members))
    await group.wait_until(lambda: max(lags()) < SNAPSHOT_THRESHOLD, "snapshots are taken")
    return max(lags()) <= SNAPSHOT_THRESHOLD // 2


def _lag_of_snapshot(member: Member) -> int:
    """Return the number of committed entries after the newest snapshot."""
    held, _ = snapshots.list_snapshots(member.folder / snapshots.FOLDER_NAME)
    view = member.status
    return view.committed_index - held[-1].last_included_index if view and held else sys.maxsize


def set_aside_half(folder: Path) -> None:
    """Leave a member's store as if the member was stopped while it healed."""
    second = sorted((folder / disk.DATA_FOLDER).iterdir())[1]
    content = bytearray(second.read_bytes())
    content[100] ^= 1
    second.write_bytes(content)
    found = set_aside.survey(folder, **SIZES)
    set_aside.set_aside_log(folder, found, verdict="BadEntry", moment="20260101T000000.000000Z")


READ_FAULTS: Final = (*BYTES_CHANGE, Fault.READ)
WRITE_FAULTS: Final = (Fault.WRITE, Fault.SYNC, Fault.NO_ROOM)
HEALING_KINDS: Final = ("set-aside segment", "set-aside note")
AT_A_START: Final = (*HEALING_KINDS, "ballast")
"""Kinds of files that exist, or are used, only at a start."""


def cells(template: Template, scratch: Path) -> Iterator[Cell]:
    """Yield all cells of the grid."""
    template.copy(scratch, healing=True)
    healing = scratch / f"dledger-{STRUCK}"
    found = [*_cells_of_log(template.struck), *_cells_of_files(template.struck)]
    found += _cells_of_healing(healing)
    shutil.rmtree(scratch)
    for (kind, block, fault), role, moment in product(found, Role, Moment):
        if kind in AT_A_START and moment is Moment.SERVING:
            continue
        yield Cell(kind, block, fault, role, moment)


_Spot = tuple[str, Block, Fault]


def _cells_of_log(folder: Path) -> Iterator[_Spot]:
    """Yield faults of segments: of reads where entries are, of writes after their end."""
    for of, size in (
        (disk.DATA_FOLDER, SIZES["segment_size_bytes"]),
        (disk.INDEX_FOLDER, SIZES["index_segment_size_bytes"]),
    ):
        paths = sorted((folder / of).iterdir())
        for path in paths:
            kind = f"{'last' if path is paths[-1] else 'sealed'} segment of {of}"
            used_end = len(path.read_bytes().rstrip(b"\0"))
            for block in _blocks(f"{of}/{path.name}", size):
                if block.start < used_end:
                    yield from ((kind, block, fault) for fault in READ_FAULTS)
                elif path is paths[-1]:
                    ahead = f"what lies ahead in {of}"
                    yield from ((ahead, block, fault) for fault in (Fault.FLIP, Fault.READ))
                if path is paths[-1] and block.end > used_end:
                    ahead = f"what lies ahead in {of}"
                    yield from ((ahead, block, fault) for fault in WRITE_FAULTS)
        following = f"{of}/{disk.file_name(int(paths[-1].name) + size)}"
        for block in _blocks(following, size):
            yield from ((f"new segment of {of}", block, fault) for fault in WRITE_FAULTS)
    spare = Block("the next one", _SPARE_NAME, 0, BLOCK_BYTES)
    yield from ((SPARE, spare, fault) for fault in (Fault.WRITE, Fault.NO_ROOM))


def _cells_of_files(folder: Path) -> Iterator[_Spot]:
    """Yield faults of the small files, which are written under another name and renamed."""
    (snapshot,) = (path.name for path in (folder / "snapshot").glob("snapshot_*"))
    for kind, name, written_as in (
        ("checkpoint", "checkpoint", r"checkpoint\.tmp"),
        ("currterm", "currterm", r"currterm\.tmp"),
        ("memberships", "memberships", r"memberships\.tmp"),
        ("producers", "producers", r"producers\.tmp"),
        ("removals", "removals", r"removals\.tmp"),
        ("snapshot data", f"snapshot/{snapshot}/data", r"snapshot/(install_)?tmp/data"),
        ("snapshot meta", f"snapshot/{snapshot}/snapshot_meta",
         r"snapshot/(install_)?tmp/snapshot_meta"),
    ):  # fmt: skip
        for block in _blocks(name, (folder / name).stat().st_size, written_as):
            yield from ((kind, block, fault) for fault in Fault)
    for block in _blocks("ballast", BLOCK_BYTES):
        yield from (("ballast", block, fault) for fault in Fault)


def _cells_of_healing(folder: Path) -> Iterator[_Spot]:
    """Yield faults of damaged files that were set aside, while the member heals."""
    (aside,) = folder.glob("damaged-*")
    for path in sorted(aside.iterdir()):
        kind = "set-aside note" if path.name == "healing" else "set-aside segment"
        for block in _blocks(f"{aside.name}/{path.name}", path.stat().st_size):
            yield from ((kind, block, fault) for fault in READ_FAULTS)


def _blocks(name: str, size: int, written_as: str = "") -> Iterator[Block]:
    for start in range(0, size, BLOCK_BYTES):
        end = min(size, start + BLOCK_BYTES)
        yield Block(name, written_as or name.replace(".", r"\."), start, end)


def sample(all_cells: Sequence[Cell], count: int, seed: int) -> list[Cell]:
    """Choose `count` cells: each combination of kind, fault, role and moment in turn, then blocks
    at random.
    """
    choices = random.Random(seed)
    by_sort: dict[tuple[str, ...], list[Cell]] = {}
    for cell in all_cells:
        by_sort.setdefault((cell.kind, cell.fault, cell.role, cell.moment), []).append(cell)
    for alike in by_sort.values():
        choices.shuffle(alike)
    sorts = sorted(by_sort)
    choices.shuffle(sorts)
    chosen: list[Cell] = []
    while len(chosen) < min(count, len(all_cells)):
        chosen += [by_sort[sort].pop() for sort in sorts if by_sort[sort]]
    return chosen[:count]
