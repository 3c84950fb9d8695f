"""Memory of all members and the turns of their event loops, sampled from outside."""

import asyncio
import contextlib
import http.client
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.groups.node_group import NodeGroup

SAMPLE_S: Final = 2.0
_TURN: Final = "dledger_node_loop_turn_processor"
_LAG: Final = "dledger_node_loop_lag_seconds"
TURN_S_MAX: Final = 0.02
"""The bound of a turn for requests with an entry of the largest size."""
LAG_S_MAX: Final = 0.1


@dataclass(slots=True)
class Life:
    """One process of a member, from its start to its end."""

    member: str
    began_s: float
    memory: list[tuple[float, int]] = field(default_factory=list)
    """Times in s since the start of the soak, and own memory in bytes."""
    turns: int = 0
    long_turns: int = 0
    """Turns that took more processor time than `TURN_S_MAX`."""
    longest_turn_s: float = 0.0
    timers: int = 0
    late_timers: int = 0
    """Timers that fired more than `LAG_S_MAX` late."""
    elections: dict[str, int] = field(default_factory=dict)

    @property
    def peak_bytes(self) -> int:
        """The largest own memory, in bytes."""
        return max((size for _, size in self.memory), default=0)

    def slope_bytes_per_s(self, from_s: float) -> float:
        """Return the slope of its memory from a time on, by least squares; 0 without samples."""
        points = [(at, size) for at, size in self.memory if at >= from_s]
        if len(points) < 3:
            return 0.0
        mean_s = sum(at for at, _ in points) / len(points)
        mean_bytes = sum(size for _, size in points) / len(points)
        spread = sum((at - mean_s) ** 2 for at, _ in points)
        return sum((at - mean_s) * (size - mean_bytes) for at, size in points) / spread


class Watch:
    """Samples all running members until it is cancelled."""

    def __init__(self, group: NodeGroup) -> None:
        self.lives: dict[int, Life] = {}
        """By process id."""
        self.began_s = time.monotonic()
        self._group = group

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            for member in self._group.running():
                await asyncio.to_thread(self.sample, member)
            await asyncio.sleep(SAMPLE_S)

    def sample(self, member: str) -> None:
        """Record the memory and the metrics of a member, if it answers."""
        with contextlib.suppress(KeyError, OSError, http.client.HTTPException, StopIteration):
            process_id = self._group.process_id(member)
            size = own_memory_bytes(process_id)
            page = self._group.get(member, "/metrics")[1].decode()
            if self._group.process_id(member) == process_id:
                self._note(member, process_id, size, page)

    def _note(self, member: str, process_id: int, size: int, page: str) -> None:
        now_s = time.monotonic() - self.began_s
        life = self.lives.setdefault(process_id, Life(member, now_s))
        life.memory.append((now_s, size))
        found = dict(_samples(page))
        life.turns = int(found[f"{_TURN}_seconds_count"])
        life.long_turns = life.turns - int(found[f'{_TURN}_seconds_bucket{{le="{TURN_S_MAX}"}}'])
        life.longest_turn_s = found[f"{_TURN}_longest_seconds"]
        life.timers = int(found[f"{_LAG}_count"])
        life.late_timers = life.timers - int(found[f'{_LAG}_bucket{{le="{LAG_S_MAX}"}}'])
        life.elections = {
            name.partition('cause="')[2].rstrip('"}'): int(value)
            for name, value in found.items()
            if name.startswith("dledger_node_elections_total") and value
        }


def _samples(page: str) -> list[tuple[str, float]]:
    lines = [line for line in page.splitlines() if line and not line.startswith("#")]
    return [(name, float(value)) for name, value in (line.rsplit(" ", 1) for line in lines)]


def own_memory_bytes(process_id: int) -> int:
    """Return the memory of a process in bytes, without its mapped files."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon:")).split()[1]) * 1024
