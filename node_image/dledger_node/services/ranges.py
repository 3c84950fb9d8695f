"""READ_RANGE: committed entries as they are stored.

The loop decides what is read. It also reads, if the page cache has the bytes: a copy of 1 MiB takes
0.15 ms. Otherwise a thread reads them, a few at a time, and lets the kernel read ahead.

A segment may be removed, and the store closed, between the decision and the end of the read. So
the loop checks the log after the read, and decides again if it has changed.
"""

import asyncio
import logging
from functools import partial
from typing import Final, NamedTuple

from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.read_range import ReadRangeRequest, ReadRangeResponse
from dledger_formats.protocol.requests import Consistency
from dledger_node.errors import StoreDamagedError
from dledger_node.limited_log import LineBudget
from dledger_node.raft.core import Raft
from dledger_node.remoting.connection_views import Reader
from dledger_node.remoting.read_turns import ReadTurns
from dledger_node.services.disk_reads import DiskReads
from dledger_node.services.held_reads import HeldReads, WaitingRead
from dledger_node.services.read_proofs import ReadProofs
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.stored_range import RangeMovedError, StoredRange

logger = logging.getLogger(__name__)

INDEX_MAX: Final = (1 << 63) - 1
RANGE_BYTES_MAX: Final = 1 << 20
"""Bytes of an answer that holds more than one entry."""
SHARED_BYTES_MAX: Final = 64 << 10
"""Entries of an answer are kept for the next reader if they have at most this size in all."""
JOINED_BYTES_MAX: Final = 8 << 10
"""Entries of at most this size in all are sent in one piece with the head of the answer."""
READ_AHEAD_BYTES: Final = 4 * RANGE_BYTES_MAX
"""Bytes after a range that the kernel reads in the background, once the disk had to be read."""


class _Read(NamedTuple):
    """A request that is not answered yet."""

    reader: Reader
    opaque: int
    first_index: int
    last_index: int
    bytes_max: int
    consistency: Consistency | None
    may_be_empty: bool = False
    """Whether it has waited for its first entry; an empty answer then does not need a proof."""


