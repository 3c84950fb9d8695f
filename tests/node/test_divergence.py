"""What a push that does not follow a member's log proves, and about which of the two logs."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from dledger_formats.log import disk
from dledger_node.errors import LogsDifferError, StoreDamagedError
from dledger_node.limited_log import LINES_MAX, PERIOD_S
from dledger_node.raft.messages import AppendRequest, HeartBeatRequest, HeartBeatResponse
from dledger_node.remoting.read_index_messages import NOT_LEADING
from dledger_node.shell import pushes
from dledger_node.shell.divergence import (
    HEARD_TIMEOUTS,
    IGNORED_TIMEOUTS,
    PUSHES_MIN,
    UNPROVED_TIMEOUTS,
    Divergence,
)
from dledger_node.store.log.block import Block
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.group_file import FolderOwner, load_owner, save_owner

SIZES = {"segment_size_bytes": 4096, "index_segment_size_bytes": 320}


class Room:
    """A volume with room."""

    def reserve_block(self, block: Block) -> bool:
        """Find room."""
        return True


@dataclass
class Surroundings:
    """What a member knows of its leader; `answers` has the questions that the leader got."""

    leader_id: str | None = "n0"
    term: int = 1
    renounced: list[int] = field(default_factory=list)
    differing: list[tuple[str, int]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    now_s: float = 0.0

    def note_difference(self, leader_id: str, term: int) -> None:
        self.differing.append((leader_id, term))

    def renounce(self, index: int) -> None:
        self.renounced.append(index)

    def ask_index(self, answer: Any) -> None:
        self.answers.append(answer)


def store_of(folder: Path, body: bytes) -> LogStore:
    store = LogStore.open(folder, **SIZES)
    for number in range(4):
        store.append_bodies([body, b"%d" % number], term=1)
    return store


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[LogStore]:
    store = store_of(tmp_path / "follower", b"mine")
    yield store
    store.close()


@pytest.fixture
def push(tmp_path: Path) -> Iterator[AppendRequest]:
    """The next entry of a leader whose log has the same indexes, terms and sizes."""
    store = store_of(tmp_path / "leader", b"hers")
    store.append_bodies([b"next"], term=1)
    data = b"".join(store.read_range(8, 8, 1 << 20)[0])
    yield AppendRequest(
        sender="n0", receiver="n1", term=1, previous_index=7, previous_term=1, first_index=8,
        last_index=8, entries_term=1, committed_index=7, entries=memoryview(data),
        memberships=(),
    )  # fmt: skip
    store.close()


ELECTION_TIMEOUT_S = 1.0
READ_INDEX = 8
"""The index that the leader tells; it is the first entry of its term."""


def of(around: Surroundings, store: LogStore) -> Divergence:
    known = cast("Any", around)
    return Divergence(
        known,
        store,
        known,
        lambda: known,
        now_s=lambda: around.now_s,
        election_timeout_s=ELECTION_TIMEOUT_S,
    )


def beat(sender: str = "n0") -> HeartBeatRequest:
    return HeartBeatRequest(sender=sender, receiver="n1", term=1, committed_index=7, round=1)


def test_a_push_that_does_not_follow_this_log_is_told_from_a_damaged_one(
    follower: LogStore, push: AppendRequest
) -> None:
    with pytest.raises(LogsDifferError, match="bad_chain_crc"):
        pushes.checked(push, follower, Room())
    data = bytearray(cast("memoryview", push.entries))
    data[-1] ^= 1
    damaged = AppendRequest(
        sender="n0", receiver="n1", term=1, previous_index=7, previous_term=1, first_index=8,
        last_index=8, entries_term=1, committed_index=7, entries=memoryview(data), memberships=(),
    )  # fmt: skip
    with pytest.raises(Exception, match="bad_body_crc") as refused:
        pushes.checked(damaged, follower, Room())
    assert not isinstance(refused.value, LogsDifferError)


def test_the_log_is_foreign_once_the_leader_states_that_an_entry_of_its_term_is_committed(
    follower: LogStore, push: AppendRequest
) -> None:
    around = Surroundings()
    divergence = of(around, follower)

    examined = [divergence.examines(push, "bad_chain_crc") for _ in range(PUSHES_MIN + 2)]

    assert examined == [False] * (PUSHES_MIN - 1) + [True] * 3
    assert around.differing == [("n0", 1)] * len(examined), "nothing is confirmed meanwhile"
    [answer] = around.answers
    answer(READ_INDEX)
    divergence.examines(replace(push, committed_index=READ_INDEX - 1), "bad_chain_crc")
    assert around.renounced == []
    divergence.examines(replace(push, committed_index=READ_INDEX), "bad_chain_crc")
    assert around.renounced == [7]


def test_a_leader_that_probes_between_its_pushes_is_judged_too(
    follower: LogStore, push: AppendRequest
) -> None:
    around = Surroundings()
    divergence = of(around, follower)
    earlier = replace(push, previous_index=6, first_index=7)
    committed = [replace(each, committed_index=READ_INDEX) for each in (push, earlier)]

    for _ in range(PUSHES_MIN):
        for each in (push, earlier):
            divergence.examines(each, "bad_chain_crc")
    around.answers.pop()(READ_INDEX)
    assert around.renounced == []
    divergence.examines(committed[1], "bad_chain_crc")

    assert around.renounced == [6]
    assert around.answers == []


def test_pushes_that_fail_once_each_prove_nothing(follower: LogStore, push: AppendRequest) -> None:
    """Bits that change on their way do so at different entries."""
    around = Surroundings()
    divergence = of(around, follower)

    for index in range(8):
        each = replace(push, previous_index=index, first_index=index + 1)
        assert not divergence.examines(each, "bad_chain_crc")

    assert around.answers == []


def test_a_leader_that_commits_no_entry_of_its_term_is_ignored_for_a_bounded_time(
    follower: LogStore, push: AppendRequest
) -> None:
    around = Surroundings()
    divergence = of(around, follower)
    for _ in range(PUSHES_MIN):
        divergence.examines(push, "bad_chain_crc")
    around.answers.pop()(READ_INDEX)
    assert not divergence.ignores(beat())

    divergence.examines(push, "bad_chain_crc")
    assert not divergence.ignores(beat()), "others may still start, and prove it"

    around.now_s = UNPROVED_TIMEOUTS * ELECTION_TIMEOUT_S
    divergence.examines(push, "bad_chain_crc")

    assert around.renounced == []
    assert divergence.ignores(beat())
    assert not divergence.ignores(beat("n2"))
    answer = HeartBeatResponse(sender="n0", receiver="n1", term=1, round=1)
    assert not divergence.ignores(answer)
    around.now_s += IGNORED_TIMEOUTS * ELECTION_TIMEOUT_S
    divergence.examines(push, "bad_chain_crc")
    assert not divergence.ignores(beat()), "it may have committed meanwhile"
    around.now_s += HEARD_TIMEOUTS * ELECTION_TIMEOUT_S
    divergence.examines(push, "bad_chain_crc")
    assert divergence.ignores(beat())
    around.now_s += IGNORED_TIMEOUTS * ELECTION_TIMEOUT_S
    divergence.examines(replace(push, committed_index=READ_INDEX), "bad_chain_crc")
    assert around.renounced == [7]


@pytest.mark.parametrize("members", [3, 5, 7])
@pytest.mark.parametrize("seed", range(4))
def test_a_leader_with_a_foreign_log_loses_its_quorum_whenever_the_others_begin_to_ignore_it(
    follower: LogStore, push: AppendRequest, members: int, seed: int
) -> None:
    """Until then they answer its heartbeats, so it would lead forever."""
    random = Random(seed)
    begin_s = [random.uniform(0, 60) for _ in range(members - 1)]
    around = Surroundings()
    sound = [of(around, follower) for _ in begin_s]
    lost_s, needed_s = 0.0, 2 * ELECTION_TIMEOUT_S

    while lost_s < needed_s and around.now_s < max(begin_s) + 60:
        for each, from_s in zip(sound, begin_s, strict=True):
            if around.now_s >= from_s and not each.ignores(beat()):
                each.examines(push, "bad_chain_crc")
        while around.answers:
            around.answers.pop()(READ_INDEX)
        around.now_s += 0.25
        followers = sum(not each.ignores(beat()) for each in sound)
        has_quorum = 1 + followers > members // 2
        lost_s = 0.0 if has_quorum else lost_s + 0.25

    assert lost_s >= needed_s


@pytest.mark.parametrize(
    ("index", "leader_id", "term"),
    [
        (NOT_LEADING, "n0", 1),
        (READ_INDEX, "n2", 1),
        (READ_INDEX, "n0", 2),
        (READ_INDEX, None, 1),
    ],
)
def test_a_leader_without_a_proof_proves_nothing_against_this_log(
    follower: LogStore,
    push: AppendRequest,
    index: int,
    leader_id: str | None,
    term: int,
) -> None:
    around = Surroundings()
    divergence = of(around, follower)
    for _ in range(PUSHES_MIN):
        divergence.examines(push, "bad_chain_crc")
    around.leader_id, around.term = leader_id, term

    around.answers.pop()(index)
    divergence.examines(replace(push, committed_index=READ_INDEX), "bad_chain_crc")

    assert around.renounced == []
    assert not divergence.ignores(beat())
    assert len(around.answers) == 1, "the leader is asked again"


def test_a_leader_that_never_tells_its_index_does_not_fill_the_log(
    follower: LogStore, push: AppendRequest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    around = Surroundings()
    divergence = of(around, follower)
    for _ in range(100):
        for _ in range(PUSHES_MIN):
            divergence.examines(push, "bad_chain_crc")
        around.answers.pop()(NOT_LEADING)
    assert len(caplog.messages) == LINES_MAX

    around.now_s += PERIOD_S
    divergence.examines(push, "bad_chain_crc")

    assert len(caplog.messages) == LINES_MAX + 1
    assert "lines of this kind were left out" in caplog.messages[-1]


def test_damage_of_this_members_own_entry_is_not_taken_for_another_groups_log(
    follower: LogStore, push: AppendRequest, tmp_path: Path
) -> None:
    around = Surroundings()
    divergence = of(around, follower)
    [path] = (tmp_path / "follower" / disk.DATA_FOLDER).iterdir()
    data = bytearray(path.read_bytes())
    at = data.index(b"3", 7 * disk.ENTRY_HEADER_SIZE)
    data[at] ^= 1
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data[at : at + 1])

    for _ in range(PUSHES_MIN + 1):
        divergence.examines(push, "bad_chain_crc")

    assert around.answers == []
    assert isinstance(follower.damage, StoreDamagedError)


def test_a_folder_keeps_the_finding(tmp_path: Path) -> None:
    owner = FolderOwner(group="g", identity="i", foreign_index=0)

    save_owner(tmp_path, owner)

    assert load_owner(tmp_path) == owner
