"""Pushes from a leader: their bytes are checked and have room before the core receives them."""

import dataclasses
from typing import Protocol, TypeAlias

from dledger_node.errors import RemoteProtocolError
from dledger_node.raft.messages import AppendRequest, InstallSnapshotRequest
from dledger_node.store.log.block import Block
from dledger_node.store.log.log_store import LogStore

Push: TypeAlias = AppendRequest | InstallSnapshotRequest


class BlockRoom(Protocol):
    """The room in the log for pushed entries."""

    def reserve_block(self, block: Block) -> bool:
        """Return whether there is room for a block; begin to make it if not."""


def checked(push: Push, store: LogStore, room: BlockRoom) -> Push | None:
    """Return the push with a block for its bytes; None if there is no room for them yet.

    Raises RemoteProtocolError if an entry is damaged, or if the memberships in the message differ
    from those in its entries: the core would use the former now, and the latter after a restart.
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
    if not room.reserve_block(block):
        return None
    return _with_block(push, block)


def _with_block(push: Push, block: Block) -> Push:
    if push.memberships != block.memberships:
        raise RemoteProtocolError(
            f"{push.sender} names the memberships {push.memberships} for entries that contain "
            f"{block.memberships}"
        )
    return dataclasses.replace(push, entries=block)
