"""Snapshots on their way from a leader to a member that lacks what was removed from the log.

The core says when a log must begin anew, and with which entry. A member with a state machine lets
it do so only once it has, durably, a snapshot that includes all before: until then it confirms
nothing, and its leader goes on asking. It fetches that snapshot a chunk at a time, the next one
when the last is written. When an answer is lost, the leader's next push has it ask again, from
where it stopped. Whatever comes is checked as a whole before it counts.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from dledger_node.errors import StoreDamagedError, StoreFullError
from dledger_node.raft.messages import InstallSnapshotRequest
from dledger_node.remoting.native import PeerMessage
from dledger_node.remoting.snapshot_messages import (
    CHUNK_BYTES_MAX,
    NEWEST,
    SnapshotChunk,
    SnapshotChunkRequest,
)
from dledger_node.restoring import agrees
from dledger_node.state_machine import machines
from dledger_node.store.mmap_store import MmapStore
from dledger_node.store.snapshot_meta import SnapshotMeta
from dledger_node.store.snapshots import DATA_NAME, Snapshots, disk_errors

logger = logging.getLogger(__name__)

ASK_AGAIN_S: Final = 1.0
LENT_S: Final = 60.0
"""A snapshot is kept for so long after a peer has asked for a part of it."""

SnapshotMessage: TypeAlias = SnapshotChunkRequest | SnapshotChunk


@dataclass(slots=True, kw_only=True)
class _Fetch:
    """A snapshot that comes in; `asked_at_s` is when the chunk was asked for that is awaited."""

    path: Path | None = None
    meta: SnapshotMeta | None = None
    """None until the first chunk tells which snapshot it is."""
    offset: int = 0
    """What is written so far."""
    sender: str = ""
    least_index: int = -1
    """What the snapshot must include."""
    asked_at_s: float = float("-inf")
    working: bool = False
    """A chunk is being written; no other is taken meanwhile."""


@dataclass(slots=True)
class _Loan:
    """What a peer fetches from this member."""

    index: int
    until_s: float
    reading: bool = field(default=False)


class Installs:
    """Fetches snapshots from other members, and lets them fetch this one's."""

    def __init__(
        self,
        name: str,
        snapshots: Snapshots,
        store: MmapStore,
        *,
        self_id: str,
        send: Callable[[PeerMessage], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`name` is the state machine's; `fail` is told what breaks the store."""
        self._name = name
        self._snapshots = snapshots
        self._store = store
        self._self_id = self_id
        self._send = send
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._fetch: _Fetch | None = None
        """There from a push that cannot be taken until the snapshot is here."""
        self._loans: dict[str, _Loan] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.installed = 0
        """Snapshots that came from others, since the start."""

    @property
    def awaited(self) -> str:
        """What this member waits for, for people; empty when it waits for nothing."""
        fetch = self._fetch
        if fetch is None or self._store.end_index > fetch.least_index:
            return ""  # or another leader has led the log there
        so_far = f", {fetch.offset} of {fetch.meta.data_bytes} bytes so far" if fetch.meta else ""
        return (
            f"waits for a snapshot of the {self._name} from {fetch.sender}, up to entry "
            f"{fetch.least_index} or later{so_far}"
        )

    def lent(self) -> frozenset[int]:
        """The snapshots that others are fetching; they must stay."""
        now_s = self._loop.time()
        return frozenset(loan.index for loan in self._loans.values() if loan.until_s > now_s)

    def lacks(self, push: InstallSnapshotRequest) -> bool:
        """Whether this member has no snapshot yet for the log that the leader offers.

        If so, the push must not reach the core; the snapshot is asked for.
        """
        held = self._store.begin_index <= push.first_index <= self._store.end_index
        if held and agrees(push.first_index, push.entries_term, self._store):
            return False  # the log need not begin anew
        if self._snapshots.newest_index >= push.first_index - 1:
            self._fetch = None
            return False
        fetch = self._fetch or _Fetch()
        self._fetch = fetch
        late = self._loop.time() - fetch.asked_at_s >= ASK_AGAIN_S
        fetch.least_index = push.first_index - 1
        if not fetch.working and (late or fetch.sender != push.sender):
            fetch.sender = push.sender
            self._ask(fetch)
        return True

    def heard(self, message: SnapshotMessage) -> None:
        """Take a peer's message."""
        if self._closed:
            return
        if isinstance(message, SnapshotChunkRequest):
            self._lend(message)
            return
        fetch = self._fetch
        if fetch is None or fetch.working or message.sender != fetch.sender:
            return
        fetch.working = True
        self._spawn(self._take(fetch, message))

    async def close(self) -> None:
        """Stop; what came in so far is dropped."""
        self._closed = True
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- fetching ----------------------------------------------------------------------------------

    def _ask(self, fetch: _Fetch) -> None:
        fetch.asked_at_s = self._loop.time()
        self._send(
            SnapshotChunkRequest(
                sender=self._self_id,
                receiver=fetch.sender,
                index=fetch.meta.last_included_index if fetch.meta else NEWEST,
                offset=fetch.offset,
            )
        )

    async def _take(self, fetch: _Fetch, chunk: SnapshotChunk) -> None:
        """Write a chunk that follows what is there, and go on to the next, or to the end."""
        try:
            if _meta_of(chunk) != fetch.meta and not await self._begin(fetch, chunk):
                return
            if chunk.offset != fetch.offset:
                return  # an answer to what was asked twice
            assert fetch.path is not None
            await asyncio.to_thread(_write_at, fetch.path, chunk.data, fetch.offset)
            fetch.offset += len(chunk.data)
            if fetch.offset < chunk.data_bytes:
                self._ask(fetch)
            else:
                await self._finish(fetch)
        except StoreFullError as error:
            logger.warning("%s; it is tried again", error)
            self._begin_anew(fetch)
        finally:
            fetch.working = False

    async def _begin(self, fetch: _Fetch, chunk: SnapshotChunk) -> bool:
        """Begin with another snapshot than so far; False when this one is of no use."""
        meta = _meta_of(chunk)
        fetch.meta, fetch.offset = None, 0
        if chunk.offset or meta.last_included_index < fetch.least_index:
            return False  # any other is asked for next
        folder = await asyncio.to_thread(self._snapshots.installing)
        fetch.path, fetch.meta = folder / DATA_NAME, meta
        logger.info(
            "fetching the snapshot up to entry %d from %s: %d bytes",
            meta.last_included_index,
            fetch.sender,
            meta.data_bytes,
        )
        return True

    async def _finish(self, fetch: _Fetch) -> None:
        """Make the snapshot durable and this member's own, if it is what was announced."""
        assert fetch.meta is not None
        assert fetch.path is not None
        try:
            await asyncio.to_thread(self._verify_and_adopt, fetch.path, fetch.meta)
        except StoreDamagedError as error:
            logger.warning(
                "what %s sent is no snapshot: %s; it is tried again", fetch.sender, error
            )
            self._begin_anew(fetch)
        else:
            self.installed += 1
            logger.info("the snapshot up to entry %d is here", fetch.meta.last_included_index)
            self._fetch = None

    def _begin_anew(self, fetch: _Fetch) -> None:
        """Drop what came in. It is asked for again in its time, or there would be no pause."""
        fetch.meta, fetch.offset = None, 0
        fetch.asked_at_s = self._loop.time()

    def _verify_and_adopt(self, path: Path, meta: SnapshotMeta) -> None:
        """In a thread. That the machine cannot load it would be found out too late otherwise."""
        self._snapshots.verify(path, meta, machines.make(self._name).load)
        self._snapshots.adopt(meta)

    # -- lending -----------------------------------------------------------------------------------

    def _lend(self, request: SnapshotChunkRequest) -> None:
        """Send the chunk that is asked for; the first of the newest snapshot if that is gone."""
        loan = self._loans.get(request.sender)
        if loan is not None and loan.reading:
            return
        asked = [meta for meta in self._good() if meta.last_included_index == request.index]
        metas = asked or self._good()[:1]
        if not metas:
            return
        offset = request.offset if asked else 0
        if offset > metas[0].data_bytes:
            return
        loan = _Loan(metas[0].last_included_index, self._loop.time() + LENT_S, reading=True)
        self._loans[request.sender] = loan
        self._spawn(self._send_chunk(loan, request.sender, metas[0], offset))

    def _good(self) -> list[SnapshotMeta]:
        """Newest first; what the log contradicts, a member must not hand on."""
        return [
            meta
            for meta in self._snapshots.newest_first
            if agrees(meta.last_included_index, meta.last_included_term, self._store)
        ]

    async def _send_chunk(
        self, loan: _Loan, receiver: str, meta: SnapshotMeta, offset: int
    ) -> None:
        try:
            data = await asyncio.to_thread(self._snapshots.chunk, meta, offset, CHUNK_BYTES_MAX)
        finally:
            loan.reading = False
        if data is not None and not self._closed:
            self._send(
                SnapshotChunk(
                    sender=self._self_id,
                    receiver=receiver,
                    last_included_index=meta.last_included_index,
                    last_included_term=meta.last_included_term,
                    data_bytes=meta.data_bytes,
                    data_crc32=meta.data_crc32,
                    offset=offset,
                    data=data,
                )
            )

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self._fail(error)

        task = self._loop.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _meta_of(chunk: SnapshotChunk) -> SnapshotMeta:
    return SnapshotMeta(
        last_included_index=chunk.last_included_index,
        last_included_term=chunk.last_included_term,
        data_bytes=chunk.data_bytes,
        data_crc32=chunk.data_crc32,
    )


def _write_at(path: Path, data: bytes | memoryview, offset: int) -> None:
    """Write at the end of what is there; blocks. StoreFullError, StoreError."""
    with disk_errors(path), path.open("ab") as file:
        os.ftruncate(file.fileno(), offset)
        file.write(data)
