"""What a member's process measures from its start, even if its store is reopened."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from prometheus_client.registry import Collector

from dledger_node.healing.mending import MendedTotals
from dledger_node.shell.loop_lag import LoopLag
from dledger_node.store.log.recovery import RecoveryProgress
from dledger_node.traffic import Traffic
from dledger_node.volume.wall_clock import WallClock, WallClockCollector


@dataclass(frozen=True, slots=True, kw_only=True)
class Meters:
    """Implements `Process` of `http.metrics`."""

    loop_lag: LoopLag = field(default_factory=LoopLag)
    program_collectors: Sequence[Collector] = ()
    """The metrics of a program that is built on this member."""
    wall_clock: WallClock = field(default_factory=WallClock)
    traffic: Traffic = field(default_factory=Traffic)
    recovery: RecoveryProgress = field(default_factory=RecoveryProgress)
    """The progress of the last opening of the store."""
    mended: MendedTotals = field(default_factory=MendedTotals)

    @property
    def collectors(self) -> Sequence[Collector]:
        """The metrics that the parts of this process have themselves."""
        return [WallClockCollector(self.wall_clock), *self.program_collectors]
