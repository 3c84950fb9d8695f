"""Decides which volume claims grow, and to which size. Pure.

A claim asks for the size that it should have, so nothing else is stored: after an interruption the
operator looks at the claims again. A claim is never made smaller. Claims grow at once, without a
restart of their pods: a file system grows while it is mounted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dledger_formats.http.status import NodeStatus
from dledger_formats.quantities import quantity_bytes
from dledger_operator import names
from dledger_operator.api_objects import PodView, Problem, VolumeClaimView
from dledger_operator.spec.storage import Storage

STALLED: Final = "Stalled"
GROWING: Final = "VolumeGrowing"
_SIZE_TOLERANCE: Final = 0.9
"""A file system shows less than the size of its volume; a much smaller one has not grown yet."""
_JOURNAL_BYTES: Final = 64 << 20
"""The journal of XFS has at least this size, also on a small volume, and is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeUse:
    """How full a member says that its volume is."""

    size_bytes: int
    available_bytes: int

    @property
    def used_percent(self) -> float:
        """The part that is not available, in percent; 0 if the member does not know."""
        if self.size_bytes <= 0:
            return 0.0
        return 100.0 * (self.size_bytes - self.available_bytes) / self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A new size for one claim."""

    claim: VolumeClaimView
    size: str
    by_itself: bool
    """Whether `storage.autoGrow` asks for it; if not, `storage.size` does."""


def growths(
    storage: Storage,
    claims: Sequence[VolumeClaimView],
    use: Mapping[str, VolumeUse],
    now: datetime,
) -> list[Growth]:
    """Return the claims to be grown now. `use` is by the name of the claim.

    Kubernetes changes the size of bound claims only.
    """
    found = []
    for claim in claims:
        if claim.leaving or claim.problem or not claim.capacity or not _bytes(claim.requested):
            continue
        if _bytes(claim.requested) < storage.size_bytes:
            found.append(Growth(claim=claim, size=storage.size, by_itself=False))
        elif size := _grown_by_itself(storage, claim, use.get(claim.name), now):
            found.append(Growth(claim=claim, size=str(size), by_itself=True))
    return found


def _grown_by_itself(
    storage: Storage, claim: VolumeClaimView, use: VolumeUse | None, now: datetime
) -> int:
    """Return the size to which a claim grows since its volume fills up; 0 if it does not."""
    rule, requested = storage.auto_grow, _bytes(claim.requested)
    if rule is None or use is None or requested >= rule.max_bytes:
        return 0
    if use.used_percent < rule.at_percent or is_growing(claim):
        return 0
    least_bytes = _SIZE_TOLERANCE * min(requested, _bytes(claim.capacity)) - _JOURNAL_BYTES
    if use.size_bytes < least_bytes:
        return 0  # the member has not seen the last growth yet
    if claim.grown_at and 0 <= (now - claim.grown_at).total_seconds() < rule.cool_down_s:
        return 0
    return min(rule.max_bytes, requested + rule.step_bytes)


def volume_use(pods: Sequence[PodView], answers: Mapping[str, NodeStatus]) -> dict[str, VolumeUse]:
    """Return how full the members say that their volumes are, by the name of the claim. `answers`
    are by pod uid.
    """
    told = ((pod, answers.get(pod.uid)) for pod in pods if not pod.leaving)
    return {
        names.volume_claim(pod.name): VolumeUse(
            size_bytes=answer.volume_size_bytes, available_bytes=answer.volume_available_bytes
        )
        for pod, answer in told
        if answer is not None
    }


def is_growing(claim: VolumeClaimView) -> bool:
    """Return whether a claim asks for more than its volume has."""
    return bool(claim.capacity) and _bytes(claim.capacity) < _bytes(claim.requested)


def growth_problem(claims: Sequence[VolumeClaimView]) -> Problem | None:
    """Return what Kubernetes says about claims that do not have their size yet: that one cannot be
    grown, or how far it is.
    """
    growing = [claim for claim in claims if is_growing(claim) and not claim.leaving]
    failed = [claim for claim in growing if claim.resize_failed]
    chosen = failed or growing
    if not chosen:
        return None
    listed = "; ".join(
        f"volume claim {claim.name} has {claim.capacity} of {claim.requested}"
        + (f": {claim.resizing}" if claim.resizing else "")
        for claim in chosen
    )
    if failed:
        message = f"{listed}; look at the storage driver's resizer and at the volume"
        return Problem(reason=STALLED, message=message)
    return Problem(reason=GROWING, message=listed)


def refused(growth: Growth, error: str) -> Problem:
    """Return the problem of a growth that the API server refuses."""
    claim = growth.claim
    return Problem(
        reason=STALLED,
        message=(
            f"volume claim {claim.name} cannot grow from {claim.requested} to {growth.size}: "
            f"{error}; set allowVolumeExpansion: true in its storage class if the driver can grow "
            "volumes, or raise the quota; otherwise scale the group to members with new claims of "
            "another class"
        ),
    )


def _bytes(size: str) -> int:
    """Return a size in bytes; 0 if it is empty or has a form that the operator does not know."""
    try:
        return quantity_bytes(size)
    except ValueError:
        return 0
