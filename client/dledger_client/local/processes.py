"""Finds the processes that have a file open or listen on a port, in Linux's /proc.

Elsewhere, and for processes of other users, nothing is found.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

LISTENING: Final = "0A"
"""The state in /proc/net/tcp of a socket that listens."""


def with_file(path: Path) -> list[int]:
    """Return the ids of the other processes that have a file open."""
    return _with_links({str(path.resolve())})


def listening_on(ports: Collection[int]) -> list[int]:
    """Return the ids of the other processes that listen on one of these TCP ports."""
    return _with_links({f"socket:[{inode}]" for inode in _listening_sockets(ports)})


def parent_with_same(name: str, pid: int) -> int | None:
    """Return the parent of a process if both have the same file of this name open, else None."""
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return None
    own, others = (
        {target for _, target in _open_files(str(one)) if Path(target).name == name}
        for one in (pid, parent)
    )
    return parent if own & others else None


def process_name(pid: int) -> str:
    """Return the name of a process in lock files."""
    return f"process {pid}"


def how_to_stop(pids: Sequence[int]) -> str:
    """Return the command that stops processes, as the beginning of a piece of advice."""
    pronoun = "it" if len(pids) == 1 else "them"
    return f"stop {pronoun} with `kill {' '.join(map(str, pids))}`"


def _with_links(targets: Collection[str]) -> list[int]:
    found = {pid for pid, target in _open_files() if target in targets}
    return sorted(found - {os.getpid()})


def _open_files(processes: str = "[0-9]*") -> Iterator[tuple[int, str]]:
    """Yield the id of each process with the link of each of its open files."""
    for folder in Path("/proc").glob(f"{processes}/fd"):
        try:
            for file in os.listdir(folder):
                yield int(folder.parent.name), os.readlink(folder / file)
        except OSError:  # the process or its file has gone, or belongs to another user
            continue


def _listening_sockets(ports: Collection[int]) -> Iterator[str]:
    """Yield the inodes of listening sockets."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            if words[3] == LISTENING and int(words[1].rpartition(":")[2], 16) in ports:
                yield words[9]
