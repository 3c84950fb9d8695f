"""Runs `dledger append --producer` in a process that crashes before one of its steps.

A step is a change of a file or folder, a sync, or a request to the group. The process ends with
SIGKILL. Before that, it changes the folder with the records to what the crash leaves of it.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from dledger_client.cli import main
from dledger_client.cluster.connection import Connection
from dledger_client.commands import named_producer

KILL: Final = "kill"
"""Everything that was written is left."""
POWER_CUT: Final = "power cut"
"""Names are left if their folder was synced since, and the synced contents of files."""
POWER_CUT_AFTER_NAMES: Final = "power cut after names"
"""All names are left, and the synced contents of files."""
SAVE_EVERY: Final = 8
CHANGES: Final = ("mkdir", "open", "replace", "fsync")
_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__])


def append(
    folder: Path, arguments: list[str], crash_at: int | None, left: str = KILL
) -> int | None:
    """Append with the records in a folder; return the exit code, or None after a crash.

    The process crashes before the step with the number `crash_at`, from 0.
    """
    environment = {
        name: value for name, value in os.environ.items() if name.startswith("DLEDGER_CLIENT_")
    }
    process: BaseProcess = _PROCESSES.Process(
        target=_run, args=(folder, environment, arguments, crash_at, left)
    )
    process.start()
    process.join()
    return None if process.exitcode == -signal.SIGKILL else process.exitcode


def _run(
    folder: Path, environment: dict[str, str], arguments: list[str], crash_at: int | None, left: str
) -> None:
    # Some folders below this one are there, and the others are not.
    os.environ.update(environment, XDG_STATE_HOME=str(folder / "state"))
    _Machine(folder, crash_at, left).watch()
    named_producer.SAVE_EVERY = SAVE_EVERY  # type: ignore[misc]
    sys.exit(main(["append", *arguments]))


class _Machine:
    """The steps of this process, and what of its files is durable."""

    def __init__(self, folder: Path, crash_at: int | None, left: str) -> None:
        self._folder = folder
        self._crash_at = crash_at
        self._left = left
        self._steps = 0
        self._crash = threading.RLock()
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        for path in (folder, *folder.rglob("*")):
            self._note_durable(path)

    def watch(self) -> None:
        """Count the steps from here on."""
        for name in CHANGES:
            setattr(os, name, self._watched(getattr(os, name)))
        send = Connection.send

        def sent(connection: Connection, *arguments: Any) -> None:
            self._step()
            send(connection, *arguments)

        Connection.send = sent  # type: ignore[method-assign]

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(at: Any, *arguments: Any, **options: Any) -> Any:
            path = Path(os.readlink(f"/proc/self/fd/{at}") if isinstance(at, int) else at)
            if not path.is_relative_to(self._folder):
                return function(at, *arguments, **options)
            self._step()
            done = function(at, *arguments, **options)
            if isinstance(at, int):
                self._note_durable(path)
            return done

        return watched

    def _note_durable(self, path: Path) -> None:
        number = path.stat().st_ino
        if path.is_dir():
            with os.scandir(path) as found:
                self._names[number] = {one.name: one.inode() for one in found}
        else:
            self._contents[number] = path.read_bytes()

    def _step(self) -> None:
        with self._crash:  # other threads wait here until the process has ended
            if self._steps == self._crash_at:
                self._crash_at = None
                if self._left != KILL:
                    self._lose_what_is_not_durable()
                os.kill(os.getpid(), signal.SIGKILL)
            self._steps += 1

    def _lose_what_is_not_durable(self) -> None:
        left = self._folder.with_name(f"{self._folder.name}.left")
        os.mkdir(left)
        self._copy(self._folder, left)
        shutil.rmtree(self._folder)
        left.rename(self._folder)

    def _copy(self, source: Path, target: Path) -> None:
        durable = self._names.get(source.stat().st_ino, {})
        for path in source.iterdir():
            number = path.stat().st_ino
            if self._left == POWER_CUT:
                if path.name not in durable:
                    continue
                number = durable[path.name]
            if path.is_dir():
                os.mkdir(target / path.name)
                self._copy(path, target / path.name)
            else:
                (target / path.name).write_bytes(self._contents.get(number, b""))
