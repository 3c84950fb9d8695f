"""The memberships of a log: appended, pushed, cut, restarted, without its front or its file."""

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
from dledger_store_files.memberships import ENTRIES, GONE, LEARNS, VOTES, change, fill
from dledger_store_files.upkeep import commit, remove_front

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


def test_a_log_without_membership_changes_has_no_file(open_store: OpenStore, folder: Path) -> None:
    store = open_store()
    store.append_bodies([b"x"] * 20, term=1)
    commit(store, 19)
    store.close()

    again = open_store()

    assert (again.memberships.base, again.memberships.entries) == (None, ())
    assert not (folder / memberships_file.FILE_NAME).exists()


@pytest.mark.parametrize("committed", [-1, 3, 4, 8, 13, 14, 17])
def test_memberships_are_the_same_after_a_crash(
    open_store: OpenStore, crashed: Crashed, committed: int
) -> None:
    store = open_store()
    fill(store)
    if committed >= 0:
        commit(store, committed)

    again = open_store(crashed(store))

    assert again.memberships.entries == store.memberships.entries == ENTRIES
    assert again.memberships.base is None
    covered = [entry.index for entry in ENTRIES if entry.index <= committed]
    saved = memberships_file.load(again._folder)
    assert [entry.index for entry in saved] == covered


def test_memberships_are_read_from_the_log_without_a_checkpoint(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    fill(store)
    commit(store, 17)
    store.close()
    (folder / checkpoint.FILE_NAME).unlink()
    (folder / memberships_file.FILE_NAME).unlink()

    assert open_store().memberships.entries == ENTRIES


def test_memberships_are_found_with_a_checkpoint_of_an_earlier_version(
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


def test_a_start_reads_only_uncommitted_entries(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    fill(store)
    commit(store, 10)
    store.close()
    read: list[int] = []
    monkeypatch.setattr(
        "dledger_node.store.derived.stored_memberships.StoredMemberships._read",
        lambda self, first_index: read.append(first_index) or (),
    )

    open_store()

    assert read == [11]


@pytest.mark.parametrize(("first_index", "left"), [(15, 3), (14, 2), (10, 2), (9, 1), (4, 0)])
@pytest.mark.parametrize("committed", [-1, 3])
def test_memberships_that_are_cut_from_the_log_are_forgotten(
    open_store: OpenStore, crashed: Crashed, first_index: int, left: int, committed: int
) -> None:
    store = open_store()
    fill(store)
    if committed >= 0:
        commit(store, committed)

    store.truncate(first_index)

    assert store.memberships.entries == ENTRIES[:left]
    assert open_store(crashed(store)).memberships.entries == ENTRIES[:left]


def test_a_new_membership_replaces_one_that_was_cut(
    open_store: OpenStore, crashed: Crashed
) -> None:
    store = open_store()
    fill(store)
    store.truncate(9)
    change(store, GONE, term=2)

    again = open_store(crashed(store))

    assert again.memberships.entries == (ENTRIES[0], MembershipEntry(9, GONE))


@pytest.mark.parametrize("held", [0, 3, 4, 9, 12])
def test_a_follower_notes_each_pushed_membership_once(
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


def test_a_malformed_pushed_membership_is_refused(open_store: OpenStore, memory_path: Path) -> None:
    leader, follower = open_store(), open_store(memory_path / "follower")
    leader.append_bodies([b"x"], term=1)
    data = disk.pack_entries(
        [b'{"voters":[],"learners":[]}'], magic=disk.NOOP, first_index=0, term=1, pos=0,
        previous_chain_crc=0, channels=[MEMBERSHIP_CHANNEL],
    ).data  # fmt: skip

    with pytest.raises(RemoteProtocolError, match="must have voters"):
        follower.check_block(bytes(data), previous_index=-1, previous_term=-1, last_index=0, term=1)


def test_a_client_s_body_is_never_taken_for_a_membership(
    open_store: OpenStore, crashed: Crashed
) -> None:
    store = open_store()
    store.append_bodies([body_of(VOTES)] * 2, 1, [MEMBERSHIP_CHANNEL, 0], disk.NORMAL)
    store.append_bodies([body_of(VOTES)], term=1, magic=disk.NOOP)

    assert store.memberships.entries == ()
    assert open_store(crashed(store)).memberships.entries == ()


def test_a_membership_of_a_later_version_stops_the_start(open_store: OpenStore) -> None:
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
def test_memberships_hold_after_retention_removed_their_entries(
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
        assert kept == ENTRIES[max(0, 2 - left) :], "the file keeps only what is needed"


def test_a_crash_during_a_removal_keeps_the_membership(
    open_store: OpenStore, crashed: Crashed
) -> None:
    store = open_store()
    fill(store)
    commit(store, 17)
    first_index = store.front.sealed_segments()[3].last_index + 1
    begin = store.front.save_begin(first_index)
    files = store.front.forget_before(begin)
    for file in files[:2]:
        file.remove()

    again = open_store(crashed(store))

    assert again.begin_index == first_index
    assert (again.memberships.base, again.memberships.entries) == (GONE, ())
    store.front.delete(files[2:])


@pytest.mark.parametrize("how", ["lost", "damaged", "old"])
def test_a_log_without_its_front_is_refused_without_its_memberships_file(
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


def test_a_damaged_memberships_file_is_ignored_when_it_is_not_needed(
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


def test_a_full_volume_keeps_the_old_file_and_the_old_checkpoint(
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

    assert store.committed_index == 8, "a checkpoint covers only saved memberships"
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
def test_an_inconsistent_memberships_file_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"checksum|order"):
        memberships_file.decode(raw)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_encoded_memberships_file_is_decoded_unchanged(count: int) -> None:
    assert memberships_file.decode(memberships_file.encode(ENTRIES[:count])) == ENTRIES[:count]
