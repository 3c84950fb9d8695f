"""The points of a store at which another thread may run: its locks, its IO calls, its lines.

A store's locks are replaced while it is opened. Its IO calls are functions of `os`, which are
wrapped while schedules run; calls of threads that are not scheduled go through unchanged. Lines are
those of the store's modules: Python may switch threads between any two of them.
"""

import contextlib
import errno
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any
from unittest import mock

from dledger_schedules.disk import Disk
from dledger_schedules.places import Place, shared_places
from dledger_schedules.scheduler import ScheduledLock, Scheduler

_SYNCS = ("fdatasync", "fsync")
_REMOVALS = ("remove", "unlink")
_RENAMES = ("rename", "replace")
_OTHERS = ("lseek", "open", "posix_fadvise", "posix_fallocate", "pread", "pwrite", "ftruncate")
_STORE = "dledger_node.store."
_NOT_TRACED = (".recovery", ".entry_walk", ".block", ".entry_runs", ".retention")
"""Modules that run before the threads do, or share nothing with other threads."""


class Points:
    """Wraps the IO calls of one scheduler's threads."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.disk: Disk | None = None
        """Notified of every call that makes something durable, or changes a name."""
        self.has_room: Callable[[], bool] = lambda: True
        """Whether the next allocation succeeds."""
        self._is_traced: dict[str, bool] = {}

    @contextlib.contextmanager
    def wrapped(self) -> Iterator[None]:
        """Wrap the calls of `os`."""
        with contextlib.ExitStack() as undo:
            for name in (*_SYNCS, *_REMOVALS, *_RENAMES, *_OTHERS):
                wrapper = self._wrapper(name, getattr(os, name))
                undo.enter_context(mock.patch.object(os, name, wrapper))
            yield

    @contextlib.contextmanager
    def locks(self) -> Iterator[None]:
        """Let a store that is opened here use locks of the scheduler."""
        lock = functools.partial(ScheduledLock, self.scheduler)
        with mock.patch.object(threading, "Lock", lock):
            yield

    def trace(self, frame: FrameType, _event: str, _argument: object) -> Any:
        """Trace the lines of the store's modules, except in `__del__`, which may run anywhere."""
        code = frame.f_code
        traced = self._is_traced.get(code.co_filename)
        if traced is None:
            # Not by the path: a module with a planted bug has another one.
            module = frame.f_globals.get("__name__", "")
            is_generated = code.co_filename.startswith("<")  # such as a dataclass's methods
            traced = module.startswith(_STORE) and not module.endswith(_NOT_TRACED)
            traced = traced and not is_generated
            self._is_traced[code.co_filename] = traced
        return self._trace_line if traced and code.co_name != "__del__" else None

    def trace_at(self, places: Iterable[Place], met: Callable[[FrameType], None]) -> Any:
        """Return a function that traces these places only, and calls `met` at each."""
        lines: dict[CodeType, set[int]] = {}
        for code, number in places:
            lines.setdefault(code, set()).add(number)

        def trace(frame: FrameType, _event: str, _argument: object) -> Any:
            wanted = lines.get(frame.f_code)
            if wanted is None:
                return None

            def trace_line(frame: FrameType, event: str, _argument: object) -> Any:
                if event == "line" and frame.f_lineno in wanted:
                    met(frame)
                return trace_line

            return trace_line

        return trace

    def places(self) -> list[Place]:
        """Return all places at which threads may meet, always in the same order."""
        return shared_places(_STORE, lambda module: not module.endswith(_NOT_TRACED))

    def _trace_line(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            self.scheduler.line(frame)
        return self._trace_line

    def _wrapper(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        kinds = {_SYNCS: self._syncing, _RENAMES: self._renaming, _REMOVALS: self._removing}
        kind = next((kinds[names] for names in kinds if name in names), self._calling)

        def wrapper(*arguments: Any, **options: Any) -> Any:
            if not self.scheduler.schedules_this_thread:
                return call(*arguments, **options)
            told = f"{name} {arguments[0]}" if self.scheduler.keeps_trace else name
            self.scheduler.point(told)
            if name == "posix_fallocate" and not self.has_room():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return kind(name, call, arguments, options)

        return wrapper

    def _calling(self, _: str, call: Callable[..., Any], arguments: Any, options: Any) -> Any:
        return call(*arguments, **options)

    def _syncing(self, name: str, call: Callable[..., Any], arguments: Any, _: Any) -> Any:
        """Make a sync that takes long: other threads continue until it returns."""
        assert self.disk is not None
        ends = self.disk.begin_sync(arguments[0])
        self.scheduler.point(f"{name} is under way")
        call(*arguments)
        ends()

    def _removing(self, _: str, call: Callable[..., Any], arguments: Any, options: Any) -> Any:
        assert self.disk is not None
        done = self.disk.before_removal(os.fspath(arguments[0]))
        call(*arguments, **options)
        done()

    def _renaming(self, _: str, call: Callable[..., Any], arguments: Any, options: Any) -> Any:
        assert self.disk is not None
        done = self.disk.before_rename(os.fspath(arguments[0]), os.fspath(arguments[1]))
        call(*arguments, **options)
        done()
