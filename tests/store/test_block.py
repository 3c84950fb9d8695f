import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.log import disk
from dledger_node.errors import RemoteProtocolError, StoreDamagedError
from dledger_node.store.log.block import Block
from dledger_node.store.log.log_store import LogStore

OpenStore = Callable[..., LogStore]
BODIES = [bytes([number]) * (number * 37 % 900) for number in range(40)]


@pytest.fixture
def leader(open_store: OpenStore, tmp_path: Path) -> LogStore:
    """A log of one term."""
    store = open_store(tmp_path / "leader")
    store.append_bodies(BODIES, term=3)
    return store


@pytest.fixture
def follower(open_store: OpenStore, tmp_path: Path) -> LogStore:
    """An empty log."""
    return open_store(tmp_path / "follower")


def pushed(leader: LogStore, first_index: int, last_index: int) -> bytes:
    views, last = leader.read_range(first_index, last_index, 1 << 20)
    assert last == last_index
    return b"".join(views)


def check(follower: LogStore, data: bytes, **changed: Any) -> Block:
    asked = {"previous_index": -1, "previous_term": -1, "last_index": 39, "term": 3} | changed
    return follower.check_block(data, **asked)


def push(leader: LogStore, follower: LogStore, first_index: int, last_index: int) -> None:
    term = leader.position(first_index).term
    block = check(
        follower,
        pushed(leader, first_index, last_index),
        previous_index=first_index - 1,
        previous_term=leader.position(first_index - 1).term if first_index else -1,
        last_index=last_index,
        term=term,
    )
    follower.reserve_block(block)
    follower.append_block(block, first_index=follower.end_index + 1, last_index=last_index)


def files_of(store: LogStore, folder: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((store._folder / folder).iterdir())]


@pytest.mark.parametrize("seed", range(5))
def test_a_follower_has_the_same_files_as_its_leader(
    open_store: OpenStore, tmp_path: Path, seed: int
) -> None:
    choices = random.Random(seed)
    leader, follower = open_store(tmp_path / "leader"), open_store(tmp_path / "follower")
    for term in (1, 2, 7):
        leader.append_noop(term)
        leader.append_bodies(
            [choices.randbytes(choices.randrange(1200)) for _ in range(choices.randrange(40))],
            term,
        )
    while follower.end_index < leader.end_index:
        first_index = max(0, follower.end_index + 1 - choices.randrange(3))
        terms = [index for index, _ in leader.term_runs() if index > follower.end_index + 1]
        while leader.position(first_index).term != leader.position(follower.end_index + 1).term:
            first_index += 1
        last_index = min(
            [follower.end_index + choices.randrange(1, 20), leader.end_index]
            + [index - 1 for index in terms]
        )
        push(leader, follower, first_index, last_index)

    assert files_of(follower, "data") == files_of(leader, "data")
    assert files_of(follower, "index") == files_of(leader, "index")
    assert follower.term_runs() == leader.term_runs()


def test_entries_that_the_log_holds_already_are_skipped(
    leader: LogStore, follower: LogStore
) -> None:
    push(leader, follower, 0, 24)
    push(leader, follower, 0, 39)

    assert files_of(follower, "data") == files_of(leader, "data")


def test_every_flipped_byte_of_a_push_is_refused(leader: LogStore, follower: LogStore) -> None:
    push(leader, follower, 0, 1)
    data = pushed(leader, 2, 9)
    for byte in range(len(data)):
        damaged = bytearray(data)
        damaged[byte] ^= 0xFF
        with pytest.raises(RemoteProtocolError, match="pushed entries 2 to 9 of term 3"):
            check(follower, bytes(damaged), previous_index=1, previous_term=3, last_index=9)


@pytest.mark.parametrize("cut", [0, 1, 47, 48, -1])
def test_a_push_that_ends_early_is_refused(leader: LogStore, follower: LogStore, cut: int) -> None:
    with pytest.raises(RemoteProtocolError, match="short_"):
        check(follower, pushed(leader, 0, 39)[:cut])


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 47])
@pytest.mark.parametrize("pos", [-1, 4088, 4095, (1 << 63) - 1])
def test_a_push_of_an_entry_that_is_smaller_than_its_header_is_refused(
    leader: LogStore, follower: LogStore, size: int, pos: int
) -> None:
    data = bytearray(pushed(leader, 20, 39))
    header = disk.unpack_header(data, 0)
    data[: disk.ENTRY_HEADER_SIZE] = disk.ENTRY_HEADER.pack(*header._replace(size=size, pos=pos))

    with pytest.raises(RemoteProtocolError, match=f"bad_size: size {size} at byte 0"):
        check(follower, bytes(data), previous_index=19, previous_term=3)


def test_a_push_with_more_entries_than_declared_is_refused(
    leader: LogStore, follower: LogStore
) -> None:
    with pytest.raises(RemoteProtocolError, match="bytes follow the last entry"):
        check(follower, pushed(leader, 0, 39), last_index=38)


