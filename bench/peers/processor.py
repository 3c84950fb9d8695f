"""Processor time: of the members, of the client, and of everything else on the machine."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.append import processor_s


@dataclass(frozen=True, slots=True)
class Used:
    """Processor seconds used in a stretch of time."""

    elapsed_s: float
    members_s: float
    client_s: float
    others_s: float
    """All other processes and the kernel's threads, which include those that write to the disk."""

    @property
    def others_cores(self) -> float:
        """How many processors the others occupied on average."""
        return self.others_s / self.elapsed_s


class ProcessorClock:
    """Counts processor time from its creation on."""

    def __init__(self, members: Sequence[int], client: int) -> None:
        """`members` and `client` are process ids."""
        self._members, self._client = members, client
        self._began = self._now()

    def used(self) -> Used:
        """Return what was used since the creation."""
        now, began = self._now(), self._began
        members_s = now.members_s - began.members_s
        client_s = now.client_s - began.client_s
        busy_s = now.busy_s - began.busy_s
        own_s = now.own_s - began.own_s
        return Used(
            elapsed_s=now.at_s - began.at_s,
            members_s=members_s,
            client_s=client_s,
            others_s=max(0.0, busy_s - members_s - client_s - own_s),
        )

    def _now(self) -> "_Times":
        return _Times(
            at_s=time.monotonic(),
            members_s=sum(processor_s(member) for member in self._members),
            client_s=processor_s(self._client),
            busy_s=_machine_busy_s(),
            own_s=time.process_time(),
        )


@dataclass(frozen=True, slots=True)
class _Times:
    at_s: float
    members_s: float
    client_s: float
    busy_s: float
    own_s: float


def _machine_busy_s() -> float:
    first = Path("/proc/stat").read_text().partition("\n")[0]
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, first.split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
