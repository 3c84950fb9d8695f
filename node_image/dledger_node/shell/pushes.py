"""What a leader pushes: its bytes are judged, and have room, before the core hears of them."""

import dataclasses
from typing import TypeAlias

from dledger_node.errors import RemoteProtocolError
from dledger_node.raft.messages import AppendRequest, InstallSnapshotRequest
from dledger_node.store.log.block import Block
from dledger_node.store.log.log_store import LogStore
from dledger_node.volume.health import VolumeHealth

Push: TypeAlias = AppendRequest | InstallSnapshotRequest


def judged(push: Push, store: LogStore, health: VolumeHealth) -> Push | None:
    """The push with a block for its bytes; None when there is no room, and it gets no answer.

    RemoteProtocolError; also when the message tells other memberships than its entries say: the
    core would count by the ones, and after a restart by the others.
    """
    assert isinstance(push.entries, memoryview)
    if isinstance(push, InstallSnapshotRequest):
        block = store.front.check(
            push.entries,
            first_index=push.first_index,
            last_index=push.last_index,
            term=push.entries_term,
        )
        return _with_block(push, block)
    block = store.check_block(
        push.entries,
        previous_index=push.previous_index,
        previous_term=push.previous_term,
        last_index=push.last_index,
        term=push.entries_term,
    )
    if not health.try_reserve(lambda: store.reserve_block(block)):
        return None
    return _with_block(push, block)


def _with_block(push: Push, block: Block) -> Push:
    if push.memberships != block.memberships:
        raise RemoteProtocolError(
            f"{push.sender} tells the memberships {push.memberships} of entries that say "
            f"{block.memberships}"
        )
    return dataclasses.replace(push, entries=block)
