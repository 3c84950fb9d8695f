"""The memberships of a real log: written, pushed, cut, restarted, without its front or its file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.log.memberships import MEMBERSHIP_CHANNEL
from dledger_node.errors import Damage, RemoteProtocolError, StoreDamagedError, StoreFullError
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.store.derived import memberships_file
from dledger_node.store.derived.membership_bodies import body_of
from dledger_node.store.log.block import Block
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files import checkpoint
from dledger_store_files.memberships import (
    ENTRIES,
    GONE,
    LEARNS,
    VOTES,
    change,
    commit,
    fill,
    remove_front,
)

OpenStore = Callable[..., LogStore]
Crashed = Callable[[LogStore], Path]


def block_of(leader: LogStore, follower: LogStore, first: int, last: int) -> Block:
    data = b"".join(leader.read_range(first, last, 1 << 20)[0])
    return follower.check_block(
        data,
        previous_index=first - 1,
        previous_term=1 if first else -1,
        last_index=last,
        term=leader.position(first).term,
    )


def test_a_log_without_changes_says_nothing_and_has_no_file(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    store.append_bodies([b"x"] * 20, term=1)
    commit(store, 19)
    store.close()

    again = open_store()

    assert (again.memberships.base, again.memberships.entries) == (None, ())
    assert not (folder / memberships_file.FILE_NAME).exists()


@pytest.mark.parametrize("committed", [-1, 3, 4, 8, 13, 14, 17])
def test_after_a_crash_they_are_what_they_were(
    open_store: OpenStore, crashed: Crashed, committed: int
) -> None:
    store = open_store()
    fill(store)
    if committed >= 0:
        commit(store, committed)

    again = open_store(crashed(store))

    assert again.memberships.entries == store.memberships.entries == ENTRIES
    assert again.memberships.base is None
    told = [entry.index for entry in ENTRIES if entry.index <= committed]
    saved = memberships_file.load(again._folder)
    assert [entry.index for entry in saved] == told


def test_without_a_checkpoint_they_are_read_from_the_log(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    fill(store)
    commit(store, 17)
    store.close()
    (folder / checkpoint.FILE_NAME).unlink()
    (folder / memberships_file.FILE_NAME).unlink()

    assert open_store().memberships.entries == ENTRIES


def test_a_checkpoint_of_an_earlier_version_does_not_hide_them(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    fill(store)
    commit(store, 17)
    store.close()
    checkpoint.save_checkpoint(
        folder, checkpoint.Checkpoint(end_index=17, committed_index=17, begin_index=0)
    )

    assert open_store().memberships.entries == ENTRIES


def test_only_what_is_not_committed_is_read_at_a_start(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    fill(store)
    commit(store, 10)
    store.close()
    read: list[int] = []
    monkeypatch.setattr(
        "dledger_node.store.derived.log_memberships.LogMemberships._read",
        lambda self, first_index: read.append(first_index) or (),
    )

    open_store()

    assert read == [11]


@pytest.mark.parametrize(("first_index", "left"), [(15, 3), (14, 2), (10, 2), (9, 1), (4, 0)])
@pytest.mark.parametrize("committed", [-1, 3])
def test_what_is_cut_holds_no_more(
    open_store: OpenStore, crashed: Crashed, first_index: int, left: int, committed: int
) -> None:
    store = open_store()
    fill(store)
    if committed >= 0:
        commit(store, committed)

    store.truncate(first_index)

    assert store.memberships.entries == ENTRIES[:left]
    assert open_store(crashed(store)).memberships.entries == ENTRIES[:left]


def test_another_takes_the_place_of_what_was_cut(open_store: OpenStore, crashed: Crashed) -> None:
    store = open_store()
    fill(store)
    store.truncate(9)
    change(store, GONE, term=2)

    again = open_store(crashed(store))

    assert again.memberships.entries == (ENTRIES[0], MembershipEntry(9, GONE))


@pytest.mark.parametrize("held", [0, 3, 4, 9, 12])
def test_a_follower_notes_what_is_pushed_and_no_more(
    open_store: OpenStore, memory_path: Path, crashed: Crashed, held: int
) -> None:
    leader, follower = open_store(), open_store(memory_path / "follower")
    fill(leader)

    for first, last in ((0, held), (0, 13), (12, 17)):
        block = block_of(leader, follower, first, last)
        assert block.memberships == tuple(e for e in ENTRIES if first <= e.index <= last)
        begin = follower.end_index + 1
        if begin <= last:
            follower.append_block(block, first_index=begin, last_index=last)

    assert follower.memberships.entries == ENTRIES
    assert open_store(crashed(follower)).memberships.entries == ENTRIES


def test_a_pushed_membership_that_cannot_be_read_is_refused(
    open_store: OpenStore, memory_path: Path
) -> None:
    leader, follower = open_store(), open_store(memory_path / "follower")
    leader.append_bodies([b"x"], term=1)
    data = disk.pack_entries(
        [b'{"voters":[],"learners":[]}'], magic=disk.NOOP, first_index=0, term=1, pos=0,
        previous_chain_crc=0, channels=[MEMBERSHIP_CHANNEL],
    ).data  # fmt: skip

    with pytest.raises(RemoteProtocolError, match="has voters"):
        follower.check_block(bytes(data), previous_index=-1, previous_term=-1, last_index=0, term=1)


def test_a_clients_body_is_never_taken_for_one(open_store: OpenStore, crashed: Crashed) -> None:
    store = open_store()
    store.append_bodies([body_of(VOTES)] * 2, 1, [MEMBERSHIP_CHANNEL, 0], disk.NORMAL)
    store.append_bodies([body_of(VOTES)], term=1, magic=disk.NOOP)

    assert store.memberships.entries == ()
    assert open_store(crashed(store)).memberships.entries == ()


def test_one_that_a_later_version_wrote_stops_the_start(open_store: OpenStore) -> None:
    store = open_store()
    body = b'{"voters":["n0"],"learners":[],"witnesses":["n1"]}'
    with pytest.raises(ValueError, match="nothing else"):
        store.append_bodies([body], 1, [MEMBERSHIP_CHANNEL], disk.NOOP)
    store.close()

    with pytest.raises(StoreDamagedError, match="Start the version that wrote it") as refused:
        open_store()

    assert (refused.value.damage, refused.value.index) == (Damage.UNKNOWN_FORMAT, 0)


@pytest.mark.parametrize(
    ("segments", "base", "left"), [(1, None, 3), (2, LEARNS, 2), (3, VOTES, 1), (4, GONE, 0)]
)
def test_what_retention_removed_holds_still(
    open_store: OpenStore,
    crashed: Crashed,
    segments: int,
    base: Membership | None,
    left: int,
) -> None:
    store = open_store()
    fill(store)
    commit(store, 17)

    first_index = remove_front(store, segments)

    assert store.begin_index == first_index
    for found in (store, open_store(crashed(store))):
        assert found.memberships.base == base
        assert found.memberships.entries == ENTRIES[len(ENTRIES) - left :]
        found.append_bodies([b"more"], term=1)
        commit(found, 18)
        kept = memberships_file.load(found._folder)
        assert kept == ENTRIES[max(0, 2 - left) :], "and nothing that nobody needs"


def test_a_crash_while_segments_go_leaves_it_known(open_store: OpenStore, crashed: Crashed) -> None:
    store = open_store()
    fill(store)
    commit(store, 17)
    first_index = store.front.sealed_segments()[3].last_index + 1
    store.front.save_begin(first_index)
    files = store.front.forget_before(first_index)
    for file in files[:2]:
        file.remove()

    again = open_store(crashed(store))

    assert again.begin_index == first_index
    assert (again.memberships.base, again.memberships.entries) == (GONE, ())
    store.front.delete(files[2:])


@pytest.mark.parametrize("how", ["lost", "damaged", "old"])
def test_without_its_file_a_log_without_its_front_is_refused(
    open_store: OpenStore, folder: Path, how: str
) -> None:
    store = open_store()
    fill(store)
    commit(store, 8)
    path = folder / memberships_file.FILE_NAME
    old = path.read_bytes()
    commit(store, 17)
    remove_front(store, 4)
    store.close()
    if how == "lost":
        path.unlink()
    else:
        path.write_bytes(old if how == "old" else path.read_bytes().replace(b"n2", b"n4"))

    with pytest.raises(StoreDamagedError, match="memberships") as refused:
        open_store()

    assert refused.value.damage is Damage.MEMBERSHIPS


def test_a_damaged_file_that_is_not_needed_does_no_harm(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    fill(store)
    commit(store, 3)
    (folder / memberships_file.FILE_NAME).write_bytes(b"nonsense")
    store.close()

    again = open_store()

    assert again.memberships.entries == ENTRIES
    commit(again, 17)
    assert memberships_file.load(folder) == ENTRIES


def test_a_volume_that_is_full_keeps_the_old_file_and_the_old_checkpoint(
    open_store: OpenStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    fill(store)
    commit(store, 8)

    def full(path: Path, raw: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("dledger_node.store.derived.memberships_file.replace_file", full)
        with pytest.raises(StoreFullError, match="cannot save"):
            commit(store, 17)

    assert store.committed_index == 8, "it answers for no membership that is not saved"
    assert memberships_file.load(folder) == ENTRIES[:1]
    commit(store, 17)
    assert memberships_file.load(folder) == ENTRIES


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"#crc32=00000000",
        memberships_file.encode(ENTRIES)[:-1],
        memberships_file.encode(ENTRIES).replace(b"4 ", b"5 "),
        memberships_file.encode(ENTRIES[::-1]),
        memberships_file.encode([ENTRIES[0], ENTRIES[0]]),
        memberships_file.encode([MembershipEntry(-1, GONE)]),
    ],
)
def test_a_file_that_cannot_be_is_not_believed(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"checksum|order"):
        memberships_file.decode(raw)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_the_file_says_is_read_back(count: int) -> None:
    assert memberships_file.decode(memberships_file.encode(ENTRIES[:count])) == ENTRIES[:count]
