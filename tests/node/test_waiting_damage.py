"""Damage that no peer can mend now keeps nothing else from being read and mended."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.settings import NodeSettings
from dledger_group.damaged import (
    BODIES,
    SEGMENT_BYTES,
    SIZES,
    append_all,
    counted,
    wait_until_level,
)
from dledger_node.config import store_folder
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.healing import waiting_ranges
from dledger_node.healing.mending import MendedTotals
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.served_segments import stored_bytes
from dledger_node.volume import scrub
from dledger_sim.stage.driver import CoreDriver
from dledger_store_files.contents import flush
from dledger_store_files.damage import flip
from dledger_store_files.shortage import no_more_files
from tools.groups.node_group import NodeGroup
from tools.groups.ports import free_ports
from tools.groups.waiting import wait_for

NOBODY_GIVES, GIVEN = 2, 5
"""The numbers of two damaged segments."""


class Twin:
    """A peer with the same log, which does not answer requests for some segments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.silent_segments = {NOBODY_GIVES}
        self.refusals = 0
        """How many requests it refuses before it answers others."""

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        if int(name) // SEGMENT_BYTES in self.silent_segments:
            raise OSError("no answer")
        if self.refusals:
            self.refusals -= 1
            raise LookupError("it is not there")
        return stored_bytes(self.folder / disk.DATA_FOLDER, name, at, size, 1 << 40)

    def close(self) -> None:
        pass


