"""Decides what to do with a Lease: take it, renew it, or wait. Pure except for its memory.

The rule is that of Kubernetes' own leader election: the clocks of two machines are never compared.
A Lease is free when this process has seen no renewal for the Lease's duration on its own clock.
Time in which it could not read the Lease does not count: the holder may not have been able to renew
it either.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from dledger_operator.api_objects import LeaseView

DURATION_S_MAX: Final = 300.0
"""The longest duration that counts, since somebody may have written a longer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """The times of a Lease, in seconds."""

    duration_s: int
    """Others take the Lease when they have seen no renewal for this long."""
    hold_s: float
    """The holder stops acting this long after it began its last successful renewal. Shorter than
    `duration_s`, so that what the holder has begun by then ends before another process acts.
    """
    renew_s: float
    """How often the holder renews the Lease, counted like `hold_s` from start to start."""
    look_s: float
    """How often others read the Lease, and how soon after its start a failed turn is repeated."""
    request_s_max: float
    """Maximum time of one read or renewal."""


class LeaseStep(Enum):
    """What to do with a Lease now."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


class LeaseWatch:
    """What one process has seen of one Lease."""

    def __init__(self, holder: str) -> None:
        """Create a watch for the process that would hold the Lease as `holder`."""
        self._holder = holder
        self._seen_version = ""
        self._seen_s = 0.0
        """When this version was read first, later by the time that does not count."""
        self._read_s = 0.0
        self._missed = False
        """Whether a read has failed since the last one that did not."""

    def missed(self) -> None:
        """Leave the time around a failed read out: an outage would look like a dead holder."""
        self._missed = True

    def step(self, lease: LeaseView | None, now_s: float) -> LeaseStep:
        """Return what to do with a Lease that was just read; `lease` is None if there is none.

        `now_s` is a time after the answer, so that no renewal of this version began later.
        """
        if lease is None:
            return LeaseStep.CREATE
        if lease.resource_version != self._seen_version:
            self._seen_version, self._seen_s = lease.resource_version, now_s
        elif self._missed:
            self._seen_s += now_s - self._read_s
        self._read_s, self._missed = now_s, False
        if lease.holder == self._holder:
            return LeaseStep.RENEW
        if not lease.holder or now_s >= self.free_at_s(lease):
            return LeaseStep.TAKE
        return LeaseStep.WAIT

    def free_at_s(self, lease: LeaseView) -> float:
        """Return when a Lease of another holder becomes free unless it is renewed before."""
        return self._seen_s + min(lease.duration_s, DURATION_S_MAX)
