"""Snapshots on their way from a leader to a member that lacks what was removed from the log.

The core says when a log must begin anew, and with which entry. A member with a state machine lets
it do so only once it has, durably, a snapshot that includes all before: until then it confirms
nothing, and its leader goes on asking. It fetches that snapshot a chunk at a time, the next one
when the last is written (`fetching`). Whatever comes is checked as a whole before it counts.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final, TypeAlias

from dledger_node.errors import StoreDamagedError, StoreFullError
from dledger_node.remoting.native import PeerMessage
from dledger_node.remoting.snapshot_messages import (
    CHUNK_BYTES_MAX,
    SnapshotChunk,
    SnapshotChunkRequest,
)
from dledger_node.state_machine import machines
from dledger_node.state_machine.fetch import Fetching, Part
from dledger_node.state_machine.lend import Lending, Loan
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.snapshots.snapshot_meta import SnapshotMeta
from dledger_node.store.snapshots.snapshots import DATA_NAME, Snapshots, disk_errors

logger = logging.getLogger(__name__)

ASK_AGAIN_S: Final = 1.0

SnapshotMessage: TypeAlias = SnapshotChunkRequest | SnapshotChunk


class Installs:
    """Fetches snapshots from other members, and lets them fetch this one's."""

    def __init__(
        self,
        name: str,
        snapshots: Snapshots,
        store: LogStore,
        *,
        self_id: str,
        send: Callable[[PeerMessage], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`name` is the state machine's; `fail` is told what breaks the store."""
        self._name = name
        self._snapshots = snapshots
        self._self_id = self_id
        self._send = send
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._fetching = Fetching(
            self_id, snapshots, store, ask_again_s=ASK_AGAIN_S, now_s=self._loop.time, send=send
        )
        self._lending = Lending(snapshots, store, now_s=self._loop.time)
        self._path: Path | None = None
        """Of what comes in."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.installed = 0
        """Snapshots that came from others, since the start."""
        self.lacks = self._fetching.lacks
        self.lent = self._lending.lent

    @property
    def awaited(self) -> str:
        """What this member waits for, for people; empty when it waits for nothing."""
        fetch = self._fetching.awaited
        if fetch is None:
            return ""
        so_far = f", {fetch.offset} of {fetch.meta.data_bytes} bytes so far" if fetch.meta else ""
        return (
            f"waits for a snapshot of the {self._name} from {fetch.sender}, up to entry "
            f"{fetch.least_index} or later{so_far}"
        )

    def heard(self, message: SnapshotMessage) -> None:
        """Take a peer's message."""
        if self._closed:
            return
        if isinstance(message, SnapshotChunkRequest):
            loan = self._lending.grant(message)
            if loan is not None:
                self._spawn(self._send_chunk(loan))
            return
        part = self._fetching.take(message)
        if part is not None:
            self._spawn(self._take(part))

    async def close(self) -> None:
        """Stop; what came in so far is dropped."""
        self._closed = True
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- fetching ----------------------------------------------------------------------------------

    async def _take(self, part: Part) -> None:
        """Write a part, and go on to the next, or to the end."""
        try:
            if part.begins:
                folder = await asyncio.to_thread(self._snapshots.installing)
                self._path = folder / DATA_NAME
                logger.info(
                    "fetching the snapshot up to entry %d from %s: %d bytes",
                    part.meta.last_included_index,
                    part.fetch.sender,
                    part.meta.data_bytes,
                )
            assert self._path is not None
            await asyncio.to_thread(_write_at, self._path, part.data, part.offset)
            if self._fetching.written(part):
                await self._finish(part, self._path)
        except StoreFullError as error:
            logger.warning("%s; it is tried again", error)
            self._fetching.begin_anew(part)
        finally:
            self._fetching.leave(part)

    async def _finish(self, part: Part, path: Path) -> None:
        """Make the snapshot durable and this member's own, if it is what was announced."""
        try:
            await asyncio.to_thread(self._verify_and_adopt, path, part.meta)
        except StoreDamagedError as error:
            logger.warning(
                "what %s sent is no snapshot: %s; it is tried again", part.fetch.sender, error
            )
            self._fetching.begin_anew(part)
        else:
            self.installed += 1
            logger.info("the snapshot up to entry %d is here", part.meta.last_included_index)
            self._fetching.adopted(part)

    def _verify_and_adopt(self, path: Path, meta: SnapshotMeta) -> None:
        """In a thread. That the machine cannot load it would be found out too late otherwise."""
        self._snapshots.verify(path, meta, machines.make(self._name).load)
        self._snapshots.adopt(meta)

    # -- lending -----------------------------------------------------------------------------------

    async def _send_chunk(self, loan: Loan) -> None:
        try:
            data = await asyncio.to_thread(self._chunk, loan)
        finally:
            loan.reading = False
        if data is not None and not self._closed:
            self._send(loan.chunk(self._self_id, data))

    def _chunk(self, loan: Loan) -> bytes | None:
        """In a thread. One that has rotted would be sent in vain, again and again."""
        if loan.offset == 0 and not self._snapshots.is_sound(loan.meta):
            return None  # another is sent when it is asked for again
        return self._snapshots.chunk(loan.meta, loan.offset, CHUNK_BYTES_MAX)

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
    """Write at the end of what is there; blocks. StoreFullError, StoreError."""
    with disk_errors(path), path.open("ab") as file:
        os.ftruncate(file.fileno(), offset)
        file.write(data)
