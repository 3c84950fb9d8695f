"""Run cells of the grid and judge them: no wrong data is served, and the group continues.

In each cell the group accepts appends throughout, no client receives a wrong byte, the struck
member returns to service by itself and can lead, and at the end all three logs are sound and equal.
A restart follows for files that only a start reads.
"""

import asyncio
import contextlib
import logging
import re
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dledger_client.client import DLedgerClient
from dledger_client.errors import ClientError
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.snapshots import snapshots
from dledger_store_faults import grid
from dledger_store_faults.bad_blocks import BYTES_CHANGE, Fault, FaultyDisk
from dledger_store_faults.grid import STRUCK, Cell, Moment, Role, Template
from dledger_store_faults.members import LocalMembers, in_a_hurry
from dledger_store_faults.tally import Tally

logger = logging.getLogger(__name__)

AT_ONCE = 6
"""Groups that run concurrently."""
APPENDS = 24
"""Almost a segment."""
SEGMENTS_AHEAD = 3
"""A leader has two preallocated after the one in which its log ends."""
READS_AT_ONCE = 16


def judge_block_faults(
    top: Path, count: int, seed: int, *, only: str = "", parts: int = 1, part: int = 0
) -> Tally:
    """Judge one of several parts of `count` cells, or of all cells for 0.

    `only` is a pattern of the descriptions of the cells to choose from.
    """
    tally, began, faulty_disk = Tally(), time.monotonic(), FaultyDisk()

    async def judge() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(16 * AT_ONCE))
        loop.set_exception_handler(lambda _, context: tally.blame([f"unhandled: {context}"]))
        template = await grid.make_template(top / "template")
        every_cell = [
            cell for cell in grid.cells(template, top / "scratch") if re.search(only, str(cell))
        ]
        chosen = grid.sample(every_cell, count or len(every_cell), seed)[part::parts]
        tally.count("cells of the grid", len(every_cell))
        tally.count("cells chosen", len(chosen))
        with faulty_disk.installed():
            await _run(chosen, template, top, faulty_disk, tally)

    with in_a_hurry():
        asyncio.run(judge())
    tally.seconds = time.monotonic() - began
    return tally


async def _run(
    chosen: Sequence[Cell], template: Template, top: Path, faulty_disk: FaultyDisk, tally: Tally
) -> None:
    waiting = iter(enumerate(chosen))

    async def one_after_another() -> None:
        for number, cell in waiting:
            folder = top / f"cell-{number}"
            tally.faults += 1
            try:
                await _Case(cell, template, folder, faulty_disk, tally).judge()
                logger.info("judged: %s", cell)
            except Exception as error:
                logger.exception("%s", cell)
                tally.blame([f"{cell}: {error!r}"])
            finally:
                faulty_disk.repair(folder / f"dledger-{STRUCK}")
                shutil.rmtree(folder, ignore_errors=True)

    await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))


