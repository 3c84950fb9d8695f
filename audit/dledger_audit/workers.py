"""How many workers of Spark an audit starts: what its pod may use, not what the machine has."""

import math
import os
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
CPU_REQUEST: Final = "DLEDGER_AUDIT_CPU_REQUEST"
"""The environment variable with the pod's CPU request, which counts if there is no CPU limit."""

MIB: Final = 1 << 20
DRIVER_BYTES: Final = 1200 * MIB
"""The driver: Spark's heap (an audit fills a third of its 1 GiB), what else the JVM needs, and
Python with the findings.
"""
WORKER_BYTES: Final = 360 * MIB
"""A worker: Python with numpy and pyarrow, and the buffers of one segment."""


def count(cpus: float, memory_bytes: int | None) -> int:
    """Return how many workers fit these CPUs and this memory, but at least one. Pure.

    `memory_bytes` is None without a limit. With too little memory, an audit is slow, or is killed,
    which its Job shows.
    """
    fit = math.ceil(cpus)
    if memory_bytes is not None:
        fit = min(fit, (memory_bytes - DRIVER_BYTES) // WORKER_BYTES)
    return max(1, fit)


def master(cgroups: Path = CGROUPS) -> str:
    """Return Spark's master for this process, such as local[2]."""
    usable = len(os.sched_getaffinity(0))
    limit = cpu_limit(cgroups)
    if limit is None and os.environ.get(CPU_REQUEST, "0").isdecimal():
        limit = float(os.environ.get(CPU_REQUEST, "0")) or None
    cpus = usable if limit is None else min(usable, limit)
    return f"local[{count(cpus, memory_limit_bytes(cgroups))}]"


def cpu_limit(cgroups: Path) -> float | None:
    """Return the limit of the container's control group, in CPUs; None without one."""
    unified = _words(cgroups / "cpu.max")
    if len(unified) == 2 and unified[0] != "max":
        return int(unified[0]) / int(unified[1])
    quota = _words(cgroups / "cpu" / "cpu.cfs_quota_us")
    period = _words(cgroups / "cpu" / "cpu.cfs_period_us")
    if quota and period and int(quota[0]) > 0:
        return int(quota[0]) / int(period[0])
    return None


def memory_limit_bytes(cgroups: Path) -> int | None:
    """Return the limit of the container's control group; None without one.

    Version 1 writes a number near 2**63 for no limit, which is larger than any machine.
    """
    for file in (cgroups / "memory.max", cgroups / "memory" / "memory.limit_in_bytes"):
        words = _words(file)
        if words and words[0].isdecimal() and int(words[0]) < 1 << 60:
            return int(words[0])
    return None


def _words(file: Path) -> list[str]:
    """Return the words of a small file; none if it cannot be read."""
    try:
        return file.read_text().split()
    except OSError:
        return []
