"""A committed entry that has rotted before it is applied: it is mended in service, then applied."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dledger_formats.protocol.register import SET
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.raft.yielding import ReportedCommit
from dledger_node.state_machine import apply
from dledger_node.state_machine.apply import Applying
from dledger_node.state_machine.register import Register
from dledger_node.state_machine.restore import Applied
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.snapshots.snapshots import Snapshots
from dledger_wire.listener import until

LAST = 99
ROTTEN_BYTE = 600


class Rotten:
    """A log with a rotten entry, whose entries the checkpoint knows as committed; and its state."""

    def __init__(self, folder: Path) -> None:
        self.store = LogStore.open(
            folder, segment_size_bytes=1 << 16, index_segment_size_bytes=3200
        )
        self.store.append_noop(1)
        self.store.append_bodies([SET.pack(1, k) for k in range(1, LAST + 1)], 1)
        target = self.store.flush_target()
        self.store.flush(target)
        self.store.flushed(target)
        self.store.save_checkpoint(LAST)
        self.file = self.store._files.data.files[0]
        self.sound = self.file.read(ROTTEN_BYTE, 8)
        self.file.write(ROTTEN_BYTE, bytes([9]) * 8)
        self.failed: list[BaseException] = []
        self.reported_commit = ReportedCommit(index=-1, is_settled=False)
        self.applying = Applying(
            "register",
            Applied(machine=Register()),
            Snapshots(folder, reserved=3),
            self.store,
            core=self,
            fail=self.failed.append,
        )

    def note_state(self, *, is_behind: bool) -> None:
        pass

    def mend(self) -> None:
        """Do what the scrubber does."""
        self.file.write(ROTTEN_BYTE, self.sound)
        self.store.damage = None


@pytest.fixture
async def rotten(tmp_path: Path) -> AsyncIterator[Rotten]:
    made = Rotten(tmp_path)
    yield made
    await made.applying.close()
    made.store.close()


async def test_a_rotten_entry_is_reported_and_applied_once_it_is_mended(rotten: Rotten) -> None:
    rotten.applying.on_turn(LAST)
    await until(lambda: rotten.store.damage is not None)
    damage = rotten.store.damage
    assert damage is not None
    assert (damage.damage, rotten.failed) == (Damage.BAD_ENTRY, [])

    rotten.applying.on_turn(LAST)
    assert not rotten.applying.is_under_way, "nothing is tried until the entry is mended"
    rotten.mend()
    await until(lambda: rotten.applying.index == LAST)
    assert rotten.failed == []


async def test_an_entry_that_nobody_mends_ends_the_member(
    rotten: Rotten, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "MENDING_TIMEOUT_S", 0.0)
    rotten.applying.on_turn(LAST)
    await until(lambda: bool(rotten.failed))

    [error] = rotten.failed
    assert isinstance(error, StoreDamagedError)


async def test_an_entry_that_is_found_rotten_again_and_again_ends_the_member(
    rotten: Rotten, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "MENDING_TIMEOUT_S", 0.5)
    rotten.applying.on_turn(LAST)
    async with asyncio.timeout(20):
        while not rotten.failed:
            rotten.store.damage = None
            await asyncio.sleep(0.001)

    assert isinstance(rotten.failed[0], StoreDamagedError)


async def test_a_member_that_stops_waits_for_no_rotten_entry(rotten: Rotten) -> None:
    may_read, read = threading.Event(), rotten.store.read_range

    def read_late(*range_: int) -> object:
        may_read.wait()
        return read(*range_)

    rotten.store.read_range = read_late  # type: ignore[method-assign, assignment]
    rotten.applying.on_turn(LAST)
    closing = asyncio.create_task(rotten.applying.close())
    await asyncio.sleep(0)
    may_read.set()
    await closing
    await asyncio.sleep(0)

    assert rotten.applying._mending is None
    assert rotten.failed == []
