"""One member's threads: the loop, and the threads to which it hands work on its store.

The loop does what `shell` and `volume` do, in their order, and a random step at a time. As in the
node, there is at most one flush, one step of the upkeep, one look ahead and one batch of entries to
apply under way; what happens on the loop between two steps of the upkeep stays on the loop.
"""

import random
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final

from dledger_formats.http.status import SegmentFile
from dledger_formats.log import disk
from dledger_formats.log.memberships import MEMBERSHIP_CHANNEL
from dledger_node.errors import StoreFullError
from dledger_node.store.log.log_store import LogStore
from dledger_schedules.promises import Log, Promises
from dledger_schedules.scheduler import ScheduledLock, Scheduler, Task
from dledger_store_faults.contents import body_of

STEPS: Final = 14
WEIGHTS: Final = {
    "append": 6, "flush": 5, "upkeep": 5, "ahead": 2, "apply": 2, "http": 2, "cut": 4, "replace": 1,
}  # fmt: skip
"""How often the loop takes each step."""
Work = Callable[[], Any]
Coroutine = Generator[Work, Any, None]
"""Work of the loop that awaits work of a thread."""


class WrongReadError(Exception):
    """A reader got entries that were not written."""


class Member:
    """The threads of one member."""

    def __init__(
        self,
        folder: Path,
        sizes: dict[str, int],
        scheduler: Scheduler,
        choices: random.Random,
        promises: Promises,
    ) -> None:
        self._scheduler = scheduler
        self._choices = choices
        self._promises = promises
        self._term = 1
        self._committed_index = -1
        self._applied_index = -1
        self._store = LogStore.open(folder, **sizes)
        self._reading = ScheduledLock(scheduler)
        self._under_way: dict[str, tuple[Coroutine, Task]] = {}
        self._segment_bytes = sizes["segment_size_bytes"]
        self.may_lack_room = True
        """Whether an allocation may fail now."""
        self.before_close: Callable[[], None] = lambda: None
        """Called once no other thread is left."""

    def prepare(self) -> None:
        """Write a log and save a checkpoint, before the threads begin."""
        for _ in range(self._choices.randrange(2, 12)):
            self._append(self._choices.choice([1, 2, 4]))
        target = self._store.flush_target()
        self._store.flush(target)
        self._flushed(target)
        self._committed_index = self._store.durable_index - self._choices.randrange(4)
        self._applied_index = self._committed_index - self._choices.randrange(4)
        self._store.save_checkpoint(self._committed_index)
        self._promises.log.committed_index = self._store.committed_index
        self._store.preallocate()

    def live(self) -> None:
        """Run the loop, then let all threads end and close the store."""
        begin = {
            "flush": self._flush,
            "upkeep": self._upkeep,
            "ahead": self._look_ahead,
            "apply": self._apply,
            "http": self._serve_segment,
        }
        for _ in range(STEPS):
            self._take_results()
            name = self._choices.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            if name in begin and name not in self._under_way:
                self._go_on(name, begin[name](), None)
            elif name == "append":
                self._append(self._choices.choice([1, 1, 2, 4]))
            elif name == "cut":
                self._truncate()
            elif name == "replace":
                self._replace()
            self._commit()
        while self._under_way:
            self._scheduler.join_any([task for _, task in self._under_way.values()])
            self._take_results()
        self.before_close()
        self._store.close()
        self._promises.log.durable_index = self._store.durable_index

    # -- the loop's thread -------------------------------------------------------------------------

    def _take_results(self) -> None:
        for name, (coroutine, task) in list(self._under_way.items()):
            if task.done:
                del self._under_way[name]
                if task.error is not None and not isinstance(task.error, StoreFullError):
                    raise task.error
                if task.error is None:
                    self._go_on(name, coroutine, task.result)

    def _go_on(self, name: str, coroutine: Coroutine, result: Any) -> None:
        try:
            work = coroutine.send(result)
        except StopIteration:
            return
        self._under_way[name] = coroutine, self._scheduler.spawn(name, work)

    def _append(self, count: int) -> None:
        is_change = self._choices.randrange(10) == 0
        count = 1 if is_change else count
        log, store, term = self._promises.log, self._store, self._term
        first_index = self._promises.write(term, count, is_change=is_change)
        bodies = [log.body(index) for index in range(first_index, first_index + count)]
        try:
            if is_change:
                store.append_bodies(bodies, term, [MEMBERSHIP_CHANNEL], disk.NOOP)
            else:
                store.append_bodies(bodies, term)
        except StoreFullError:
            self._promises.cut(first_index)

    def _truncate(self) -> None:
        store, log = self._store, self._promises.log
        lowest = max(self._committed_index, store.begin_index) + 1
        if lowest > store.end_index:
            return
        first_index = self._choices.randint(lowest, store.end_index)
        log.durable_index = min(log.durable_index, first_index - 1)
        store.truncate(first_index)
        self._promises.cut(first_index)
        self._term += 1

    def _replace(self) -> None:
        """Replace the log by a leader's, which begins after the entries committed here."""
        store, old = self._store, self._promises.log
        if self._committed_index < store.begin_index:
            return
        first_index = self._choices.randint(self._committed_index + 1, store.end_index + 3)
        committed = store.position(self._committed_index)
        segment = committed.pos // self._segment_bytes + self._choices.choice([1, 1, 2])
        self._term += 1
        count, term = self._choices.choice([1, 3]), self._term
        indexes = range(first_index, first_index + count)
        packed = disk.pack_entries(
            [body_of(index, term) for index in indexes], magic=disk.NORMAL,
            first_index=first_index, term=term, pos=segment * self._segment_bytes,
            previous_chain_crc=4711,
        )  # fmt: skip
        block = store.front.check(
            packed.data, first_index=first_index, last_index=indexes[-1], term=term
        )
        membership = old.base(self._committed_index + 1)
        changes = {} if membership is None else {first_index - 1: membership}
        terms = dict.fromkeys(indexes, term)
        self.may_lack_room = False
        with self._reading:
            self._promises.replace(Log({first_index}, terms, changes, indexes[-1]))
            store.replace(block, membership)
            self._promises.replaced()
        self.may_lack_room = True
        self._committed_index = first_index
        self._applied_index = max(self._applied_index, first_index - 1)

    def _commit(self) -> None:
        self._committed_index = max(
            self._committed_index, self._store.durable_index - self._choices.randrange(6)
        )

    def _flushed(self, target: Any) -> None:
        self._store.flushed(target)
        self._promises.log.durable_index = self._store.durable_index

    # -- work of the loop that awaits work of a thread ---------------------------------------------

    def _flush(self) -> Coroutine:
        if self._store.durable_index < self._store.end_index:
            target = self._store.flush_target()
            yield lambda: self._store.flush(target)
            self._flushed(target)

    def _upkeep(self) -> Coroutine:
        store, committed_index, log = self._store, self._committed_index, self._promises.log
        yield lambda: self._save_checkpoint(committed_index, log)
        if self._choices.randrange(2):
            yield from self._remove_front()
        yield store.preallocate

    def _remove_front(self) -> Coroutine:
        store, log = self._store, self._promises.log
        limit = min(store.committed_index - 1, self._applied_index)
        due = [each for each in store.front.sealed_segments() if each.last_index <= limit]
        if not due:
            return
        first_index = due[self._choices.randrange(len(due))].last_index + 1
        image = store.producers.image_due(first_index)
        if image is not None:
            yield lambda: store.producers.save(image)
        log.begins.add(first_index)
        begin = yield lambda: store.front.save_begin(first_index)
        if first_index <= store.begin_index:
            return
        log.former_begins, log.begins = log.begins - {first_index}, {first_index}
        files = store.front.forget_before(begin)
        yield lambda: store.front.delete(files)
        log.former_begins = set()

    def _look_ahead(self) -> Coroutine:
        yield self._choices.choice([self._store.preallocate, self._store.zero_ahead.run])

    def _apply(self) -> Coroutine:
        committed_index = self._committed_index
        yield lambda: self._apply_batch(committed_index)

    def _serve_segment(self) -> Coroutine:
        files = [f for f in self._store.segments.data(self._committed_index) if f.readable_bytes]
        if files:
            file, terms = self._choices.choice(files), dict(self._promises.log.terms)
            yield lambda: self._read_segment(file, terms)

    # -- other threads -----------------------------------------------------------------------------

    def _save_checkpoint(self, committed_index: int, log: Log) -> None:
        self._store.save_checkpoint(committed_index)
        saved_index = self._store.committed_index
        if log is self._promises.log:
            log.committed_index = saved_index

    def _apply_batch(self, committed_index: int) -> None:
        store = self._store
        with self._reading:
            first_index = max(self._applied_index + 1, store.begin_index)
            last_index = min(committed_index, store.end_index)
            if first_index <= last_index:
                runs, last_index = store.read_range(first_index, last_index, 4096)
                self._check(runs, first_index, last_index, self._promises.log.terms)
                self._applied_index = last_index

    def _read_segment(self, file: SegmentFile, terms: dict[int, int]) -> None:
        try:
            raw = self._store.segments.read("data", file.name, 0, file.readable_bytes)
        except FileNotFoundError:  # retention or a leader's log has removed it
            return
        self._check([raw], file.first_index, None, terms)

    def _check(
        self, runs: Sequence[bytes], first_index: int, last_index: int | None, terms: dict[int, int]
    ) -> None:
        index = first_index
        for run in runs:
            at = 0
            while at < len(run) and disk.BLANK_HEADER.unpack_from(run, at)[0] != disk.BLANK:
                header = disk.unpack_header(run, at)
                if (header.index, header.term) != (index, terms.get(index)):
                    raise WrongReadError(f"{header}, where entry {index} was written")
                at, index = at + header.size, index + 1
        if last_index is not None and index != last_index + 1:
            raise WrongReadError(f"entries up to {index - 1}, where {last_index} was promised")
