"""Starting programs that outlive this one, and stopping exactly those.

A process id alone says little: ids are reused. What is recorded is the id, the start time that
the kernel keeps for it, and the boot it belongs to; a signal is only sent through a pidfd whose
process was compared with that record after the pidfd was opened, so the id cannot change hands
in between.

Every program started here also carries an environment variable with its owner's folder. It finds
what no record knows of: a process whose starter was killed before it could write one.
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

# The shell ends at once, so the program becomes a child of process 1: nobody has to reap it.
_DETACH = 'setsid "$@" </dev/null >>"$0" 2>&1 & echo $!'


@dataclass(frozen=True)
class Identity:
    """A process, told apart from any later one with the same id."""

    pid: int
    start_ticks: int
    boot_id: str


def parse_stat(stat: str) -> tuple[str, int]:
    """Take the state letter and the start time from the text of /proc/PID/stat."""
    # The second field is the program's name in parentheses and may hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def identify(pid: int) -> Identity | None:
    """Return who this id belongs to now; None if to nobody, or to one that only waits for its end
    to be noticed (a zombie)."""
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
    """Return the recorded process if it still runs; a record that cannot be read counts as none."""
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
    """Start a program in a session of its own and record it; say why if it ends at once."""
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
        raise LocalClusterError(with_log(f"{command[0]} ended as soon as it started", log))
    temporary = record.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(identity)))
    temporary.rename(record)
    return identity


def _open(identity: Identity) -> int | None:
    """Open a pidfd for exactly this process, or nothing if it is gone."""
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
    """Return those that have not ended when the time is over."""
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
    """Ask these processes to end, all at once; insist when the time is over; return when they are
    gone. Zero seconds means not to ask."""
    opened = [pidfd for identity in identities if (pidfd := _open(identity)) is not None]
    try:
        left = opened
        if stop_seconds > 0:
            _signal(left, signal.SIGTERM)
            left = _wait(left, stop_seconds)
        _signal(left, signal.SIGKILL)
        if _wait(left, KILL_SECONDS):
            raise LocalClusterError(f"{len(left)} processes cannot be killed")
    finally:
        for pidfd in opened:
            os.close(pidfd)


def stop_recorded(records: Iterable[Path], *, stop_seconds: float = STOP_SECONDS) -> None:
    records = list(records)
    stop(filter(None, map(read_record, records)), stop_seconds=stop_seconds)
    for record in records:
        record.unlink(missing_ok=True)


def children(identity: Identity) -> list[Identity]:
    """Return the processes that this one has started itself and that still run."""
    try:
        listed = Path(f"/proc/{identity.pid}/task/{identity.pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    found = [child for pid in listed if (child := identify(int(pid)))]
    # Only if the parent is still the same one were these its children.
    return found if is_running(identity) else []


def owned_by(owner: Path) -> list[Identity]:
    """Return every process on the machine whose environment names this owner."""
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
