import asyncio
import errno
import itertools
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from dledger_formats.http.status import StorageState
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.errors import Damage, StoreDamagedError, StoreError, StoreFullError
from dledger_node.raft.messages import (
    HeartBeatRequest,
    JoinRequest,
    Message,
    PreVoteResponse,
    TakeLeadershipRequest,
    VoteResult,
)
from dledger_node.shell.room import LogRoom
from dledger_node.store.log.log_store import LogStore
from dledger_node.volume.group_commit import GroupCommit
from dledger_node.volume.handover import DECLINED_PAUSE_S, VolumeHandover
from dledger_node.volume.health import (
    TRANSFER_INTERVAL_MAX_S,
    VolumeHealth,
    state_of,
    transfer_leadership,
)
from dledger_sim.stage.driver import ELECTION_TICKS, HEARTBEAT_TICKS, CoreDriver, of_type

NO_ROOM = StoreFullError("no room")


def full() -> None:
    """Find no room."""
    raise NO_ROOM


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    opened = LogStore.open(tmp_path, segment_size_bytes=4096, index_segment_size_bytes=320)
    yield opened
    opened.close()


async def becomes_true(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the condition depends on the time
        await asyncio.sleep(0.005)


@pytest.fixture
async def group_commit(store: LogStore) -> AsyncIterator[GroupCommit]:
    with ThreadPoolExecutor(2) as executor:
        yield GroupCommit(store, executor, on_durable=lambda _: None, on_failed=lambda _: None)


async def test_a_flush_that_hangs_is_a_stall_until_it_returns(
    store: LogStore, group_commit: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    health = VolumeHealth(store, group_commit, stall_s=0.02)
    sync, goes_on = os.fdatasync, threading.Event()

    def hanging(fd: int) -> None:
        goes_on.wait()
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", hanging)
    store.append_bodies([b"slow"], term=1)
    assert health.check() is None
    group_commit.start()
    await asyncio.wait_for(becomes_true(lambda: health.check() == 0), 20)
    assert (health.stalled, health.state) == (True, StorageState.STALLED)
    assert "has not finished a flush" in health.problem
    assert health.check() is None, "a stall begins once"

    goes_on.set()
    await group_commit.drain()
    health.check()

    assert (health.stalled, health.problem, health.state) == (False, "", StorageState.SOUND)
    assert store.durable_index == 0


@dataclass
class Work:
    what: str
    in_flight_s: float


def test_a_stall_names_the_work_that_has_taken_longest(store: LogStore) -> None:
    works = Work("a flush", 6.0), Work("a save of term and vote", 7.0), Work("a change", 0.0)
    health = VolumeHealth(store, *works, stall_s=5.0)

    health.check()

    assert health.problem.startswith("the disk has not finished a save of term and vote for 7 s;")


async def test_a_volume_without_room_is_full_until_segments_can_be_preallocated(
    store: LogStore, group_commit: GroupCommit
) -> None:
    health = VolumeHealth(store, group_commit, stall_s=1)

    health.found_full(NO_ROOM, full)
    await health.check_room()
    assert health.state is StorageState.FULL, "no segment was preallocated"
    store.preallocate()
    await health.check_room()
    assert health.state is StorageState.SOUND


async def test_a_small_entry_that_fits_does_not_make_a_full_volume_sound(
    store: LogStore, group_commit: GroupCommit, caplog: pytest.LogCaptureFixture
) -> None:
    """A leader repeats a push at each heartbeat; parts of it may fit."""
    health = VolumeHealth(store, group_commit, stall_s=1)

    for _ in range(50):
        health.found_full(NO_ROOM, full)
        await health.check_room()
        assert health.state is StorageState.FULL
        assert not health.may_campaign

    assert len(caplog.records) == 1


async def test_a_full_volume_is_sound_again_once_what_was_refused_fits(
    store: LogStore, group_commit: GroupCommit
) -> None:
    health = VolumeHealth(store, group_commit, stall_s=1)
    has_room = False

    def reserve() -> None:
        if not has_room:
            raise StoreFullError("no room")

    health.found_full(NO_ROOM, reserve)
    await health.check_room()
    assert health.full
    has_room = True
    await health.check_room()

    assert store.room_is_short, "no segment was preallocated"
    assert health.state is StorageState.SOUND


async def test_a_leader_without_room_refuses_even_what_would_fit(
    store: LogStore, group_commit: GroupCommit
) -> None:
    health = VolumeHealth(store, group_commit, stall_s=1)
    errors = list[BaseException]()
    room = LogRoom(
        store, health, ThreadPoolExecutor(1), is_saving=lambda: False, go_on=lambda: None,
        fail=errors.append,
    )  # fmt: skip
    store.preallocate()
    assert room.reserve([0]) is None

    health.found_full(NO_ROOM, full)
    refused = room.reserve([0])
    store.preallocate()
    await health.check_room()

    assert refused is DLedgerResponseCode.DISK_FULL
    assert room.reserve([0]) is None
    assert errors == []


async def test_a_leader_without_room_transfers_at_once_and_then_less_and_less_often(
    store: LogStore, group_commit: GroupCommit
) -> None:
    now_s = 100.0
    health = VolumeHealth(store, group_commit, stall_s=1, monotonic=lambda: now_s)
    assert health.check() is None
    health.nearly_full = True
    attempts: list[tuple[float, int]] = []
    while now_s < 100 + 3 * TRANSFER_INTERVAL_MAX_S:
        attempt = health.check()
        attempts += [] if attempt is None else [(now_s - 100, attempt)]
        now_s += 1

    assert attempts[:4] == [(0, 0), (10, 1), (30, 2), (70, 3)]
    assert attempts[-1][0] - attempts[-2][0] == TRANSFER_INTERVAL_MAX_S

    health.nearly_full = False
    store.preallocate()
    await health.check_room()
    now_s += TRANSFER_INTERVAL_MAX_S
    assert health.check() is None
    health.full = True
    assert health.check() == 0, "there was room in the meantime, so attempts start from 0"


def test_each_attempt_transfers_leadership_to_the_next_peer() -> None:
    asked = []
    for attempt in range(3):
        driver = leader_of_three()
        transfer_leadership(driver.raft, attempt)
        asked += asked_to_lead(driver.work())

    assert asked == ["n1", "n2", "n1"]


class FullLeader:
    """A leader of four members whose volume has been found full, second by second."""

    def __init__(self, store: LogStore, group_commit: GroupCommit) -> None:
        self.now_s = 100.0
        self.asked: list[tuple[int, str]] = []
        """When a peer was asked to lead, in seconds, and which."""
        self.driver = leader_of(4)
        self.health = VolumeHealth(store, group_commit, stall_s=1, monotonic=lambda: self.now_s)
        self.health.nearly_full = True
        self._handover = VolumeHandover(self.driver.raft, self.health, lambda give: give())
        self.behind: set[str] = set()
        """The peers that decline."""

    def pass_seconds(self, count: int) -> None:
        """Let a second be a heartbeat interval; the transferee declines or does not stand."""
        raft = self.driver.raft
        for _ in range(count):
            messages = self.driver.tick(HEARTBEAT_TICKS)
            for beat in of_type(HeartBeatRequest, messages):
                self.driver.receive(self.driver.heard_from(beat.receiver, beat.round))
            was_transferee = raft.transferee_id
            self._handover.watch()
            self.driver.work()
            if raft.transferee_id is not None and was_transferee is None:
                self.asked.append((round(self.now_s - 100), raft.transferee_id))
                if raft.transferee_id in self.behind:
                    self.driver.receive(declined_by(raft.transferee_id, raft.term))
            self.now_s += 1


def declined_by(peer_id: str, term: int) -> PreVoteResponse:
    return PreVoteResponse(
        sender=peer_id, receiver="n0", term=term, requested_term=term,
        result=VoteResult.REJECT_ALREADY_HAS_LEADER,
    )  # fmt: skip


def test_a_leader_without_room_asks_the_next_peer_at_once_if_one_declines(
    store: LogStore, group_commit: GroupCommit
) -> None:
    leader = FullLeader(store, group_commit)
    leader.behind = {"n1", "n2"}

    leader.pass_seconds(40)

    assert leader.asked[:3] == [(0, "n1"), (1, "n2"), (2, "n3")]
    assert next(when_s for when_s, _ in leader.asked if when_s > 2) == 12, "n3 did not stand"


def test_a_leader_without_room_does_not_wait_longer_and_longer_for_peers_that_decline(
    store: LogStore, group_commit: GroupCommit
) -> None:
    leader = FullLeader(store, group_commit)
    leader.behind = {"n1", "n2", "n3"}
    leader.pass_seconds(1000)
    count = len(leader.asked)
    pauses = [later[0] - sooner[0] for sooner, later in itertools.pairwise(leader.asked)]
    election_s = ELECTION_TICKS / HEARTBEAT_TICKS

    leader.behind = set()
    leader.pass_seconds(round(election_s + DECLINED_PAUSE_S) + 1)

    assert {peer_id for _, peer_id in leader.asked[:3]} == {"n1", "n2", "n3"}
    assert max(pauses) <= election_s + DECLINED_PAUSE_S
    assert len(leader.asked) == count + 1


def test_a_follower_without_room_hands_over_at_once_when_it_becomes_the_leader(
    store: LogStore, group_commit: GroupCommit
) -> None:
    now_s = 100.0
    driver = CoreDriver(terms=[1])
    health = VolumeHealth(store, group_commit, stall_s=1, monotonic=lambda: now_s)
    health.nearly_full = True
    handover = VolumeHandover(driver.raft, health, lambda give: give())
    for _ in range(3600):
        handover.watch()
        now_s += 1

    elected(driver)
    handover.watch()

    assert asked_to_lead(driver.work()) == ["n1"]


def test_damage_that_a_read_finds_is_remembered(store: LogStore, group_commit: GroupCommit) -> None:
    health = VolumeHealth(store, group_commit, stall_s=1)
    store.append_bodies([b"sound", b"hurt"], term=1)
    store._files.data.files[0].write(48 + 5 + 48, b"HURT")
    assert health.damage is None

    with pytest.raises(StoreDamagedError):
        store.entry(1)

    assert health.damage is not None
    assert (health.damage.damage, health.damage.index) == (Damage.BAD_ENTRY, 1)


def leader_of_three() -> CoreDriver:
    """Return a leader whose peers both hold its whole log."""
    return leader_of(3)


def leader_of(voter_count: int) -> CoreDriver:
    return elected(CoreDriver(terms=[1], voter_count=voter_count))


def elected(driver: CoreDriver) -> CoreDriver:
    """Let a member become a leader whose peers all hold its whole log."""
    driver.become_leader()
    for peer_id in driver.voters():
        driver.agree(peer_id)
        driver.receive(driver.success_from(peer_id, driver.raft.ledger_end_index))
    return driver


def asked_to_lead(messages: list[Message]) -> list[str]:
    return [message.receiver for message in of_type(TakeLeadershipRequest, messages)]


def test_leadership_is_not_transferred_to_a_joining_member() -> None:
    driver = leader_of_three()
    driver.receive(JoinRequest(sender="n2", receiver="n0", term=0, incarnation=9))
    transfer_leadership(driver.raft)

    assert asked_to_lead(driver.work()) == ["n1"]


def test_leadership_is_not_transferred_if_no_peer_can_lead() -> None:
    driver = leader_of_three()
    for peer_id in ("n1", "n2"):
        driver.receive(JoinRequest(sender=peer_id, receiver="n0", term=0, incarnation=9))
    transfer_leadership(driver.raft)

    assert not asked_to_lead(driver.work())


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (StoreFullError("x"), StorageState.FULL),
        (StoreDamagedError("x", Damage.UNREADABLE), StorageState.DAMAGED),
        (StoreError("x"), StorageState.FAILED),
        (OSError(errno.EROFS, "x"), StorageState.FAILED),
        (ValueError("x"), StorageState.SOUND),
    ],
)
def test_an_error_maps_to_the_state_of_the_volume(error: Exception, state: StorageState) -> None:
    assert state_of(error) is state
