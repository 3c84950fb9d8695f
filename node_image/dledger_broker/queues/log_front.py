"""Which message of each queue is the first one in a log whose front was removed.

The units of a queue cannot tell. One that was zeroed looks like one of a removed message that was
never built again, and one that names an earlier place like one of a message that is gone. So before
a message counts as removed, the log itself is read, from its first entry on, until it has shown the
first message of the queue. What it has shown is remembered until more of its front is removed.
"""

import threading
from collections.abc import Sequence
from typing import Final, Protocol

from dledger_broker.queues.builder import QueueId, changes_of
from dledger_formats.log.disk import EntryHeader
from dledger_node.errors import StoreDamagedError
from dledger_node.state_machine.machine import CommittedEntry

LOOK_BATCHES: Final = 4
"""How much one look reads at most, so that others get the thread in between."""


class FrontUnknownError(Exception):
    """The log has not shown yet what is asked for; another look reads on."""


class Log(Protocol):
    """The log of a member, as far as it is asked here."""

    @property
    def begin_index(self) -> int:
        """Index of the first entry."""

    @property
    def applied_index(self) -> int:
        """Index up to which every entry is applied."""

    def read(
        self, first_index: int, last_index: int
    ) -> tuple[Sequence[CommittedEntry], EntryHeader]:
        """Return committed entries from the first one on, and the header of the last that was read;
        blocks. Raises IndexError if the log lacks the first entry, StoreDamagedError.
        """


class LogFront:
    """What the log has shown. May be asked in any thread."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._begin_index = -1
        self._next_index = 0
        self._firsts: dict[QueueId, int] = {}

    def first_offset(self, queue: QueueId) -> int | None:
        """Return the offset of the first message of a queue; None if no applied entry is one.

        The topic must have been created before the first entry of the log. Blocks, and raises
        FrontUnknownError if the log has to be read further, or cannot be read now.
        """
        with self._lock:
            applied_index = self._log.applied_index
            self._start_again_if_moved()
            for _ in range(LOOK_BATCHES):
                if queue in self._firsts or self._next_index > applied_index:
                    return self._firsts.get(queue)
                self._read_on(applied_index)
        raise FrontUnknownError(f"the log is read for the first message of {queue}")

    def _start_again_if_moved(self) -> None:
        begin_index = self._log.begin_index
        if begin_index != self._begin_index:
            self._begin_index = self._next_index = begin_index
            self._firsts.clear()

    def _read_on(self, applied_index: int) -> None:
        """Read one batch. Raises FrontUnknownError."""
        try:
            entries, last = self._log.read(self._next_index, applied_index)
        except (IndexError, StoreDamagedError) as error:
            raise FrontUnknownError(f"the log cannot be read now: {error}") from error
        changes = changes_of(entries)
        if changes.deleted:
            kept = {key: at for key, at in self._firsts.items() if key.topic not in changes.deleted}
            self._firsts = kept
        for queue, runs in changes.runs.items():
            self._firsts.setdefault(queue, runs[0].first_unit)
        self._next_index = last.index + 1
