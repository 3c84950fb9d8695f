"""What a member does once a second when its volume has no room, or fails."""

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_formats.http.status import StorageState
from dledger_formats.log import disk
from dledger_formats.log.channels import channel_of, channels_of
from dledger_formats.settings import NodeSettings
from dledger_node.config import store_folder
from dledger_node.errors import Damage, StoreDamagedError, StoreError
from dledger_node.raft.messages import HeartBeatRequest, JoinResponse
from dledger_node.state_machine.keeper import NoState
from dledger_node.store.derived import log_producers, stable_copy
from dledger_node.store.log.log_store import LogStore
from dledger_node.volume.health import VolumeHealth
from dledger_node.volume.upkeep import Upkeep, VolumeUsage
from dledger_node.volume.wall_clock import WallClock
from dledger_sim.stage.changing import confirm, with_learner
from dledger_sim.stage.driver import ELECTION_TICKS, INCARNATION, CoreDriver
from dledger_store_files.contents import flush
from dledger_store_files.damage import flip
from dledger_wire.listener import until


class PlayedState(NoState):
    """A state whose snapshot finds room when a test says so."""


class IdleDisk:
    """A disk without work."""

    what = "nothing"
    in_flight_s = 0.0


class Stage:
    """The upkeep of a member that heals: it is joining, and has set damaged files aside."""

    def __init__(self, folder: Path) -> None:
        self.settings = NodeSettings(
            group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir=str(folder)
        )
        self.aside = store_folder(self.settings) / "damaged-20260101T000000Z"
        self.store = LogStore.open(
            store_folder(self.settings), segment_size_bytes=4096, index_segment_size_bytes=320
        )
        self.driver = CoreDriver(joining=True)
        self.state = PlayedState()
        self.health = VolumeHealth(self.store, IdleDisk(), stall_s=5)
        self.is_saving = False
        self.wall_s, self.boot_s = 1.8e9, 50.0
        self.clock = WallClock(lambda: self.wall_s, lambda: self.boot_s)
        self.failures: list[BaseException] = []

    def set_aside(self, *names: str) -> None:
        """Set damaged files of these names aside."""
        self.aside.mkdir()
        for name in names:
            (self.aside / name).write_bytes(b"damaged")

    def follow(self) -> None:
        """Let the member follow a leader that all others have named."""
        for peer_id in ("n1", "n2"):
            self.driver.receive(
                JoinResponse(
                    sender=peer_id, receiver="n0", term=1, incarnation=INCARNATION,
                    ledger_end_index=9, leading=peer_id == "n1", joining=False, alone=False,
                )
            )  # fmt: skip
        self.driver.receive(
            HeartBeatRequest(sender="n1", receiver="n0", term=1, round=1, committed_index=-1)
        )

    def upkeep(self) -> Upkeep:
        return Upkeep(
            self.settings, self.store, self.driver.raft, self.health, self.state,
            clock=self.clock, is_saving=lambda: self.is_saving, send=lambda _: None,
            fail=self.failures.append,
        )  # fmt: skip

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.aside.iterdir())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.store.close()


async def test_damaged_files_make_room_for_a_snapshot_that_found_none(stage: Stage) -> None:
    stage.set_aside("0", "1", "2")
    stage.follow()
    upkeep = stage.upkeep()
    await upkeep.once()
    assert stage.names == ["0", "1", "2"]

    stage.state.missing_room_bytes = sys.maxsize
    await upkeep.once()
    await upkeep.once()
    assert stage.names == ["0"]
    stage.state.missing_room_bytes = 0
    stage.state.no_room_count += 1
    await upkeep.once()
    await upkeep.once()

    assert stage.names == []


async def test_damaged_files_stay_while_no_leader_is_followed(stage: Stage) -> None:
    stage.set_aside("0")
    stage.state.missing_room_bytes = sys.maxsize

    await stage.upkeep().once()

    assert stage.names == ["0"]


@pytest.mark.parametrize(
    ("names", "state"), [((), StorageState.FULL), (("0",), StorageState.HEALING)]
)
async def test_a_member_without_room_for_the_leader_s_snapshot_reports_it(
    stage: Stage, names: tuple[str, ...], state: StorageState
) -> None:
    if names:
        stage.set_aside(*names)
    upkeep = stage.upkeep()
    stage.state.missing_room_bytes = 5 << 20

    assert upkeep.view().state is state


async def test_a_volume_that_fails_at_the_first_look_for_room_stops_the_member_with_its_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other end of the upkeep would end the process."""
    broken = StoreError("cannot allocate: Input/output error")

    async def check_room() -> None:
        raise broken

    monkeypatch.setattr(stage.health, "check_room", check_room)
    running = asyncio.create_task(stage.upkeep().run())
    await until(lambda: stage.failures != [] or running.done())
    running.cancel()
    await asyncio.wait([running])

    assert stage.failures == [broken]
    assert running.cancelled()


async def test_an_index_that_retention_cannot_read_is_damage_to_mend_and_stops_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that leaves with damage hands over first; one that fails stops at once."""
    found = StoreDamagedError("Input/output error", Damage.UNREADABLE)

    def unreadable() -> None:
        raise found

    monkeypatch.setattr(stage.store.front, "sealed_segments", unreadable)
    stage.settings = replace(stage.settings, retention_bytes=1)
    await stage.upkeep().once()

    assert stage.store.damage is found
    earlier = stage.store.damage = StoreDamagedError("found before", Damage.BAD_ENTRY, 1)
    await stage.upkeep().once()
    assert stage.store.damage is earlier


