"""Work of the core that waits for the disk: the calls in threads, and what goes on after them."""

from collections.abc import Callable

from dledger_node.raft.ready import HardState
from dledger_node.shell.loop import CoreLoop
from dledger_node.volume.disk_calls import DiskCalls


class DiskWaits:
    """Saves term and vote, and changes that remove entries. The loop continues after each."""

    def __init__(
        self,
        save_hard_state: Callable[[HardState], None],
        *,
        begin_turn: Callable[[], None],
        go_on: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`begin_turn` is called before the core continues. `go_on` is called once no work of the
        core waits any longer. `fail` gets an error of the disk, which stops this member.
        """
        self._begin_turn = begin_turn
        self._go_on = go_on
        self._core_loop: CoreLoop | None = None
        self.saves = DiskCalls[HardState](
            "hard state",
            save_hard_state,
            what="a save of term and vote",
            on_done=self._saved,
            on_failed=fail,
        )
        self.changes = DiskCalls[Callable[[], None]](
            "log change",
            lambda change: change(),
            what="a change of the log",
            on_done=self._changed,
            on_failed=fail,
        )

    def drive(self, core_loop: CoreLoop) -> None:
        """Set the loop whose work waits; it is built after its store."""
        self._core_loop = core_loop

    @property
    def any(self) -> bool:
        """Whether work of the core waits for the disk, so that the log must not be touched."""
        return self._core_loop is not None and self._core_loop.saving is not None

    async def close(self) -> None:
        """Wait until no call is under way; the end of one may begin another."""
        await self.saves.close()
        await self.changes.close()
        while self.saves.is_busy or self.changes.is_busy:
            await self.saves.close()
            await self.changes.close()

    def _saved(self) -> None:
        assert self._core_loop is not None
        self._continue(self._core_loop.hard_state_saved)

    def _changed(self) -> None:
        assert self._core_loop is not None
        self._continue(self._core_loop.log_changed)

    def _continue(self, work: Callable[[], None]) -> None:
        self._begin_turn()
        try:
            work()
        finally:
            if not self.any:
                self._go_on()
