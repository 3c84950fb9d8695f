"""Decides which volume claims grow, and to which size. Pure.

A claim asks for the size that it should have, so nothing else is stored: after an interruption the
operator looks at the claims again. A claim is never made smaller. Claims grow at once, without a
restart of their pods: a file system grows while it is mounted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self

from dledger_formats.http.status import NodeStatus, StorageState
from dledger_operator import names, reasons
from dledger_operator.api_objects import PodView, VolumeClaimView
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group
from dledger_operator.spec.quantities import volume_bytes
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.storage import AutoGrow, Storage

GROWING: Final = "VolumeGrowing"
VOLUME_FULL: Final = "VolumeFull"
_SIZE_TOLERANCE: Final = 0.9
"""A file system shows less than the size of its volume; a much smaller one has not grown yet."""
_JOURNAL_BYTES: Final = 64 << 20
"""The journal of XFS has at least this size, also on a small volume, and is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeUse:
    """How full a volume is, as its member reports."""

    size_bytes: int
    available_bytes: int
    is_full: bool = False
    """Whether the member has no room for more entries, which may be at any usage: a volume with
    less room than a segment is full, and so is one above `disk.fullPercent`.
    """

    @classmethod
    def of(cls, answer: NodeStatus) -> Self:
        """Return what a member reports."""
        return cls(
            size_bytes=answer.volume_size_bytes,
            available_bytes=answer.volume_available_bytes,
            is_full=answer.storage is StorageState.FULL,
        )

    @property
    def used_percent(self) -> float:
        """The part that is not available, in percent; 0 if the member does not know the size."""
        if self.size_bytes <= 0:
            return 0.0
        return 100.0 * (self.size_bytes - self.available_bytes) / self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A new size for one claim."""

    claim: VolumeClaimView
    size: str
    by_itself: bool
    """Whether `storage.autoGrow` asks for this growth; if not, `storage.size` does."""
    why: str
    """Why the claim grows, for the log."""


def of_members(
    claims: Sequence[VolumeClaimView], group: Group, shape: Shape
) -> list[VolumeClaimView]:
    """Return the claims that members use, or are to use by the spec: no others need to grow. The
    retained claim of a removed member grows if the member comes back.

    Members have the lowest ordinals. A group that is asleep has voters, but no pods.
    """
    count = max(group.replicas, shape.pods, shape.voters)
    return [claim for claim in claims if 0 <= claim.ordinal < count]


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
            why = "spec.storage.size asks for it"
            found.append(Growth(claim=claim, size=storage.size, by_itself=False, why=why))
        elif size := _size_of_the_others(storage, claim, claims, use):
            why = "other members have grown, and this one needs room for the same log"
            found.append(Growth(claim=claim, size=str(size), by_itself=True, why=why))
        elif size := _grown_by_itself(storage, claim, use.get(claim.name), now):
            why = "its volume fills up"
            found.append(Growth(claim=claim, size=str(size), by_itself=True, why=why))
    return found


def _size_of_the_others(
    storage: Storage,
    claim: VolumeClaimView,
    claims: Sequence[VolumeClaimView],
    use: Mapping[str, VolumeUse],
) -> int:
    """Return the size to which the claim of a new or replaced member grows; 0 if it does not.

    A new claim has `storage.size`, and the log may have outgrown that long ago. Step by step, with
    a cool-down after each, its member would lag for days. The others reached their size under the
    same rule, or their provider gave it and the log may fill it. A difference of one step is left
    to the member's own use.
    """
    rule = storage.auto_grow
    # Removed members leave claims behind, which neither grow nor make others grow.
    if rule is None or claim.name not in use or is_growing(claim):
        return 0
    others = [
        _bytes(each.capacity)  # not what was asked for: a growth may be impossible
        for each in claims
        if each.name != claim.name and each.name in use and not each.leaving
    ]
    size = min(rule.max_bytes, max(others, default=0))
    return size if size > _bytes(claim.capacity) + rule.step_bytes else 0


def _grown_by_itself(
    storage: Storage, claim: VolumeClaimView, use: VolumeUse | None, now: datetime
) -> int:
    """Return the size to which a claim grows since its volume fills up; 0 if it does not."""
    rule, capacity = storage.auto_grow, _bytes(claim.capacity)
    if rule is None or use is None or capacity >= rule.max_bytes:
        return 0
    if not (use.is_full or use.used_percent >= rule.at_percent) or is_growing(claim):
        return 0
    least_bytes = _SIZE_TOLERANCE * min(_bytes(claim.requested), capacity) - _JOURNAL_BYTES
    if use.size_bytes < least_bytes:
        return 0  # the member has not seen the last growth yet
    if _cools_until(rule, claim, now):
        return 0
    # A provider may give more than asked for, and Kubernetes ignores a request below that.
    return min(rule.max_bytes, capacity + rule.step_bytes)


def _cools_until(rule: AutoGrow, claim: VolumeClaimView, now: datetime) -> datetime | None:
    """Return when the cool-down after the last growth of a claim ends; None if it has ended."""
    if claim.grown_at is None or claim.grown_at > now:
        return None
    until = claim.grown_at + timedelta(seconds=rule.cool_down_s)
    return until if now < until else None


def why_full(
    storage: Storage, claim: VolumeClaimView, use: VolumeUse, now: datetime
) -> Problem | None:
    """Return why a full volume does not grow by itself now, and what to do about it. None if it is
    not full, or is to grow, or never grows by itself.
    """
    rule, capacity = storage.auto_grow, _bytes(claim.capacity)
    if rule is None or not (use.is_full and capacity) or is_growing(claim):
        return None
    if _bytes(claim.requested) < storage.size_bytes:
        return None
    message = f"volume claim {claim.name} is full; it has {claim.capacity}, and grows "
    if capacity >= rule.max_bytes:
        message += (
            "no further by itself than spec.storage.autoGrow.maxSize; raise maxSize, or let "
            "spec.log.retention remove old segments"
        )
    elif until := _cools_until(rule, claim, now):
        message += (
            f"again at {names.timestamp(until)}, after spec.storage.autoGrow.coolDown; to make "
            "room now, raise spec.storage.size"
        )
    else:
        return None
    return Problem(reason=VOLUME_FULL, message=message)


def volume_use(pods: Sequence[PodView], answers: Mapping[str, NodeStatus]) -> dict[str, VolumeUse]:
    """Return by claim name how full volumes are, as members report. `answers` are by pod uid."""
    reports = ((pod, answers.get(pod.uid)) for pod in pods if not pod.leaving)
    return {
        names.volume_claim(pod.name): VolumeUse.of(answer)
        for pod, answer in reports
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
        return Problem(reason=reasons.STALLED, message=message)
    return Problem(reason=GROWING, message=listed)


def refused(growth: Growth, error: str) -> Problem:
    """Return the problem of a growth that the API server refuses."""
    claim = growth.claim
    return Problem(
        reason=reasons.STALLED,
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
        return volume_bytes(size)
    except ValueError:
        return 0
