"""Transfer snapshots from a leader to a member that lacks removed entries.

The core says that a log must be replaced, and with which first entry. A member with a state machine
allows that only once it durably has a snapshot that includes all earlier entries. Until then it
confirms no push, and its leader keeps offering. The member fetches the snapshot chunk by chunk, the
next one when the last is written (`fetch`). A snapshot is verified as a whole before it counts.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final, TypeAlias

from dledger_formats.log.snapshot_meta import SnapshotMeta
from dledger_node.errors import StoreDamagedError, StoreFullError
from dledger_node.limited_log import LineBudget
from dledger_node.raft.messages import InstallSnapshotRequest
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.remoting.snapshot_messages import (
    CHUNK_BYTES_MAX,
    SnapshotChunk,
    SnapshotChunkRequest,
)
from dledger_node.state_machine import machines
from dledger_node.state_machine.fetch import Fetching, Part
from dledger_node.state_machine.machine import Make
from dledger_node.state_machine.send import Sending, SentSnapshot
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.snapshots.snapshots import DATA_NAME, Snapshots, disk_errors

logger = logging.getLogger(__name__)

ASK_AGAIN_S: Final = 1.0

SnapshotMessage: TypeAlias = SnapshotChunkRequest | SnapshotChunk


class Installs:
    """Fetches snapshots from other members, and sends them this member's."""

    def __init__(
        self,
        name: str,
        snapshots: Snapshots,
        store: LogStore,
        *,
        make: Make = machines.make,
        self_id: str,
        send: Callable[[PeerMessage], None],
        fail: Callable[[BaseException], None],
        ask_again_s: float = ASK_AGAIN_S,
        chunk_bytes_max: int = CHUNK_BYTES_MAX,
    ) -> None:
        """`name` is the state machine's. `fail` receives the error that breaks the store."""
        self._name = name
        self._snapshots = snapshots
        self._self_id = self_id
        self._send = send
        self._fail = fail
        self._chunk_bytes_max = chunk_bytes_max
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._lines = LineBudget(self._loop.time)
        self._fetching = Fetching(
            self_id, snapshots, store, ask_again_s=ask_again_s, now_s=self._loop.time, send=send
        )
        self._sending = Sending(snapshots, store, now_s=self._loop.time)
        self._path: Path | None = None
        """Path of the data that is being fetched."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.installed = 0
        """Number of snapshots that were fetched from other members since the start."""
        self.no_room_count = 0
        """Number of attempts to fetch a snapshot for which the volume had no room."""

    @property
    def awaited(self) -> str:
        """Human-readable: the snapshot that this member waits for; empty if it waits for none."""
        fetch = self._fetching.awaited
        if fetch is None:
            return ""
        so_far = f", {fetch.offset} of {fetch.meta.data_bytes} bytes so far" if fetch.meta else ""
        if missing_bytes := self.missing_room_bytes:
            so_far = f"; the volume had no room for its {missing_bytes} bytes"
        return (
            f"waits for a snapshot of the {self._name} from {fetch.sender}, up to entry "
            f"{fetch.least_index} or later{so_far}"
        )

    @property
    def missing_room_bytes(self) -> int:
        """Size of the awaited snapshot for which the volume had no room; 0 if there is none."""
        return self._fetching.missing_room_bytes

    def lacks(self, push: InstallSnapshotRequest) -> bool:
        """Return whether this member lacks the snapshot that it needs before it takes this push."""
        return self._fetching.lacks(push)

    def in_use(self) -> frozenset[int]:
        """Return the last indexes of the snapshots that peers are fetching; they must be kept."""
        return self._sending.in_use()

    def receive(self, message: SnapshotMessage) -> None:
        """Handle a peer's message."""
        if self._closed:
            return
        if isinstance(message, SnapshotChunkRequest):
            sent = self._sending.grant(message)
            if sent is not None:
                self._spawn(self._send_chunk(sent))
            return
        part = self._fetching.take(message)
        if part is not None:
            self._spawn(self._take(part))

    async def close(self) -> None:
        """Stop, and drop a snapshot that was not fetched completely."""
        self._closed = True
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- fetching ----------------------------------------------------------------------------------

    async def _take(self, part: Part) -> None:
        """Write a part, then ask for the next one or finish."""
        try:
            if part.begins:
                folder = await asyncio.to_thread(self._snapshots.installing, part.meta.data_bytes)
                self._path = folder / DATA_NAME
                admitted = self._lines.admit("fetching")
                if admitted is not None:
                    logger.info(
                        "fetching the snapshot up to entry %d from %s: %d bytes%s",
                        part.meta.last_included_index, part.fetch.sender, part.meta.data_bytes,
                        admitted,
                    )  # fmt: skip
            assert self._path is not None
            await asyncio.to_thread(_write_at, self._path, part.data, part.offset)
            if self._fetching.written(part):
                await self._finish(part, self._path)
        except StoreFullError as error:
            admitted = self._lines.admit("full")
            if admitted is not None:
                logger.warning("%s; the snapshot will be fetched again%s", error, admitted)
            # A partial snapshot would keep the last free blocks from the rest of this member.
            await asyncio.to_thread(self._snapshots.drop_installing)
            self._fetching.found_no_room(part)
            self.no_room_count += 1
        finally:
            self._fetching.leave(part)

    async def _finish(self, part: Part, path: Path) -> None:
        """Verify the snapshot and make it durable as this member's own."""
        try:
            await asyncio.to_thread(self._verify_and_adopt, path, part.meta)
        except StoreDamagedError as error:
            admitted = self._lines.admit("damaged")
            if admitted is not None:
                logger.warning(
                    "the snapshot from %s is damaged: %s; it will be fetched again%s",
                    part.fetch.sender, error, admitted,
                )  # fmt: skip
            self._fetching.restart(part)
        else:
            self.installed += 1
            logger.info("fetched the snapshot up to entry %d", part.meta.last_included_index)
            self._fetching.adopted(part)

    def _verify_and_adopt(self, path: Path, meta: SnapshotMeta) -> None:
        """Check that a machine can load the snapshot, then adopt it; blocks."""
        self._snapshots.verify(path, meta, self._make(self._name).load)
        self._snapshots.adopt(meta)

    # -- sending -----------------------------------------------------------------------------------

    async def _send_chunk(self, sent: SentSnapshot) -> None:
        try:
            data = await asyncio.to_thread(self._chunk, sent)
        finally:
            sent.reading = False
        if data is not None and not self._closed:
            self._send(sent.chunk(self._self_id, data))

    def _chunk(self, sent: SentSnapshot) -> bytes | None:
        """Read a chunk; blocks. Returns None for a damaged snapshot: the peer would reject it."""
        if sent.offset == 0 and not self._snapshots.is_sound(sent.meta):
            return None  # the peer's next request gets another snapshot
        return self._snapshots.chunk(sent.meta, sent.offset, self._chunk_bytes_max)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self._fail(error)

        task = self._loop.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _write_at(path: Path, data: bytes | memoryview, offset: int) -> None:
    """Write at `offset` and drop any bytes after the written ones; blocks.

    Raises StoreFullError or StoreError.
    """
    with disk_errors(path), path.open("ab") as file:
        os.ftruncate(file.fileno(), offset)
        file.write(data)
