"""One member of a local group: a process that is restarted when it exits."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger_client.local.errors import MemberFailedError
from dledger_client.tasks import uninterrupted
from dledger_formats.settings import PREFIX, NodeSettings

FAILED_STARTS_MAX: Final = 3
RESTART_PAUSE_S: Final = 1.0
STOP_TIMEOUT_S: Final = 10.0
SLOW_STOP_S: Final = 2.0
"""How long a process may take to stop before that is reported. A handover may take some of it."""
LOG_TAIL_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """A member exited unexpectedly and was restarted."""

    member_id: str
    reason: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopsSlowly:
    """A member was told to stop, and has not exited yet."""

    member_id: str
    pid: int


class MemberProcess:
    """Runs a member's program with its settings; its output goes to a file."""

    def __init__(
        self,
        program: Path,
        settings: NodeSettings,
        folder: Path,
        lock: int,
        *,
        broker_environment: Mapping[str, str],
        on_event: Callable[[Restarted | StopsSlowly], None],
    ) -> None:
        """`broker_environment` has the additional settings of `dledger-broker`."""
        self.started = asyncio.Event()
        """Set once the first process has started."""
        self.has_answered = False
        """Whether the current process has answered a request; set by the caller that asked it."""
        self._program = program
        self._settings = settings
        self._broker_environment = broker_environment
        self._log = folder / f"{settings.self_id}.log"
        self._lock = lock
        self._on_event = on_event
        self._process: asyncio.subprocess.Process | None = None
        self._stops_slowly = False

    @property
    def pid(self) -> int:
        """The id of the current process, or of the last one."""
        assert self._process is not None
        return self._process.pid

    async def run(self) -> None:
        """Keep a process running until cancelled, then stop it.

        Raises MemberFailedError if the process cannot be started, or exited FAILED_STARTS_MAX times
        in a row before it answered a request.
        """
        member_id, reason, failed_starts = self._settings.self_id, "", 0
        try:
            while True:
                process = await self._start()
                if reason:
                    self._on_event(Restarted(member_id=member_id, reason=reason, pid=process.pid))
                reason = describe_end(await process.wait())
                failed_starts = 0 if self.has_answered else failed_starts + 1
                self.has_answered = False
                if failed_starts >= FAILED_STARTS_MAX:
                    raise MemberFailedError(
                        f"{member_id} exited {failed_starts} times right after starting, the last "
                        f"time with {reason}: {self._last_log_line()}"
                    )
                await asyncio.sleep(RESTART_PAUSE_S)
        finally:
            # A group that ends because of an error cancels this task twice, here the second time.
            await uninterrupted(self._stop())

    async def _start(self) -> asyncio.subprocess.Process:
        """Start the process in its own session, so that Ctrl-C reaches only this program."""
        environment = environment_of_member(self._settings, self._broker_environment, os.environ)
        try:
            with contextlib.suppress(FileNotFoundError):  # the log says why the last process exited
                self._log.replace(f"{self._log}.1")
            with self._log.open("wb") as log:
                starting = asyncio.ensure_future(
                    asyncio.create_subprocess_exec(
                        self._program,
                        env=environment,
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        pass_fds=[self._lock],
                        start_new_session=True,
                    )
                )
                try:
                    self._process = await asyncio.shield(starting)
                except asyncio.CancelledError:
                    self._process = await starting  # `run` must be able to stop it
                    raise
        except OSError as error:
            raise MemberFailedError(f"cannot start {self._program}: {error}") from error
        self.started.set()
        return self._process

    async def _stop(self) -> None:
        """Stop the process and wait until it has exited; kill it after STOP_TIMEOUT_S."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), SLOW_STOP_S)
            return
        self._stops_slowly = True
        self._on_event(StopsSlowly(member_id=self._settings.self_id, pid=self.pid))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT_S - SLOW_STOP_S)
            return
        self.kill_if_slow()
        await self._process.wait()

    def kill_if_slow(self) -> None:
        """Kill the process if it was reported because it takes long to stop."""
        if self._stops_slowly and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _last_log_line(self) -> str:
        with self._log.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"{self._log} is empty"


def environment_of_member(
    settings: NodeSettings, broker_environment: Mapping[str, str], inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a member's process.

    A broker makes snapshots far less often than a plain member. Its own default is right, so it
    does not get the threshold of a plain member.
    """
    environment = {name: text for name, text in inherited.items() if not name.startswith(PREFIX)}
    environment |= settings.to_environment()
    if broker_environment:
        del environment[f"{PREFIX}SNAPSHOT_THRESHOLD"]
    return {**environment, **broker_environment}


def describe_end(code: int) -> str:
    """Describe the exit of a process; negative codes are signals."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