class Ranges:
    """Answers READ_RANGE."""

    def __init__(
        self,
        core: Raft,
        store: LogStore,
        proofs: ReadProofs,
        *,
        group: str,
        turns: ReadTurns,
        held: HeldReads,
        disk: DiskReads,
    ) -> None:
        self._core = core
        self._store = store
        self._proofs = proofs
        self._group = group
        self._turns = turns
        self._held = held
        self._disk = disk
        self._lines = LineBudget(asyncio.get_running_loop().time)
        self._last: tuple[tuple[int, ...], bytes | bytearray] | None = None
        """What the last read asked for, and its bytes: committed entries do not change, and many
        readers may wait for the same ones. Reads of removed entries are refused before.
        """
        self._last_head: tuple[tuple[object, ...], bytes] = ((), b"")

    def read(self, reader: Reader, opaque: int, request: ReadRangeRequest) -> None:
        """Answer a range of committed entries in the reader's turn, any other after a proof.

        A request that waits is answered once its first entry is committed, or its time has passed.
        """
        consistency = request.consistency
        last_index = request.last_index if request.last_index >= 0 else INDEX_MAX
        bytes_max = max(1, min(request.max_size, RANGE_BYTES_MAX))
        read = _Read(reader, opaque, request.begin_index, last_index, bytes_max, consistency)
        if last_index < request.begin_index:
            self._send(read, DLedgerResponseCode.UNEXPECTED_ARGUMENT)
        elif self._is_due(request):
            self._turns.submit(reader, partial(self._begin, read))
        elif request.wait_ms <= 0:
            self._turns.hold(reader)
            self._proofs.prove_read(consistency, partial(self._proof_ended, read))
        elif self._cannot_wait(consistency):
            self._proved(read, DLedgerResponseCode.NOT_LEADER)
        else:
            read = read._replace(may_be_empty=True)
            self._held.wait(
                request.begin_index,
                request.wait_ms,
                WaitingRead(
                    partial(self._turns.submit, reader, partial(self._begin, read)),
                    partial(self._send, read, DLedgerResponseCode.NOT_LEADER),
                ),
                stale=consistency is Consistency.STALE,
            )

    def _is_due(self, request: ReadRangeRequest) -> bool:
        """Return whether there are entries, and the read is not to wait for more."""
        count = self._core.readable_index - request.begin_index + 1
        return count > 0 and (
            request.wait_ms <= 0
            or self._cannot_wait(request.consistency)
            or self._held.admits(count)
        )

    def _cannot_wait(self, consistency: Consistency | None) -> bool:
        """Return whether a read must not wait here, since no leader sends this member entries."""
        if consistency is None:
            return not self._core.master  # it could become master before the reader's turn
        return consistency is Consistency.LINEARIZABLE and self._core.leader_id is None

    def _proof_ended(self, read: _Read, code: DLedgerResponseCode) -> None:
        self._proved(read, code)
        self._turns.release(read.reader)

    def _proved(self, read: _Read, code: DLedgerResponseCode) -> None:
        if code is DLedgerResponseCode.SUCCESS:
            self._turns.submit(read.reader, partial(self._begin, read))
        else:
            self._turns.submit(read.reader, partial(self._send, read, code))

    def _begin(self, read: _Read) -> None:
        """Answer from the page cache, or hand the read to a thread."""
        committed_index = self._core.readable_index
        refused = self._proofs.refuse(read.first_index, read.consistency)
        if refused is not None:
            is_end = read.first_index > committed_index
            if refused is DLedgerResponseCode.INDEX_OUT_OF_RANGE and is_end and read.may_be_empty:
                is_lost = self._cannot_wait(read.consistency)
                refused = DLedgerResponseCode.NOT_LEADER if is_lost else DLedgerResponseCode.SUCCESS
            self._send(read, refused)
            return
        last_index = min(read.last_index, committed_index)
        asked = (read.first_index, last_index, read.bytes_max, self._store.generation)
        if self._last is not None and self._last[0] == asked:
            self._send(read, DLedgerResponseCode.SUCCESS, self._last[1])
            return
        data: bytearray | None = None
        try:
            stored = self._store.stored_range(
                read.first_index, last_index, read.bytes_max, wait=False
            )
            if stored is not None:
                data = stored.read_cached()
        except (StoreDamagedError, RangeMovedError) as error:
            self._fail(read, error)
            return
        if data is not None:
            self._last = (asked, data) if len(data) <= SHARED_BYTES_MAX else None
            self._send(read, DLedgerResponseCode.SUCCESS, data)
            return
        read = read._replace(last_index=last_index)
        self._disk.read(
            read.reader,
            partial(self._read_disk, read),
            partial(self._disk_read, read),
            partial(self._send, read, DLedgerResponseCode.NOT_LEADER),
        )

    # -- reads of the disk -----------------------------------------------------------------------

    def _read_disk(self, read: _Read) -> tuple[StoredRange, bytes]:
        """Read a range; runs in a thread."""
        stored = self._store.stored_range(read.first_index, read.last_index, read.bytes_max)
        assert stored is not None
        return stored, stored.read(READ_AHEAD_BYTES)

    def _disk_read(self, read: _Read, future: "asyncio.Future[tuple[StoredRange, bytes]]") -> None:
        try:
            stored, data = future.result()
        except (StoreDamagedError, RangeMovedError) as error:
            self._fail(read, error)
        except Exception:  # unexpected, but the client must get an answer
            admitted = self._lines.admit("unread")
            if admitted is not None:
                logger.exception("cannot read the entries from %d on%s", read.first_index, admitted)
            self._send(read, DLedgerResponseCode.INTERNAL_ERROR)
        else:
            refused = self._proofs.refuse(read.first_index, read.consistency)
            is_held = self._store.still_holds(stored) and refused is None
            if is_held and read.reader.unread_since_s is None:
                self._send(read, DLedgerResponseCode.SUCCESS, data)
            else:  # these bytes must not wait in memory; they are in the page cache by now
                self._turns.submit(read.reader, partial(self._begin, read))

    def _fail(self, read: _Read, error: StoreDamagedError | RangeMovedError) -> None:
        """Answer a read that failed. If the entries were removed, the answer says so."""
        if isinstance(error, StoreDamagedError):
            self._store.note_damage(error, read.first_index)
        else:
            admitted = self._lines.admit("moved")
            if admitted is not None:
                logger.info(
                    "entry %d is no longer where it was: %s%s", read.first_index, error, admitted
                )
        code = self._proofs.refuse(read.first_index, read.consistency)
        code = code or DLedgerResponseCode.NOT_LEADER
        self._send(read, code)

    def _send(self, read: _Read, code: DLedgerResponseCode, data: bytes | bytearray = b"") -> None:
        head = frames.encode_response_head(read.opaque, self._head(code), len(data))
        if len(data) <= JOINED_BYTES_MAX:
            read.reader.send(head + data)
        else:
            read.reader.send(head)
            read.reader.send(data)

    def _head(self, code: DLedgerResponseCode) -> bytes:
        """Return what precedes the entries; consecutive equal answers get the same bytes."""
        core = self._core
        state = (
            code, core.leader_id, core.term, core.ledger_begin_index, core.readable_index
        )  # fmt: skip
        if self._last_head[0] != state:
            head = ReadRangeResponse(
                code=code,
                group=self._group,
                leader_id=core.leader_id,
                term=core.term,
                ledger_begin_index=core.ledger_begin_index,
                committed_index=core.readable_index,
            ).head()
            self._last_head = (state, head)
        return self._last_head[1]
