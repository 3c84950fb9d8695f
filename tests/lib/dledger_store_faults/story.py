"""A member's writes: appends with group commit, truncations, votes, checkpoints, spare segments.

Store and group commit are the node's own; the order of operations is that of `server.py`.
"""

import asyncio
import contextlib
import gc
import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dledger_formats.log import disk
from dledger_formats.log.memberships import MEMBERSHIP_CHANNEL
from dledger_node.raft.ready import HardState
from dledger_node.store.derived import membership_bodies
from dledger_node.store.log.flush_target import FlushTarget
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.hard_state import load_hard_state, save_hard_state
from dledger_node.volume.group_commit import GroupCommit
from dledger_store_faults.account import NO_CANDIDATE
from dledger_store_faults.contents import body_of, membership_at

Tell = Callable[[str], None]


class Story:
    """One run of a member's store, from opening it on; `live` ends by itself or by a fault."""

    def __init__(
        self,
        folder: Path,
        sizes: dict[str, int],
        choices: random.Random,
        tell: Tell,
        *,
        one_at_a_time: bool = False,
        lazy: bool = False,
        between_steps: Callable[[], None] = lambda: None,
    ) -> None:
        """`one_at_a_time` waits for each flush, so that a seed always gives the same calls.

        `lazy` does so too, delays flushes, and writes less.
        """
        self._folder = folder
        self._choices = choices
        self._tell = tell
        self._one_at_a_time = one_at_a_time or lazy
        self._flush_probability = 0.4 if lazy else 1.0
        self._batch_sizes = [1, 1, 2, 4] if lazy else [1, 1, 2, 3, 8, 20]
        self._between_steps = between_steps
        self._store = LogStore.open(folder, **sizes)
        self._term = max(load_hard_state(folder).term, self._store.end_term, 0)
        self._flusher, self._helper = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._failed: BaseException | None = None

    @property
    def end_index(self) -> int:
        """Index of the store's last entry."""
        return self._store.end_index

    @property
    def committed_index(self) -> int:
        """Committed index of the store's checkpoint."""
        return self._store.committed_index

    def live(self, steps: int, *, killed: bool = False) -> None:
        """Write for `steps` steps, then close the store, or release it as a killed process does."""
        try:
            asyncio.run(self._live(steps))
            if not killed:
                self._store.close()
        finally:
            self._flusher.shutdown()
            self._helper.shutdown()
            if killed:
                del self._store, self._commit
                gc.collect()  # closes the descriptors of the store's segments
                _close_all_under(self._folder)

    async def _live(self, steps: int) -> None:
        self._commit = GroupCommit(
            self._store, self._flusher, on_durable=self._on_durable, on_failed=self._on_failed
        )
        self._vote()
        for _ in range(steps):
            await self._step()
            if self._failed is not None:
                raise self._failed
            if self._one_at_a_time:
                await self._commit.drain()
            self._between_steps()
        await self._commit.drain()

    async def _step(self) -> None:
        match self._choices.randrange(24):
            case 0:
                self._truncate()
            case 1 | 2:
                await self._in_a_thread(self._save_checkpoint)
            case 3 | 4:
                await self._in_a_thread(self._store.preallocate)
            case 5:
                self._vote()
            case 6 | 7 | 8:
                await self._commit.drain()
            case 9:
                self._change()
            case _:
                self._append(self._choices.choice(self._batch_sizes))
        await asyncio.sleep(0)

    def _append(self, count: int) -> None:
        first = self._store.end_index + 1
        bodies = [body_of(index, self._term) for index in range(first, first + count)]
        self._tell(f"write {first} {self._term} {count}")
        self._store.append_bodies(bodies, self._term)
        if self._choices.random() < self._flush_probability:
            self._commit.start()

    def _change(self) -> None:
        """Append a membership entry, as a leader does."""
        index = self._store.end_index + 1
        self._tell(f"change {index} {self._term}")
        body = membership_bodies.body_of(membership_at(index, self._term))
        self._store.append_bodies([body], self._term, [MEMBERSHIP_CHANNEL], disk.NOOP)
        if self._choices.random() < self._flush_probability:
            self._commit.start()

    def _truncate(self) -> None:
        """Truncate after the committed index, as a follower with another history does."""
        lowest = max(self._store.committed_index, self._store.begin_index) + 1
        first = max(lowest, self._store.end_index + 1 - self._choices.randrange(1, 15))
        if first > self._store.end_index:
            return
        self._tell(f"cut? {first}")
        self._store.truncate(first)
        self._tell(f"cut {first}")
        self._vote()

    def _vote(self) -> None:
        """Save a new term and vote, before anything is written in that term."""
        self._term += 1
        vote_for = self._choices.choice([None, "n0", "n1", "n2"])
        self._tell(f"vote? {self._term} {vote_for or NO_CANDIDATE}")
        save_hard_state(self._folder, HardState(term=self._term, vote_for=vote_for))
        self._tell(f"vote {self._term} {vote_for or NO_CANDIDATE}")

    def _save_checkpoint(self) -> None:
        committed = self._store.durable_index - self._choices.randrange(12)
        self._store.save_checkpoint(committed)
        self._tell(f"committed {min(committed, self._store.committed_index)}")

    async def _in_a_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._helper, work)

    def _on_durable(self, target: FlushTarget) -> None:
        self._tell(f"durable {target.end_index}")

    def _on_failed(self, error: BaseException) -> None:
        self._failed = error


def _close_all_under(folder: Path) -> None:
    """Close every open file of a folder, as the kernel does when a process ends."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if Path(os.readlink(f"/proc/self/fd/{fd}")).is_relative_to(folder):
                os.close(fd)
