"""Follow the log: which entries the next batch of a streaming query has.

An offset is the index of the next entry to read, and the identity of the group. An entry below an
offset that was given out is committed, so every later reading of the same batch has the same
entries. But members may forget how far the log is committed: after the leader died, the others know
a lower index until one of them leads. A batch waits for them then, and for a member that may have
entries that all others have removed.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias

from pyspark_dledger import group
from pyspark_dledger.copies import RefusedError
from pyspark_dledger.group import Group, NoMemberError
from pyspark_dledger.log_view import (
    ASK_SECONDS,
    LogTask,
    log_tasks,
    open_copy,
    unknown_front,
    warn_of_removed,
)
from pyspark_dledger.options import LOG, SKIP, OptionError, Options
from pyspark_dledger.ranges import IndexRange
from pyspark_dledger.splits import last_within

Offset: TypeAlias = dict[str, Any]
"""`index`, the next entry to read, and `group`, an identity or an empty text."""

COMMIT_SECONDS: Final = 60.0
"""How long a batch waits until a member answers and knows again that its entries are committed, and
until all members report whether they still have its front.
"""


class LogStream:
    """The offsets and tasks of one streaming query; lives in the driver."""

    def __init__(
        self,
        options: Options,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the options of the query. Raises OptionError for one that needs a batch."""
        if options.view != LOG:
            raise OptionError(f"view is {options.view!r}; readStream reads only view={LOG}")
        if len(options.ranges) > 1:
            raise OptionError("ranges are for batches; use startingIndex and endingIndex")
        self._options = options
        self._clock, self._sleep = clock, sleep
        self._idle_since: float | None = None
        self.newest: Offset | None = None
        """The end of the log when the members were asked last."""
        self._target: int | None = None
        self._silent: frozenset[str] = frozenset()

    def first(self) -> Offset:
        """Return where a query without a checkpoint begins. Raises RefusedError."""
        first = self._options.first_wanted
        found = self._ask_patiently()
        if first is None:
            found = self._ask_about(0, found)
        return {
            "index": found.first_index if first is None else first,
            "group": found.identity,
        }

    def stop_here(self) -> None:
        """Let the query end with the last entry that is committed now. Raises RefusedError."""
        self._target = self._ask_patiently().committed_index + 1

    def latest(self, start: Offset, *, is_bounded: bool) -> Offset:
        """Return where a batch that begins at `start` ends; it is empty if there is nothing new.

        A bounded batch has at most the entries and bytes of the options, or one entry. Raises
        RefusedError, also if wanted entries from `start` on were removed and may not be skipped.
        """
        if self._idle_since is not None:
            # Spark would ask 100 times a second.
            self._sleep(max(0.0, self._idle_since + ASK_SECONDS - self._clock()))
            known = group.highest_commit(self._options.members)
            if known is not None and known < start["index"]:
                self._idle_since = self._clock()
                return start
        first = start["index"]
        found = self._ask_patiently()
        if self._end(found) > first:  # a front that is not wanted need not be known
            found = self._ask_about(first, found)
        self._check_group(start, found)
        self.newest = {"index": found.committed_index + 1, "group": found.identity}
        end = self._end(found)
        self._idle_since = self._clock() if end <= first else None
        if end <= first:
            return start
        self._check_front(first, found)
        if is_bounded and found.first_index < end:
            end = self._bounded(found, max(first, found.first_index), end)
        return {"index": end, "group": start["group"] or found.identity}

    def tasks(self, start: Offset, end: Offset) -> list[LogTask]:
        """Plan the reading of all entries from `start` to before `end`. Raises RefusedError."""
        first, last = start["index"], end["index"] - 1
        if last < first:
            return []
        found = self._ask_until(
            lambda asked: _unknown_commit(asked, last) or unknown_front(asked, first)
        )
        self._check_group(start, found)
        self._check_front(first, found)
        warn_of_removed(found, first, last)
        tasks = log_tasks(
            found, [IndexRange(first=first, last=last)], self._options.task_bytes,
            self._options.level, self._options.bearer,
        )  # fmt: skip
        return [replace(task, first_wanted=first) for task in tasks]

    def _ask(self) -> Group:
        found = group.ask(self._options.members, warned_of=self._silent)
        self._silent = frozenset(found.silent)
        return found

    def _ask_patiently(self) -> Group:
        """Ask, and wait while no member answers: all of them may restart, or the only one."""
        deadline = self._clock() + COMMIT_SECONDS
        while True:
            try:
                return self._ask()
            except NoMemberError:
                if self._clock() >= deadline:
                    raise
                self._sleep(ASK_SECONDS)

    def _end(self, found: Group) -> int:
        """Return the index before which the query ends, by what is committed and wanted."""
        end = min(found.committed_index, self._options.ranges[-1].last) + 1
        return end if self._target is None else min(end, self._target)

    def _ask_about(self, first: int, found: Group) -> Group:
        """Wait for members that may have entries from `first` on that the others lack."""
        if unknown_front(found, first):
            return self._ask_until(lambda asked: unknown_front(asked, first))
        return found

    def _ask_until(self, unknown: Callable[[Group], str]) -> Group:
        """Ask until the members report enough; `unknown` returns what is missing, or ""."""
        deadline = self._clock() + COMMIT_SECONDS
        while True:
            try:
                found = self._ask()
                reason = unknown(found)
                if not reason:
                    return found
            except RefusedError as refused:
                reason = str(refused)
            if self._clock() >= deadline:
                raise RefusedError(reason)
            self._sleep(ASK_SECONDS)

    def _check_group(self, start: Offset, found: Group) -> None:
        known = start["group"]
        if known and found.identity and known != found.identity:
            raise RefusedError(
                f"the checkpoint of the query is of the group {known}, and these members are of "
                f"{found.identity}; use another checkpoint for another group"
            )

    def _check_front(self, first: int, found: Group) -> None:
        is_removed = found.committed_index >= 0 and first < found.first_index
        if is_removed and self._options.on_removed != SKIP:
            raise RefusedError(
                f"the query has read all entries before {first}, and retention has "
                f"removed all before {found.first_index} meanwhile; start it with "
                f"onRemoved={SKIP} to leave them out, or with a new checkpoint"
            )

    def _bounded(self, found: Group, first: int, end: int) -> int:
        entries_max = self._options.batch_entries
        last = end - 1 if entries_max is None else min(end - 1, first + entries_max - 1)
        # The sizes are those of one copy. The size of what it lacks is not known, so the batch ends
        # where the copy does, and the next batch continues with another copy.
        held = [each for each in found.copies if each.first_index <= first <= each.committed_index]
        copy = max(held or found.copies, key=lambda each: each.committed_index)
        if held:
            last = min(last, copy.committed_index)
        with open_copy(copy, self._options.bearer) as files:
            range_ = IndexRange(first=first, last=last)
            return last_within(copy, files, range_, self._options.batch_bytes) + 1


def _unknown_commit(found: Group, last: int) -> str:
    """Return a text that no member knows that `last` is committed; empty if one does."""
    if found.committed_index >= last:
        return ""
    return (
        f"the log of the group was committed up to entry {last} at least, and now no member knows "
        f"more than {found.committed_index}; wait until the group has a leader, and start the "
        "query again"
    )
