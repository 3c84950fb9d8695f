"""Start programs that outlive this one, and stop exactly those.

Process ids are reused, so a record holds the id, the kernel's start time of the process and the
boot id. Signals are only sent through a pidfd, and only if the process matches its record after the
pidfd was opened; the id cannot be reused in between.

Every started program also has an environment variable with its owner's folder. It identifies
processes without a record, whose starter was killed before it could write one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import LocalClusterError, with_log
from .layout import DIRECT_ENVIRONMENT

OWNER_VARIABLE = "DLEDGER_LOCAL_CLUSTER"
STOP_SECONDS = 10.0
KILL_SECONDS = 10.0

# The shell exits at once, so the program becomes a child of process 1, which reaps it.
_DETACH = 'setsid "$@" </dev/null >>"$0" 2>&1 & echo $!'


@dataclass(frozen=True)
class Identity:
    """Identifies a process, distinct from any later one with the same id."""

    pid: int
    start_ticks: int
    boot_id: str


def parse_stat(stat: str) -> tuple[str, int]:
    """Return the state letter and the start time from the text of /proc/PID/stat."""
    # The second field, the program's name in parentheses, may contain spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def identify(pid: int) -> Identity | None:
    """Return the identity of the process that has this id; None if there is none, or a zombie."""
    try:
        state, start_ticks = parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    if state in "ZX":
        return None
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Identity(pid, start_ticks, boot_id)


def is_running(identity: Identity) -> bool:
    return identify(identity.pid) == identity


def read_record(record: Path) -> Identity | None:
    """Return the recorded process if it is running; None also for an unreadable record."""
    try:
        identity = Identity(**json.loads(record.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return identity if is_running(identity) else None


def start(
    command: Sequence[str | os.PathLike[str]],
    *,
    record: Path,
    log: Path,
    owner: Path,
) -> Identity:
    """Start a program in its own session and record it; raises LocalClusterError if it exits."""
    record.parent.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    shell = subprocess.run(
        ["/bin/sh", "-c", _DETACH, os.fspath(log), *(os.fspath(word) for word in command)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        env={**os.environ, **DIRECT_ENVIRONMENT, OWNER_VARIABLE: str(owner)},
    )
    identity = identify(int(shell.stdout))
    if identity is None:
        raise LocalClusterError(with_log(f"{command[0]} exited immediately", log))
    temporary = record.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(identity)))
    temporary.rename(record)
    return identity


def _open(identity: Identity) -> int | None:
    """Open a pidfd for exactly this process; return None if it has ended."""
    try:
        pidfd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    if is_running(identity):
        return pidfd
    os.close(pidfd)
    return None


def _signal(pidfds: Iterable[int], number: signal.Signals) -> None:
    for pidfd in pidfds:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)


def _wait(pidfds: list[int], seconds: float) -> list[int]:
    """Wait for processes to end; return those that are still running after `seconds`."""
    end = time.monotonic() + seconds
    left = set(pidfds)
    poll = select.poll()
    for pidfd in left:
        poll.register(pidfd, select.POLLIN)
    while left and (remaining := end - time.monotonic()) > 0:
        for pidfd, _ in poll.poll(remaining * 1000):
            poll.unregister(pidfd)
            left.discard(pidfd)
    return list(left)


def stop(identities: Iterable[Identity], *, stop_seconds: float = STOP_SECONDS) -> None:
    """Stop processes with SIGTERM, and after `stop_seconds` with SIGKILL; return when all ended.

    With zero seconds, only SIGKILL is sent.
    """
    opened = [pidfd for identity in identities if (pidfd := _open(identity)) is not None]
    try:
        left = opened
        if stop_seconds > 0:
            _signal(left, signal.SIGTERM)
            left = _wait(left, stop_seconds)
        _signal(left, signal.SIGKILL)
        if _wait(left, KILL_SECONDS):
            raise LocalClusterError(f"cannot kill {len(left)} processes")
    finally:
        for pidfd in opened:
            os.close(pidfd)


def stop_recorded(records: Iterable[Path], *, stop_seconds: float = STOP_SECONDS) -> None:
    records = list(records)
    stop(filter(None, map(read_record, records)), stop_seconds=stop_seconds)
    for record in records:
        record.unlink(missing_ok=True)


def children(identity: Identity) -> list[Identity]:
    """Return the running child processes of this one."""
    try:
        listed = Path(f"/proc/{identity.pid}/task/{identity.pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    found = [child for pid in listed if (child := identify(int(pid)))]
    # If the id now belongs to another process, these are not its children.
    return found if is_running(identity) else []


def owned_by(owner: Path) -> list[Identity]:
    """Return every process on the machine whose environment contains this owner."""
    mark = f"{OWNER_VARIABLE}={owner}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        identity = identify(int(entry.name))
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if identity and mark in environment and is_running(identity):
            found.append(identity)
    return found