@pytest.mark.parametrize(
    "changed",
    [
        {"term": 2},
        {"term": 4},
        {"last_index": 40},
        {"previous_index": 0},
    ],
)
def test_a_push_of_other_entries_than_declared_is_refused(
    leader: LogStore, follower: LogStore, changed: dict[str, int]
) -> None:
    with pytest.raises(RemoteProtocolError):
        check(follower, pushed(leader, 0, 39), **changed)


def test_a_push_with_entries_of_two_terms_is_refused(open_store: OpenStore, tmp_path: Path) -> None:
    leader, follower = open_store(tmp_path / "leader"), open_store(tmp_path / "follower")
    leader.append_bodies([b"one"], term=1)
    leader.append_bodies([b"two"], term=2)

    with pytest.raises(RemoteProtocolError, match="bad_term"):
        check(follower, pushed(leader, 0, 1), last_index=1, term=1)


def test_a_push_from_segments_of_another_size_is_refused(
    open_store: OpenStore, tmp_path: Path, follower: LogStore
) -> None:
    leader = open_store(tmp_path / "leader", segment=8192)
    leader.append_bodies(BODIES, term=3)

    with pytest.raises(RemoteProtocolError, match="bad_pos"):
        check(follower, pushed(leader, 0, 39))


def test_a_push_after_a_different_history_is_refused(
    open_store: OpenStore, tmp_path: Path, leader: LogStore
) -> None:
    """The chain CRC covers all earlier entries, so a follower detects a different history."""
    follower = open_store(tmp_path / "follower")
    follower.append_bodies([b"\xff" * len(body) for body in BODIES[:4]], term=3)
    follower.append_bodies([b"other"], term=3)
    other = open_store(tmp_path / "other")
    other.append_bodies([*BODIES[:4], b"right"], term=3)
    other.append_bodies([b"next"], term=3)

    with pytest.raises(RemoteProtocolError, match="bad_chain_crc"):
        check(follower, pushed(other, 5, 5), previous_index=4, previous_term=3, last_index=5)


def test_a_push_without_its_previous_entry_is_validated_on_its_own(
    leader: LogStore, follower: LogStore
) -> None:
    block = check(follower, pushed(leader, 20, 39), previous_index=19, previous_term=3)
    follower.reserve_block(block)

    assert block.link is None
    assert not list(follower._folder.glob("*.spare"))


def test_a_block_that_does_not_follow_the_log_is_never_written(
    open_store: OpenStore, tmp_path: Path, leader: LogStore
) -> None:
    """The last line of defense, in case the core asks for it."""
    follower = open_store(tmp_path / "follower")
    follower.append_bodies(BODIES[:19], term=3)
    block = check(follower, pushed(leader, 20, 39), previous_index=19, previous_term=3)
    follower.append_bodies([b"wrong"], term=3)

    with pytest.raises(StoreDamagedError, match="the logs differ before that entry"):
        follower.append_block(block, first_index=20, last_index=39)
    assert follower.end_index == 19


def test_a_block_is_refused_if_the_log_changed_since_its_validation(
    leader: LogStore, follower: LogStore
) -> None:
    push(leader, follower, 0, 19)
    block = check(follower, pushed(leader, 20, 39), previous_index=19, previous_term=3)
    follower.truncate(19)
    follower.append_bodies([bytes(len(BODIES[19]))], term=3)
    assert block.link is not None
    assert block.link.end_pos == follower._writer.end_pos

    with pytest.raises(StoreDamagedError, match="the logs differ before that entry"):
        follower.append_block(block, first_index=20, last_index=39)


@pytest.mark.parametrize("seed", range(3))
def test_no_altered_push_is_accepted(leader: LogStore, follower: LogStore, seed: int) -> None:
    choices = random.Random(seed)
    data = pushed(leader, 0, 39)
    for _ in range(300):
        damaged = bytearray(data)
        start = choices.randrange(len(damaged))
        end = start + choices.randrange(1, 100)
        match choices.randrange(4):
            case 0:
                damaged[start:end] = choices.randbytes(len(damaged[start:end]))
            case 1:
                del damaged[start:end]
            case 2:
                damaged[start:end] = bytes(len(damaged[start:end]))
            case _:
                damaged[start:start] = damaged[start:end]
        if damaged == data:
            continue
        with pytest.raises(RemoteProtocolError):
            check(follower, bytes(damaged))


def test_a_push_with_a_blank_record_is_refused(leader: LogStore, follower: LogStore) -> None:
    blank = disk.BLANK_HEADER.pack(disk.BLANK, 48) + bytes(40)

    with pytest.raises(RemoteProtocolError, match="bad_magic"):
        check(follower, blank + pushed(leader, 0, 39))