@pytest.mark.parametrize("removes", [False, True])
async def test_a_rotten_entry_at_which_the_producers_are_saved_is_mended_and_stops_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, removes: bool
) -> None:
    monkeypatch.setattr(log_producers, "SAVE_ENTRIES", log_producers.EMPTY_SHARE)
    removals = list[int]()
    monkeypatch.setattr(stage.driver.raft, "remove_before", removals.append)
    write_segments(stage)
    stage.store.producers.table.mark_stable(10)
    if removes:
        stage.settings = replace(stage.settings, retention_bytes=4096)
        monkeypatch.setattr(log_producers, "SAVE_ENTRIES", 1 << 16)
    pos = stage.store.position(10).pos
    flip(store_folder(stage.settings) / disk.DATA_FOLDER, pos + 20, segment_bytes=4096)
    upkeep = stage.upkeep()
    upkeep.held_by_all_index = 11

    await upkeep._do(upkeep.once)

    assert stage.failures == []
    assert stage.store.damage is not None
    assert stage.store.damage.index == 10
    assert removals == [], "the table must cover what is removed"


async def test_no_segment_is_removed_before_the_table_of_its_producers_can_be_copied(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart, the producers that registered there would be unknown."""
    removals = list[int]()
    monkeypatch.setattr(stage.driver.raft, "remove_before", removals.append)
    store, table = stage.store, stage.store.producers.table
    monkeypatch.setattr(table, "_undo_max", 2)
    store.append_bodies([b""], 1, [channel_of(1, 0)], disk.NOOP)
    write_segments(stage)
    table.mark_stable(11)
    store.append_bodies([b""] * 4, 1, channels_of(1, 1, 4))
    stage.settings = replace(stage.settings, retention_bytes=4096)
    upkeep = stage.upkeep()
    upkeep.held_by_all_index = 11

    await upkeep._do(upkeep.once)
    assert removals == []
    flush(store)
    table.mark_stable(store.end_index)
    await upkeep._do(upkeep.once)

    assert stage.failures == []
    assert len(removals) == 1
    assert store.producers.covers(removals[0])


async def test_a_full_volume_does_not_wait_for_a_table_of_producers_that_cannot_be_made(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    removals = list[int]()
    monkeypatch.setattr(stage.driver.raft, "remove_before", removals.append)
    monkeypatch.setattr(
        "dledger_node.volume.upkeep.volume_usage",
        lambda _: VolumeUsage(size_bytes=100, available_bytes=1, used_percent=99),
    )
    stage.settings = replace(stage.settings, retention_bytes=1 << 30, disk_force_clean_percent=90)
    write_segments(stage)
    stage.store.producers.table.mark_stable(10)
    pos = stage.store.position(10).pos
    flip(store_folder(stage.settings) / disk.DATA_FOLDER, pos + 20, segment_bytes=4096)
    upkeep = stage.upkeep()
    upkeep.held_by_all_index = 11

    await upkeep._do(upkeep.once)

    assert stage.failures == []
    assert len(removals) == 1


def write_segments(stage: Stage) -> None:
    """Write several segments that all members hold, and date them by the stage's clock."""
    stage.store.append_bodies([bytes(1000)] * 12, 1)
    flush(stage.store)
    stage.store.save_checkpoint(11)
    for path in (store_folder(stage.settings) / disk.DATA_FOLDER).iterdir():
        os.utime(path, (stage.wall_s, stage.wall_s))


async def test_segments_expire_by_the_time_that_has_passed_and_not_by_a_clock_that_jumps(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files were written by the clock of this test, which is not the machine's."""
    removals = list[int]()
    monkeypatch.setattr(stage.driver.raft, "remove_before", removals.append)
    stage.settings = replace(
        stage.settings, file_reserved_hours=2, delete_when=";".join(map(str, range(24)))
    )
    upkeep = stage.upkeep()
    write_segments(stage)
    stage.store.producers.table.mark_stable(11)
    upkeep.held_by_all_index = 11

    stage.wall_s += 1000 * 3600
    await upkeep.once()
    assert removals == []

    stage.wall_s += 3 * 3600
    stage.boot_s += 3 * 3600
    await upkeep.once()
    assert len(removals) == 1


async def test_a_learner_that_is_lost_holds_up_no_removal(stage: Stage) -> None:
    stage.driver = driver = with_learner()
    stage.settings = replace(stage.settings, retention_bytes=1)
    upkeep = stage.upkeep()
    driver.propose()
    confirm(driver, "n1", "n2")
    upkeep._announce_held_by_all()
    assert upkeep.held_by_all_index == driver.raft.ledger_end_index - 1

    for round_ in range(2, 2 + ELECTION_TICKS):
        driver.tick()
        driver.receive(driver.heard_from("n1", 100 + round_))
    upkeep._announce_held_by_all()

    assert upkeep.held_by_all_index == driver.raft.ledger_end_index


@pytest.mark.parametrize("is_cut", [False, True])
async def test_the_table_of_producers_is_copied_over_several_turns_unless_the_log_is_cut(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    """A full table once held up the loop for up to 30 ms."""
    monkeypatch.setattr(stable_copy, "PART", 1)
    store, loop = stage.store, asyncio.get_running_loop()
    turns, saved = list[int](), list[tuple[int, int]]()
    monkeypatch.setattr(
        store.producers, "save", lambda image: saved.append((len(image.producers), len(turns)))
    )
    for number in range(1, 51):
        store.append_bodies([b""], 1, [channel_of(number, 0)], disk.NOOP)
    store.producers.table.mark_stable(store.end_index)

    def turn() -> None:
        turns.append(1)
        stage.is_saving = is_cut and len(turns) > 10
        loop.call_soon(turn)

    loop.call_soon(turn)
    await stage.upkeep()._save_producers(store.end_index + 1)

    if is_cut:
        assert saved == []
    else:
        [(producers, turns_before)] = saved
        assert producers == 50
        assert turns_before >= 50
