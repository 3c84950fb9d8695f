"""A leader's push is checked by its bytes, which also say who belongs to the group."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.log.memberships import MEMBERSHIP_CHANNEL
from dledger_node.errors import RemoteProtocolError
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.messages import AppendRequest, InstallSnapshotRequest
from dledger_node.shell import pushes
from dledger_node.store.derived.membership_bodies import body_of
from dledger_node.store.log.block import Block
from dledger_node.store.log.log_store import LogStore

ONE, TWO = Membership(("n0",)), Membership(("n0", "n1"))
SAID = (MembershipEntry(1, TWO),)


class Room:
    """A volume with room."""

    def reserve_block(self, block: Block) -> bool:
        """Find room."""
        return True


ROOM = Room()


def open_store(folder: Path) -> LogStore:
    return LogStore.open(folder, segment_size_bytes=4096, index_segment_size_bytes=320)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    opened = open_store(tmp_path / "follower")
    yield opened
    opened.close()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[LogStore]:
    opened = open_store(tmp_path / "leader")
    opened.append_bodies([b"x"], term=1)
    opened.append_bodies([body_of(TWO)], 1, [MEMBERSHIP_CHANNEL], disk.NOOP)
    opened.append_bodies([b"x"], term=1)
    yield opened
    opened.close()


def append(leader: LogStore, *memberships: MembershipEntry) -> AppendRequest:
    data = b"".join(leader.read_range(0, 2, 1 << 20)[0])
    return AppendRequest(
        sender="n0", receiver="n1", term=1, previous_index=-1, previous_term=-1, first_index=0,
        last_index=2, entries_term=1, committed_index=-1, entries=memoryview(data),
        memberships=memberships,
    )  # fmt: skip


def test_a_push_may_name_the_memberships_of_its_entries(store: LogStore, leader: LogStore) -> None:
    judged = pushes.checked(append(leader, *SAID), store, ROOM)

    assert judged is not None
    assert isinstance(judged.entries, Block)
    assert judged.memberships == judged.entries.memberships == SAID


@pytest.mark.parametrize(
    "named",
    [(), (MembershipEntry(1, ONE),), (MembershipEntry(2, TWO),), (*SAID, MembershipEntry(2, ONE))],
)
def test_a_push_that_names_other_memberships_is_refused(
    store: LogStore, leader: LogStore, named: tuple[MembershipEntry, ...]
) -> None:
    with pytest.raises(RemoteProtocolError, match="names the memberships"):
        pushes.checked(append(leader, *named), store, ROOM)


@pytest.mark.parametrize("named", [(), (MembershipEntry(1, ONE),)])
def test_the_first_entries_of_a_replaced_log_are_checked_too(
    tmp_path: Path, store: LogStore, named: tuple[MembershipEntry, ...]
) -> None:
    body = body_of(TWO)
    data = disk.pack_entries(
        [body], magic=disk.NOOP, first_index=1, term=1, pos=4096, previous_chain_crc=0,
        channels=[MEMBERSHIP_CHANNEL],
    ).data  # fmt: skip
    install = InstallSnapshotRequest(
        sender="n0", receiver="n1", term=1, first_index=1, last_index=1, entries_term=1,
        committed_index=1, entries=memoryview(bytes(data)), membership=ONE, memberships=named,
    )  # fmt: skip

    with pytest.raises(RemoteProtocolError, match="names the memberships"):
        pushes.checked(install, store, ROOM)
    sound = pushes.checked(dataclasses.replace(install, memberships=SAID), store, ROOM)
    assert sound is not None
    assert isinstance(sound, InstallSnapshotRequest)
    assert (sound.membership, sound.memberships) == (ONE, SAID)