class Stage:
    """A member with a log of several segments, its twin, and the scrubbing of its log."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports()
        self.settings = settings = NodeSettings(
            group="g", self_id="n0", http_port=next(ports), store_base_dir=str(folder / "n0"),
            peers={one: f"127.0.0.1:{next(ports)}" for one in ("n0", "n1")},
            http_peers={one: f"127.0.0.1:{next(ports)}" for one in ("n0", "n1")},
            scrub_interval_s=1, **SIZES,
        )  # fmt: skip
        self.folder = store_folder(settings)
        self.store = LogStore.open(self.folder, **SIZES)
        self.store.append_bodies(BODIES, 1)
        flush(self.store)
        self.store.save_checkpoint(len(BODIES) - 1)
        self.store.distrust()
        self.twin = Twin(Path(shutil.copytree(self.folder, folder / "n1")))
        self.left: list[StoreDamagedError] = []
        self.totals = MendedTotals()
        self.scrub = scrub.Scrub(
            settings, self.store, self.totals, CoreDriver().raft, leave=self.left.append
        )
        self.scrub._peers["n1"] = self.twin

    def damage(self, *segments: int) -> None:
        for segment in segments:
            data = self.folder / disk.DATA_FOLDER
            flip(data, segment * SEGMENT_BYTES + 5000, segment_bytes=SEGMENT_BYTES)

    def index_in(self, segment: int) -> int:
        """Return the index of the damaged entry of a segment."""
        return next(
            index
            for index in range(len(BODIES))
            if self.store.position(index + 1).pos > segment * SEGMENT_BYTES + 5000
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        """Scrub until a condition holds."""
        running = asyncio.create_task(self.scrub.run())
        async with asyncio.timeout(20):
            while not holds():  # noqa: ASYNC110 - a thread reads the log
                await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.wait([running])


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(scrub, "SLICE_BYTES", 16 << 10)
    monkeypatch.setattr(scrub, "BYTES_PER_S_MIN", 16 << 20)
    monkeypatch.setattr(waiting_ranges, "RETRY_S_MIN", 0.01)
    monkeypatch.setattr(waiting_ranges, "RETRY_S_MAX", 0.05)
    monkeypatch.setattr(scrub, "RETRY_S_MAX", 0.05)
    made = Stage(tmp_path)
    with contextlib.closing(made.store), contextlib.closing(made.scrub):
        yield made


async def test_a_pass_mends_what_comes_after_a_range_that_nobody_gives(stage: Stage) -> None:
    """The pass once stayed at that range, and nothing after it was read."""
    stage.damage(NOBODY_GIVES, GIVEN)

    await stage.until(lambda: stage.scrub.passes > 0 and stage.scrub.failed > 3)

    assert stage.totals.ranges == 1
    assert "Not mended yet" in stage.scrub.problem
    assert stage.left == []
    stage.twin.silent_segments.clear()
    await stage.until(lambda: not stage.scrub.problem)
    assert stage.totals.ranges == 2


async def test_damage_that_a_read_found_and_nobody_mends_does_not_stop_the_pass(
    stage: Stage,
) -> None:
    stage.damage(NOBODY_GIVES, GIVEN)
    index = stage.index_in(NOBODY_GIVES)

    def is_read_again_and_again() -> bool:
        stage.store.damage = StoreDamagedError("met by a read", Damage.BAD_ENTRY, index)
        return stage.totals.ranges == 1 and stage.scrub.passes > 1

    await stage.until(is_read_again_and_again)

    assert "met by a read" in stage.scrub.problem
    assert stage.left == []


async def test_damage_that_a_read_finds_while_another_waits_is_mended_at_once(
    stage: Stage,
) -> None:
    stage.scrub.take_settings(replace(stage.settings, scrub_interval_s=3600))
    stage.damage(NOBODY_GIVES, GIVEN)
    stage.store.damage = StoreDamagedError("a", Damage.BAD_ENTRY, stage.index_in(NOBODY_GIVES))
    await stage.until(lambda: bool(stage.scrub.problem))

    stage.store.damage = StoreDamagedError("b", Damage.BAD_ENTRY, stage.index_in(GIVEN))
    await stage.until(lambda: stage.totals.ranges == 1)

    assert stage.scrub.passes == 0


async def test_more_ranges_than_may_wait_stop_the_pass_and_all_are_mended_in_the_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_ranges, "WAITING_MAX", 2)
    stage.twin.silent_segments = {1, 2, 3}
    stage.damage(1, 2, 3, 5)

    await stage.until(lambda: stage.scrub.failed > 6)

    assert stage.scrub.passes == 0
    assert stage.totals.ranges == 0
    assert "3 damaged ranges" in stage.scrub.problem
    stage.twin.silent_segments.clear()
    await stage.until(lambda: stage.scrub.passes > 0 and not stage.scrub.problem)
    assert stage.totals.ranges == 4
    assert stage.left == []


async def test_a_range_that_no_peer_will_ever_give_makes_the_member_leave(stage: Stage) -> None:
    stage.damage(NOBODY_GIVES)
    stage.scrub._peers.clear()

    await stage.until(lambda: stage.left != [])

    assert stage.scrub.failed == scrub.SETTLING_TRIES_MAX + 1
    assert stage.scrub.passes > 0


@pytest.mark.parametrize("waiting_max", [64, 0])
async def test_a_peer_that_was_silent_for_long_may_refuse_as_often_as_any_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, waiting_max: int
) -> None:
    """A member left at the first refusal: the attempts that nobody answered counted as refusals."""
    monkeypatch.setattr(waiting_ranges, "WAITING_MAX", waiting_max)
    stage.damage(NOBODY_GIVES)
    await stage.until(lambda: stage.scrub.failed > 2 * scrub.SETTLING_TRIES_MAX)

    stage.twin.refusals = 1 << 30
    stage.twin.silent_segments.clear()
    failed = stage.scrub.failed
    await stage.until(lambda: stage.left != [] or stage.scrub.failed > failed + 1)
    stage.twin.refusals = 0
    await stage.until(lambda: stage.left != [] or stage.totals.ranges == 1)

    assert stage.left == []
    assert not stage.scrub.problem


@pytest.mark.storage
async def test_a_member_mends_what_one_peer_has_while_other_damage_waits_for_a_third(
    tmp_path: Path,
) -> None:
    with NodeGroup(tmp_path, scrub_interval_s=1, **SIZES) as group:
        await append_all(group, BODIES)
        wait_until_level(group)
        leader = group.master()
        follower, third = sorted(set(group.running()) - {leader})
        group.stop(third)
        for member, segments in ((leader, (2,)), (follower, (2, 5))):
            for segment in segments:
                data = group.store_folder(member) / disk.DATA_FOLDER
                flip(data, segment * SEGMENT_BYTES + 5000, segment_bytes=SEGMENT_BYTES)

        wait_for(lambda: counted(group, follower, "mended_ranges_total") == 1, "one is mended")

        group.wait_for_status(follower, lambda view: bool(view.unmended), "says what waits")


async def test_a_member_that_can_open_no_file_for_a_while_does_not_leave(stage: Stage) -> None:
    """It left as if no other member had the bytes."""
    stage.damage(GIVEN)
    stage.store.damage = StoreDamagedError(
        "met by a read", Damage.UNREADABLE, stage.index_in(GIVEN)
    )
    with no_more_files():
        await stage.until(lambda: stage.scrub.failed > 2 * scrub.SETTLING_TRIES_MAX)

    assert stage.left == []
    await stage.until(lambda: stage.store.damage is None)
    assert stage.totals.ranges == 1
