"""One schedule: a member's threads in one order, a crash at one point, and the judgement.

A seed determines all of it: the work, the order of the threads, the crash and the damage. Judged
are the errors of the threads, what a crash leaves, what an orderly stop leaves, and whether the
same files are refused after a byte has changed.
"""

import contextlib
import gc
import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

from dledger_schedules.disk import Disk
from dledger_schedules.member import Member
from dledger_schedules.places import Meetings, Place
from dledger_schedules.points import Points
from dledger_schedules.promises import Promises, judge, judge_damaged
from dledger_schedules.scheduler import Scheduler, Task
from dledger_schedules.strategies import PLACES_MAX, POINTS, Holds, Strategy, Walk, strategy_of
from dledger_store_faults import crash
from dledger_store_faults.contents import SMALL_SEGMENTS
from dledger_store_faults.disk_model import DiskState

IMAGES_MAX: Final = 8
"""Maximum number of states of the disk from which that after a crash is chosen."""
AT_LINES, AT_PLACES = 0, 1
"""Two of the three ways in which threads are stopped; each third of the schedules has one."""
LOOKS: Final = 24
"""Schedules that show which threads come to which places."""
OPEN_FILES: Final = (2, 128)
"""Few open files let a segment be closed while a thread uses it."""


@dataclass(slots=True)
class Outcome:
    """What one schedule showed."""

    seed: int
    points: int = 0
    crashed: bool = False
    damaged: bool = False
    wrong: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)


class Schedules:
    """Runs schedules in one folder, with the IO calls of this process wrapped."""

    def __init__(self, top: Path) -> None:
        self._store, self._image = top / "store", top / "image"
        self._points = Points(Scheduler())
        self._met: dict[str, list[Place]] = {}
        """By the name of a thread: the places that it comes to."""

    @contextlib.contextmanager
    def ready(self) -> Iterator["Schedules"]:
        """Wrap the IO calls while schedules run."""
        with self._points.wrapped():
            yield self

    def run(self, seed: int, *, keeps_trace: bool = False) -> Outcome:
        """Run and judge one schedule."""
        if not self._met:
            self._met = self._look_where_threads_meet()
        make = partial(self._strategy, choices=random.Random(seed))
        return self._run(seed, make, keeps_trace=keeps_trace)

    def _run(
        self,
        seed: int,
        make: Callable[[int], tuple[Strategy[Task], Callable[..., Any] | None]],
        *,
        keeps_trace: bool = False,
    ) -> Outcome:
        choices = random.Random(seed)
        shutil.rmtree(self._store, ignore_errors=True)
        scheduler, promises = self._points.scheduler, Promises()
        scheduler.keeps_trace = keeps_trace
        sizes = {**SMALL_SEGMENTS, "open_files_max": choices.choice(OPEN_FILES)}
        outcome = Outcome(seed)
        with self._points.locks():
            member = Member(self._store, sizes, scheduler, choices, promises)
        member.prepare()
        disk = self._points.disk = Disk(self._store)
        lacks_room, room_choices = choices.randrange(6) == 0, random.Random(seed)
        self._points.has_room = lambda: (
            not (lacks_room and member.may_lack_room and room_choices.randrange(4) == 0)
        )
        crash_point = choices.choice([0, choices.randrange(1, POINTS)])
        crashed: list[tuple[DiskState, Promises]] = []

        def on_point(number: int) -> None:
            if number == crash_point:
                crashed.append((disk.state(), promises.copy()))
                if keeps_trace:
                    scheduler.note(f"-- the crash: {promises.log}")

        if not crash_point:
            member.before_close = lambda: on_point(0)

        strategy, traced = make(choices.randrange(3))
        # What the collector frees may run lines of the store in the middle of our own work.
        gc.disable()
        try:
            scheduler.run(
                member.live,
                strategy,
                on_point,
                traced,
            )
        except Exception as error:
            outcome.wrong.append(f"a thread failed: {error!r}")
        finally:
            gc.enable()
        outcome.points, outcome.trace = scheduler.points, scheduler.trace
        self._judge(outcome, crashed, promises, choices)
        return outcome

    def _strategy(
        self, how: int, choices: random.Random
    ) -> tuple[Strategy[Task], Callable[..., Any] | None]:
        """Return which threads continue, and the trace function that stops them at lines."""
        if how == AT_PLACES:
            return Holds(choices), self._hold_at(self._meetings(choices))
        strategy: Strategy[Task] = strategy_of(choices, at_lines=how == AT_LINES)
        return strategy, self._points.trace if how == AT_LINES else None

    def _meetings(self, choices: random.Random) -> Meetings:
        """Choose a few threads, and a place for each."""
        found: dict[Place, set[str]] = {}
        for _ in range(choices.randrange(1, PLACES_MAX + 1)):
            name = choices.choice(sorted(self._met))
            found.setdefault(choices.choice(self._met[name]), set()).add(name)
        return found

    def _hold_at(self, meetings: Meetings) -> Callable[..., Any]:
        scheduler = self._points.scheduler

        def met(frame: FrameType) -> None:
            if scheduler.thread_name() in meetings[frame.f_code, frame.f_lineno]:
                scheduler.place(frame)

        return self._points.trace_at(meetings, met)  # type: ignore[no-any-return]

    def _look_where_threads_meet(self) -> dict[str, list[Place]]:
        """Return the places of each thread, as a few schedules show them, in a fixed order."""
        scheduler, places = self._points.scheduler, self._points.places()
        seen: dict[str, set[Place]] = {}

        def met(frame: FrameType) -> None:
            if (name := scheduler.thread_name()) is not None:
                seen.setdefault(name, set()).add((frame.f_code, frame.f_lineno))

        for seed in range(-LOOKS, 0):
            traced = self._points.trace_at(places, met)
            self._run(seed, lambda _, s=seed, t=traced: (Walk(random.Random(s)), t))  # type: ignore[misc]
        return {name: [each for each in places if each in found] for name, found in seen.items()}

    def _judge(
        self,
        outcome: Outcome,
        crashed: list[tuple[DiskState, Promises]],
        promises: Promises,
        choices: random.Random,
    ) -> None:
        sizes = {**SMALL_SEGMENTS, "margin_bytes": choices.choice([600, 4 << 20])}
        for disk, promised in crashed:
            outcome.crashed = True
            image = list(itertools.islice(crash.images(disk, choices), IMAGES_MAX))
            crash.write_image(self._image, choices.choice(image))
            wrong, _ = judge(self._image, sizes, promised)
            outcome.wrong += [f"after a crash: {each}" for each in wrong]
        if outcome.wrong:
            return  # the store may still be open
        wrong, last = judge(self._store, sizes, promises)
        outcome.wrong += wrong
        if last is not None and not wrong and choices.randrange(4) == 0:
            outcome.damaged = True
            outcome.wrong += judge_damaged(self._store, sizes, last, choices.randrange(1 << 20))
