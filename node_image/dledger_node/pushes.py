"""What a leader pushes: its bytes are judged, and have room, before the core hears of them."""

import dataclasses
from typing import TypeAlias

from dledger_node.errors import RemoteProtocolError
from dledger_node.raft.messages import AppendRequest, InstallSnapshotRequest
from dledger_node.storage_watch import StorageWatch
from dledger_node.store.mmap_store import MmapStore

Push: TypeAlias = AppendRequest | InstallSnapshotRequest


def judged(push: Push, store: MmapStore, watch: StorageWatch) -> Push | None:
    """The push with a block for its bytes; None when there is no room, and it gets no answer.

    RemoteProtocolError; also for one that changes the membership, which this store cannot keep: a
    member that forgot it would count by another one after a restart.
    """
    if push.memberships or (isinstance(push, InstallSnapshotRequest) and push.membership):
        raise RemoteProtocolError(f"{push.sender} pushes a membership, which is not kept here yet")
    assert isinstance(push.entries, memoryview)
    if isinstance(push, InstallSnapshotRequest):
        block = store.front.check(
            push.entries,
            first_index=push.first_index,
            last_index=push.last_index,
            term=push.entries_term,
        )
        return dataclasses.replace(push, entries=block)
    block = store.check_block(
        push.entries,
        previous_index=push.previous_index,
        previous_term=push.previous_term,
        last_index=push.last_index,
        term=push.entries_term,
    )
    if not watch.try_reserve(lambda: store.reserve_block(block)):
        return None
    return dataclasses.replace(push, entries=block)