class _Case:
    """One cell in progress."""

    def __init__(
        self, cell: Cell, template: Template, folder: Path, faulty_disk: FaultyDisk, tally: Tally
    ) -> None:
        self._cell = cell
        self._folder = folder
        self._disk = faulty_disk
        self._tally = tally
        self._bodies, self._values = dict(template.bodies), dict(template.values)
        self._appended = len(template.bodies)
        template.copy(folder, healing=cell.kind in grid.HEALING_KINDS)

    async def judge(self) -> None:
        """Run the cell. Raises AssertionError, or any other error of the group."""
        async with LocalMembers(self._folder, grid.SETTINGS) as group:
            await self._begin(group)
            await self._meet(group)
            await self._read_all(group)
            if self._cell.fault is not Fault.READ:
                self._repair_block()
            await group.wait_until_healed(*group.members)
            if self._cell.moment is Moment.SERVING:
                await group.members[STRUCK].stop()
                group.start(STRUCK)
                await self._append(group)
                await group.wait_until_healed(*group.members)
            await group.let_lead(STRUCK)
            await self._read_all(group)
            await self._append(group)
            await group.wait_until_healed(*group.members)
            ends = [member.ended_by for member in group.members.values()]
            assert not any(ends), f"a process ended: {ends}"
        if self._cell.fault is Fault.READ:
            self._repair_block()
        self._look_at_files()

    async def _begin(self, group: LocalMembers) -> None:
        """Start the members, and make the block go bad at the cell's moment."""
        match self._cell.moment, self._cell.role:
            case Moment.START, Role.LEADER:
                self._strike()
                group.start(*group.members)
            case Moment.START, Role.FOLLOWER:
                group.start("n1", "n2")
                await group.wait_until_healed("n1", "n2")
                self._strike()
                group.start(STRUCK)
            case _:
                group.start("n0", "n1")
                await group.wait_until_healed("n0", "n1")
                await group.let_lead(STRUCK if self._cell.role is Role.LEADER else "n1")
                self._strike()
                group.start("n2")

    async def _meet(self, group: LocalMembers) -> None:
        """Make the group read or write the block, with concurrent appends."""
        kind, writes = self._cell.kind, self._cell.fault in grid.WRITE_FAULTS
        batches = 1
        if kind == grid.SPARE:
            batches = 2 * SEGMENTS_AHEAD
        elif kind.startswith("new segment") or (kind in ("producers", "removals") and writes):
            batches = SEGMENTS_AHEAD
        elif kind == "memberships" and writes:
            async with group.client() as client:
                await client.change_membership(ChangeKind.ADD_LEARNER, "n3")
                await client.change_membership(ChangeKind.REMOVE, "n3")
        elif kind == "currterm" and writes and self._cell.moment is Moment.SERVING:
            await group.let_lead("n1" if self._cell.role is Role.LEADER else "n2")
        for _ in range(batches):
            await self._append(group)
        if kind == "removals" and writes:
            await group.wait_until(lambda: self._disk.is_met(self._struck), "a segment is removed")

    @property
    def _struck(self) -> Path:
        return self._folder / f"dledger-{STRUCK}"

    def _strike(self) -> None:
        self._disk.strike(self._struck, self._cell.block, self._cell.fault)

    def _repair_block(self) -> None:
        """Make the block writable again; changed bytes stay changed."""
        met = self._disk.repair(self._struck)
        if self._cell.fault not in BYTES_CHANGE:
            self._tally.count(f"{self._cell.fault}: {'met' if met else 'not met'}")
            if not met:
                logger.info("not met: %s", self._cell)

    async def _append(self, group: LocalMembers) -> None:
        bodies = grid.bodies_of(self._appended, APPENDS)
        began = time.monotonic()
        self._bodies |= await grid.append(group, bodies, at_least_once=True)
        pause_ms = int(1000 * (time.monotonic() - began))
        slowest_ms = self._tally.details.get("slowest appends, ms", 0)
        self._tally.details["slowest appends, ms"] = max(slowest_ms, pause_ms)
        self._values |= grid.values_of(bodies)
        self._appended += APPENDS

    async def _read_all(self, group: LocalMembers) -> None:
        """Read every entry and every key of the register."""
        async with group.client() as client:
            bounds = await client.bounds()
            indexes = [index for index in self._bodies if index >= bounds.begin_index]
            for at in range(0, len(indexes), READS_AT_ONCE):
                some = indexes[at : at + READS_AT_ONCE]
                await asyncio.gather(*(self._read(client, index) for index in some))
            keys = sorted(self._values)
            found = await asyncio.gather(*(client.read_register(key) for key in keys))
            assert dict(zip(keys, found, strict=True)) == self._values

    async def _read(self, client: DLedgerClient, index: int) -> None:
        try:
            entry = await client.get(index)
        except ClientError:  # it may have been removed; the files are checked later
            self._tally.count("reads refused")
            return
        assert entry.body == self._bodies[index], f"entry {index} is served as {entry.body!r:.80}"

    def _look_at_files(self) -> None:
        """Check that all logs are equal and complete, and that no snapshot is damaged."""
        logs = [_entries(self._folder / f"dledger-n{number}") for number in range(3)]
        # A leader that stops transfers its leadership, and the new leader may write an entry.
        first, last = max(min(log) for log in logs), min(max(log) for log in logs)
        assert last >= max(self._bodies), f"the logs end with entry {last}"
        for index in range(first, last + 1):
            assert logs[0][index] == logs[1][index] == logs[2][index], f"entry {index} differs"
        for index, body in self._bodies.items():
            assert index < first or logs[0][index][2] == body, f"entry {index} has another body"
        for number in range(3):
            folder = self._folder / f"dledger-n{number}" / snapshots.FOLDER_NAME
            assert not snapshots.list_snapshots(folder)[1]


def _entries(folder: Path) -> dict[int, tuple[int, int, bytes]]:
    """Verify all entries of a stopped member; return term, chain CRC and body by index."""
    with contextlib.closing(LogStore.open(folder, **grid.SIZES, verify_all=True)) as store:
        found = {}
        for index in range(store.begin_index, store.end_index + 1):
            header, body = store.entry(index)
            found[index] = (header.term, header.chain_crc, body)
        return found
