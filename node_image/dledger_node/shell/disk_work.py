"""The work of a member that waits for its disk: in which threads it runs, and whether it stalls."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dledger_formats.http.status import FlushDiskType
from dledger_formats.settings import NodeSettings
from dledger_node.closing import Closing
from dledger_node.raft.ready import HardState
from dledger_node.shell.disk_waits import DiskWaits
from dledger_node.shell.room import LogRoom
from dledger_node.store.log.flush_target import FlushTarget
from dledger_node.store.log.log_store import LogStore
from dledger_node.volume.group_commit import GroupCommit
from dledger_node.volume.health import VolumeHealth

ASYNC_FLUSH_INTERVAL_S: Final = 0.01
"""Java's `flushFileInterval`; Java only flushes at this interval."""
THREADS: Final = 3


class DiskWork:
    """Flushes, saves and changes of the log, the allocation of segments, and the volume's health.

    Each of them may hang with the disk, so `health` watches all of them.
    """

    def __init__(
        self,
        settings: NodeSettings,
        store: LogStore,
        save_hard_state: Callable[[HardState], None],
        *,
        begin_turn: Callable[[], None],
        on_durable: Callable[[FlushTarget], None],
        go_on: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`begin_turn` is called before the core continues, `on_durable` after each flush.

        `go_on` is called once the log may take entries again. `fail` gets an error of the disk,
        which stops this member.
        """
        self._go_on = go_on
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="store")
        self.confirms_unflushed = settings.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        """Whether entries are confirmed before they are flushed."""
        self.group_commit = GroupCommit(
            store,
            self._executor,
            interval_s=ASYNC_FLUSH_INTERVAL_S if self.confirms_unflushed else 0.0,
            on_durable=on_durable,
            on_failed=fail,
        )
        self.waits = DiskWaits(
            save_hard_state, begin_turn=begin_turn, go_on=self._resume, fail=fail
        )
        works = self.group_commit, self.waits.saves, self.waits.changes
        self.health = VolumeHealth(store, *works, stall_s=settings.flush_stall_ms / 1000)
        self.room = LogRoom(
            store, self.health, self._executor, is_saving=self.is_saving, go_on=go_on, fail=fail
        )
        self.health.watch(self.room)

    def is_saving(self) -> bool:
        """Return whether work of the core waits for the disk (`DiskWaits.any`)."""
        return self.waits.any

    async def close(self, closing: Closing) -> None:
        """Wait until no thread works for this member."""
        await closing.wait(self.waits.close)
        await closing.wait(self.room.close)
        await closing.wait(self.waits.close)  # for work that the room let continue
        await closing.wait(self.group_commit.drain)
        closing.step(self._executor.shutdown)

    def _resume(self) -> None:
        """Report flushes again, and take what waited behind the core's work."""
        self.group_commit.resume()
        self._go_on()
