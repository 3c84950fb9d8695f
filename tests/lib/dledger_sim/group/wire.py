"""Messages as the bytes that real members exchange.

A message becomes a frame of the native dialect, goes through the frame decoder in two slices, and
is decoded again. The entries of a push are packed as in a store, and checked as a real follower
checks them before they reach its core.
"""

import dataclasses

from dledger_formats.log import disk as formats
from dledger_formats.protocol.frames import FrameDecoder
from dledger_node.raft.messages import AppendRequest, InstallSnapshotRequest
from dledger_node.remoting import native
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.store.log.block import check_block
from dledger_node.store.log.entry_runs import Link
from dledger_sim.group.disk import Entry, SimDisk, chained
from dledger_sim.group.pushed import PushedEntries

BODY_BYTES = 8
ENTRY_BYTES = formats.ENTRY_HEADER_SIZE + BODY_BYTES
SEGMENT_BYTES = 1 << 40
"""One segment holds any simulated log."""


class Wire:
    """Encodes the messages of members, and decodes them at the other end."""

    def __init__(self) -> None:
        self._chain_crcs = {0: 0}
        """The chain checksum of a store for each digest of a simulated log."""

    def encode(self, message: PeerMessage, sender: SimDisk) -> bytes:
        """Return one frame, with the entries of a push as its sender's store would have them."""
        entries = []
        if isinstance(message, AppendRequest | InstallSnapshotRequest):
            log = sender.cached[: message.last_index + 1]
            self._extend_chain(log)
            entries = [self._packed(log, index) for index in range(message.first_index, len(log))]
        return b"".join(native.encode(message, entries))

    def decode(self, frame: bytes, sender: str, receiver: str, disk: SimDisk) -> PeerMessage:
        """Return the message, its entries checked against the receiver's log."""
        decoder = FrameDecoder()
        middle = len(frame) // 2
        commands = decoder.feed(frame[:middle]) + decoder.feed(frame[middle:])
        message = native.decode(commands[0].body, sender, receiver)
        if not isinstance(message, AppendRequest | InstallSnapshotRequest):
            return message
        assert isinstance(message.entries, memoryview)
        block = check_block(
            message.entries,
            first_index=message.first_index,
            last_index=message.last_index,
            term=message.entries_term,
            segment_size=SEGMENT_BYTES,
            link=self._link(disk, message),
        )
        assert (block.first_index, block.last_index) == (message.first_index, message.last_index)
        entries = [
            _unpacked(message.entries, at)
            for at in range(0, len(message.entries), ENTRY_BYTES)
        ]  # fmt: skip
        return dataclasses.replace(message, entries=PushedEntries(message.first_index, entries))

    def _extend_chain(self, log: list[Entry]) -> None:
        """Compute the checksums of this log that are not known yet."""
        known = len(log)
        while known and log[known - 1].chain not in self._chain_crcs:
            known -= 1
        for index in range(known, len(log)):
            packed = self._packed(log, index)
            header = formats.unpack_header(packed, 0)
            self._chain_crcs[log[index].chain] = header.chain_crc

    def _packed(self, log: list[Entry], index: int) -> bytes:
        entry = log[index]
        packed = formats.pack_entries(
            [entry.body.to_bytes(BODY_BYTES, "big", signed=True)],
            magic=formats.NOOP if entry.body < 0 else formats.NORMAL,
            first_index=index,
            term=entry.term,
            pos=index * ENTRY_BYTES,
            previous_chain_crc=self._chain_crcs[log[index - 1].chain if index else 0],
        )
        return bytes(packed.data)

    def _link(self, disk: SimDisk, push: AppendRequest | InstallSnapshotRequest) -> Link | None:
        """Return the end of the receiver's log before the push, if it equals the leader's."""
        if isinstance(push, InstallSnapshotRequest):
            return None
        log, previous_index = disk.cached, push.previous_index
        if previous_index < 0:
            return Link(0, 0)
        if previous_index >= len(log) or log[previous_index].term != push.previous_term:
            return None
        chain_crc = self._chain_crcs.get(log[previous_index].chain)
        return Link((previous_index + 1) * ENTRY_BYTES, chain_crc)


def _unpacked(data: memoryview, at: int) -> tuple[int, int]:
    """Return term and body of the entry at this byte."""
    header = formats.unpack_header(data, at)
    start = at + formats.ENTRY_HEADER_SIZE
    return header.term, int.from_bytes(data[start : start + BODY_BYTES], "big", signed=True)


assert chained([], 0, 0).chain != 0
