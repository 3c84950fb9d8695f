"""Processor time of a program and all processes that it starts, counted by a control group.

The times that a process gets of its children do not include children that another process has
waited for, as Spark's daemon does for its Python workers.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CPUACCT: Final = Path("/sys/fs/cgroup/cpuacct")
"""The hierarchy of cgroup v1; v2 has only one hierarchy, in the folder above."""


@dataclass(frozen=True, slots=True)
class CpuGroup:
    """A control group."""

    folder: Path

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command that runs a program in this group, as the same process."""
        join = 'echo $$ > "$0" && exec "$@"'
        return ["sh", "-c", join, str(self.folder / "cgroup.procs"), *words]

    def used_s(self) -> float:
        """Return the processor time of all processes that were in the group so far."""
        usage = self.folder / "cpuacct.usage"
        if usage.exists():
            return int(usage.read_text()) / 1e9
        lines = (self.folder / "cpu.stat").read_text().splitlines()
        return int(dict(line.split() for line in lines)["usage_usec"]) / 1e6


@contextmanager
def cpu_group() -> Iterator[CpuGroup]:
    """Make a control group, which must be empty at the end of the block; needs root."""
    root = CPUACCT if CPUACCT.is_dir() else CPUACCT.parent
    folder = Path(tempfile.mkdtemp(prefix="dledger-bench-", dir=root))
    try:
        yield CpuGroup(folder)
    except BaseException as error:
        try:
            folder.rmdir()
        except OSError as left:  # a process is left; the error before says why
            error.add_note(f"{folder} could not be removed: {left}")
        raise
    folder.rmdir()
