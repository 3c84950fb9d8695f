"""The feed of consume queues of a member that applies as much of a log as a test says."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.feed import QueueFeed
from dledger_broker.queues.queue_store import QueueStore
from dledger_broker_log.logs import Log
from dledger_formats.log.disk import EntryHeader
from dledger_node.errors import StoreDamagedError
from dledger_node.state_machine.machine import CommittedEntry
from dledger_wire.listener import until

Read = tuple[list[CommittedEntry], EntryHeader]


class StagedMember:
    """A member with a log, of which it has applied as much as the test says."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.begin_index, self.applied_index, self.is_applying = 0, -1, False
        self.is_in_memory = True
        self.damage: StoreDamagedError | None = None
        self.failed: list[BaseException] = []
        self.threads: list[str] = []
        """Where each batch was read."""
        self._listener: Callable[[int], None] = lambda _: None

    @property
    def end_index(self) -> int:
        return len(self.log.entries) - 1

    def reading_disk(self) -> AbstractContextManager[None]:
        return nullcontext()

    def call_when_applied(self, listener: Callable[[int], None]) -> None:
        self._listener = listener

    def apply(self, index: int) -> None:
        self.applied_index = index
        self._listener(index)

    def header(self, index: int) -> EntryHeader | None:
        mark = self.log.mark(index)
        if mark is None:
            return None
        return EntryHeader(0, 0, index, mark.term, mark.pos, 0, mark.chain_crc, 0, 0)

    def read_in_memory(self, first: int, last: int, _: int) -> Read | None:
        return self.read(first, last) if self.is_in_memory else None

    def read(self, first: int, last: int) -> Read:
        if self.damage is not None:
            raise self.damage
        self.threads.append(threading.current_thread().name)
        header = self.header(last)
        assert header is not None
        return self.log.batch(first, last + 1), header

    def fail(self, error: BaseException) -> None:
        self.failed.append(error)


class Stage:
    """A feed of a staged member."""

    def __init__(self, folder: Path, log: Log) -> None:
        self.member = StagedMember(log)
        self.built: list[QueueId] = []
        member: Any = self.member
        self.feed = QueueFeed(member, folder, built=self.built.extend, rebuilding=lambda: None)
        self.store: QueueStore

    async def open(self) -> None:
        self.store = await self.feed.open()

    async def reach(self, index: int) -> None:
        self.member.apply(index)
        await until(lambda: self.feed.built_index >= index)

    def has_all(self) -> bool:
        """Whether the units of all messages are there."""
        return all(
            self.store.units(*queue, 0, 100) == units
            for queue, units in self.member.log.units.items()
        )
