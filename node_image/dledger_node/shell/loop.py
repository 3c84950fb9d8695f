"""The loop that drives the Raft core: it passes in an input, does the resulting work, and reports.

One turn:

1. an input goes into the core: a tick, a message, a proposal, a flush that has finished;
2. while the core has a `Ready`, its work is done in the order that `Ready` requires: the hard state
   is saved, the log is written, messages are sent, and `advance` reports this to the core;
3. a flush begins for the written entries;
4. the listeners receive the committed index, and answer the requests that waited for it.

The loop has no clock, thread, socket or file of its own. A member runs it on asyncio with its log
store and its links; the simulator runs the same object with a simulated disk and network, so that
every seed also tests the order of the work.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from dledger_node.errors import StoreError
from dledger_node.raft.core import Raft
from dledger_node.raft.messages import Message
from dledger_node.raft.ready import HardState, ReadState, Ready, Write


class Store(Protocol):
    """The member's disk, as far as the loop needs it. An error in any method stops the member."""

    def save_hard_state(self, hard_state: HardState) -> bool:
        """Make term and vote durable; return False if that continues in the background.

        The store then calls `CoreLoop.hard_state_saved`; the loop does no other work until then.
        """

    def write(self, write: Write) -> bool:
        """Carry out one of the core's writes in the page cache; a flush makes it durable.

        Return False if that continues in the background. The store then calls
        `CoreLoop.log_changed`; the loop does no other work until then.
        """

    def written(self) -> tuple[int, int]:
        """Return index and term of the last written entry, durable or not."""

    def begin_flush(self) -> None:
        """Begin to flush the written entries, unless a flush is already in flight, or a write
        continues in the background.

        The member calls `CoreLoop.persisted` when a flush has finished.
        """


class Links(Protocol):
    """The connections to the peers."""

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages in order, or drop them: the core expects loss."""


class TurnListener(Protocol):
    """A part of the member that follows the committed index and the leadership."""

    def on_turn(self, committed_index: int) -> None:
        """Act on the changes of the last turn; entries up to `committed_index` are committed."""


class CoreLoop:
    """Drives one core. After an error it does nothing further: disk and core may disagree."""

    def __init__(
        self,
        core: Raft,
        store: Store,
        links: Links,
        *,
        confirm_unflushed: bool = False,
        release_reads: Callable[[Sequence[ReadState]], None],
        fail: Callable[[Exception], None],
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`confirm_unflushed` lets a written entry count as durable (AsyncFlush).

        `catch_up` is called before each input; it passes the core the ticks of an idle time.

        `release_reads` receives the linearizable reads that the core has released; a listener
        answers them. `fail` receives the error that stops this member.
        """
        self._core = core
        self._store = store
        self._links = links
        self._confirm_unflushed = confirm_unflushed
        self._release_reads = release_reads
        self._fail = fail
        self._catch_up = catch_up
        self._listeners: tuple[TurnListener, ...] = ()
        self._saving: Ready | None = None
        self._next_write = 0
        """The write of `_saving` with which `log_changed` continues."""
        self._halted = False

    @property
    def saving(self) -> Ready | None:
        """The work that waits until its hard state is saved, or until the log is cut or replaced;
        None if no work waits.
        """
        return self._saving

    def listen(self, listeners: Iterable[TurnListener]) -> None:
        """Set the parts that are called at the end of a turn, in this order."""
        self._listeners = tuple(listeners)

    def halt(self) -> None:
        """Do nothing from now on: the core's state and the disk may differ."""
        self._halted = True

    def tick(self, elapsed_ticks: int = 1, *, has_room: bool = True) -> None:
        """Let one tick pass (`Raft.tick`). The listeners are called even if there is no work."""
        self.turn(lambda: self._core.tick(elapsed_ticks, has_room=has_room), notify=True)

    def step(self, message: Message) -> None:
        """Give the core a peer's message, whose entries are checked and have room on the disk."""
        self.turn(lambda: self._core.step(message))

    def persisted(self, end_index: int, end_term: int) -> None:
        """Report to the core that the log is durable up to this entry."""
        self.turn(lambda: self._core.persisted(end_index, end_term))

    def hard_state_saved(self) -> None:
        """Continue the work whose hard state has become durable."""
        ready, self._saving = self._saving, None
        assert ready is not None
        self.turn(lambda: self._do(ready), notify=True)

    def log_changed(self) -> None:
        """Continue the work after one of its writes has ended in the background."""
        ready, self._saving = self._saving, None
        assert ready is not None
        self.turn(lambda: self._do(ready, self._next_write), notify=True)

    def turn(self, give: Callable[[], object] | None = None, *, notify: bool = False) -> None:
        """Give the core an input, and do its work until there is none left.

        The listeners are called if there was any work, or if `notify` is true. Otherwise nothing
        has changed that a request waits for.
        """
        if self._halted:
            return
        try:
            self._catch_up()
            if give is not None:
                give()
            while self._saving is None and (ready := self._core.ready()) is not None:
                notify = True
                hard_state = ready.hard_state
                if hard_state is not None and not self._store.save_hard_state(hard_state):
                    self._saving = ready
                else:
                    self._do(ready)
            self._store.begin_flush()
        except Exception as error:
            self._end(error)
            return
        if notify and self._saving is None:
            self._call_listeners()

    def _call_listeners(self) -> None:
        """Call the listeners in order. A StoreError of one of them also stops this member."""
        committed_index = self._core.committed_index
        try:
            for listener in self._listeners:
                listener.on_turn(committed_index)
        except StoreError as error:
            self._end(error)

    def _end(self, error: Exception) -> None:
        """Do nothing from now on, and report the error that stops this member."""
        self.halt()
        self._fail(error)

    def _do(self, ready: Ready, first_write: int = 0) -> None:
        """Do one batch of work once its hard state is saved, in the order that `Ready` requires.

        Stop at a write that continues in the background: nothing may be sent before it has ended.
        """
        for number in range(first_write, len(ready.writes)):
            if not self._store.write(ready.writes[number]):
                self._saving, self._next_write = ready, number + 1
                return
        if ready.messages:
            self._links.send(ready.messages)
        if ready.reads:
            self._release_reads(ready.reads)
        self._core.advance(ready)
        if self._confirm_unflushed and ready.writes:
            self._core.persisted(*self._store.written(), is_flushed=False)
