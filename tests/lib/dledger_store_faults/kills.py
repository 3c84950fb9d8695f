"""Kill writing processes: at random, or right before or after the n-th system call that matters.

Writes of a killed process survive in the page cache, so a kill alone loses no flushed data. It may
break the order in which files are created, renamed, cut and removed.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dledger_store_faults.account import Account
from dledger_store_faults.children import storyteller
from dledger_store_faults.contents import LARGER_SEGMENTS, SMALL_SEGMENTS
from dledger_store_faults.tally import Tally

BOUNDARIES = (
    "fdatasync", "fsync", "ftruncate", "mkdir", "posix_fallocate", "rename", "replace", "unlink",
)  # fmt: skip
STEPS = 40
KILLS_OF_A_STORE = 25
ENTRIES_MAX = 2000


class Boundaries:
    """Counts the calls of this process that change durable state, and kills it at one of them."""

    def __init__(self, fatal_call: int, *, after: bool) -> None:
        """Kill the process before or after the call of this number; calls count from 0."""
        self.calls = 0
        self._fatal_call = fatal_call
        self._after = after

    def install(self) -> None:
        """Patch `os` for the rest of this process."""
        for name in BOUNDARIES:
            setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            number = self.calls
            self.calls += 1
            if number == self._fatal_call and not self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*arguments, **options)
            if number == self._fatal_call:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted


def kill_at_random(folder: Path, kills: int, seed: int) -> Tally:
    """Kill writers, each a random moment after some lines, and judge their stores."""
    choices, tally, began = random.Random(seed), Tally(), time.monotonic()
    account = Account(SMALL_SEGMENTS)
    for number in range(kills):
        if number % KILLS_OF_A_STORE == 0 or len(account.terms) > ENTRIES_MAX:
            shutil.rmtree(folder, ignore_errors=True)
            account = Account(choices.choice([SMALL_SEGMENTS, LARGER_SEGMENTS]))
        child = storyteller(folder, account.sizes, choices.randrange(1 << 30))
        account.process_all(child.lines(choices.randrange(1, 120)))
        time.sleep(choices.random() * 0.002)  # kill at a random moment
        account.process_all(child.kill())
        account.judge(folder, tally)
    tally.seconds = time.monotonic() - began
    return tally


def kill_at_boundaries(folder: Path, kills_max: int, seed: int) -> Tally:
    """Kill before and after each call of a run, for as many runs as needed.

    Each run is the second of its store, so that opening has something to recover.
    """
    choices, tally, began = random.Random(seed), Tally(), time.monotonic()
    life = 0
    while tally.faults < kills_max:
        life_seed = choices.randrange(1 << 30)
        before = _first_life(folder.with_name("first"), choices)
        calls = _count_calls(folder, before, life_seed)
        spots = [(call, after) for call in range(calls) for after in (False, True)]
        for call, after in spots[: kills_max - tally.faults]:
            account = _restore(folder, before)
            boundaries = Boundaries(call, after=after)
            child = storyteller(
                folder, account.sizes, life_seed, steps=STEPS, one_at_a_time=True,
                prepare=boundaries.install,
            )  # fmt: skip
            code, lines = child.wait()
            tally.count("not reached", code != -signal.SIGKILL)
            account.process_all(lines)
            account.judge(folder, tally)
        life += 1
    tally.count("lives", life)
    tally.seconds = time.monotonic() - began
    return tally


def _first_life(folder: Path, choices: random.Random) -> tuple[Path, Account]:
    """Write a store whose writer is killed; return its folder and its account."""
    shutil.rmtree(folder, ignore_errors=True)
    account = Account(SMALL_SEGMENTS)
    child = storyteller(folder, account.sizes, choices.randrange(1 << 30))
    account.process_all(child.lines(choices.randrange(20, 60)))
    account.process_all(child.kill())
    return folder, account


def _count_calls(folder: Path, before: tuple[Path, Account], seed: int) -> int:
    account = _restore(folder, before)
    counter = Boundaries(-1, after=False)

    child = storyteller(
        folder, account.sizes, seed, steps=STEPS, one_at_a_time=True, prepare=counter.install,
        at_end=lambda tell: tell(str(counter.calls)),
    )  # fmt: skip
    code, lines = child.wait()
    assert code == 0
    return int(lines[-1])


def _restore(folder: Path, before: tuple[Path, Account]) -> Account:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(before[0], folder)
    return before[1].copy()
