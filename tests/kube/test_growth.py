"""Which volume claims grow, to which size, and what is said about it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.http.status import StorageState
from dledger_formats.quantities import quantity_bytes
from dledger_kube.objects import NOW, group, node_status, pod
from dledger_operator.api_objects import VolumeClaimView
from dledger_operator.behaviors.volumes.grow_claims import grow_claims
from dledger_operator.behaviors.volumes.growth import (
    VolumeUse,
    growth_problem,
    growths,
    of_members,
    volume_use,
    why_full,
)
from dledger_operator.clients.errors import ConflictError, KubeError, RefusedError
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError

GIB = 1 << 30
FULL, HALF = 99, 50
AUTO = {"usedPercent": 80, "step": "5Gi", "maxSize": "22Gi", "coolDown": "1h"}
AUTO200 = {"usedPercent": 80, "step": "10Gi", "maxSize": "200Gi", "coolDown": "6h"}


def claim(ordinal: int = 0, requested: str = "10Gi", **fields: Any) -> VolumeClaimView:
    """A bound claim that has what it asks for."""
    known: dict[str, Any] = {
        "name": f"data-flights-{ordinal}", "ordinal": ordinal, "first_voters": 3, "identity": "",
        "leaving": False, "problem": None, "requested": requested, "capacity": requested,
    }  # fmt: skip
    return VolumeClaimView(**known | fields)


def use(percent: float, size_bytes: int = 10 * GIB, *, is_full: bool = False) -> VolumeUse:
    return VolumeUse(
        size_bytes=size_bytes, available_bytes=int(size_bytes * (100 - percent) / 100),
        is_full=is_full,
    )  # fmt: skip


def of(size: str = "10Gi", auto: dict[str, Any] | None = None) -> Group:
    return group(storage={"size": size} | ({"autoGrow": auto} if auto else {}))


def sizes(
    asked: Group, *claims: VolumeClaimView, percent: float = HALF, now: datetime = NOW
) -> dict[int, str]:
    told = {
        each.name: use(percent, quantity_bytes(each.capacity)) for each in claims if each.capacity
    }
    return {each.claim.ordinal: each.size for each in growths(asked.storage, claims, told, now)}


def test_every_bound_claim_grows_to_the_size_of_the_spec() -> None:
    waiting = Problem(reason="VolumePending", message="")
    claims = [
        claim(0), claim(1, "20Gi"), claim(2, problem=waiting, capacity=""), claim(3, leaving=True),
        claim(4, "30Gi"), claim(5, requested="", capacity="1Gi"),
    ]  # fmt: skip

    assert sizes(of("20Gi"), *claims) == {0: "20Gi"}


@pytest.mark.parametrize(
    ("replicas", "pods", "voters", "count"),
    [(3, 3, 3, 3), (5, 3, 3, 5), (3, 5, 5, 5), (3, 5, 3, 5), (3, 0, 5, 5), (3, 0, 0, 3)],
    ids=["removed ones", "to be added", "to be removed", "just removed", "asleep", "not known"],
)
def test_only_claims_of_members_grow(replicas: int, pods: int, voters: int, count: int) -> None:
    """A claim that is retained of a removed member is paid for, and grows if it comes back."""
    shape = replace(Shape.of_new(3), pods=pods, voters=voters)
    claims = [claim(ordinal) for ordinal in range(-1, 7)]

    found = of_members(claims, group(replicas=replicas), shape)

    assert [each.ordinal for each in found] == list(range(count))


@given(
    size=st.integers(3, 40), requested=st.integers(1, 40), capacity=st.integers(1, 40),
    percent=st.floats(0, 100), age_s=st.integers(-9999, 9999) | st.none(),
)  # fmt: skip
def test_a_claim_never_shrinks_and_never_grows_by_itself_beyond_its_maximum(
    size: int, requested: int, capacity: int, percent: float, age_s: int | None
) -> None:
    grown_at = NOW - timedelta(seconds=age_s) if age_s is not None else None
    seen = claim(0, f"{requested}Gi", capacity=f"{capacity}Gi", grown_at=grown_at)
    asked = of(f"{size}Gi", AUTO)

    found = growths(asked.storage, [seen], {seen.name: use(percent, capacity * GIB)}, NOW)

    for growth in found:
        grown = quantity_bytes(growth.size)
        assert grown > requested * GIB
        assert grown <= max(size, 22) * GIB
        assert growth.by_itself == (requested >= size)
        if growth.by_itself:
            assert percent >= 79.9, "the volume has room"
            assert capacity >= requested, "the last growth is under way"
            assert grown > capacity * GIB, "Kubernetes does nothing about less"
            assert age_s is None or not 0 <= age_s < 3600, "the volume cools down"


@pytest.mark.parametrize(
    ("seen", "percent", "size"),
    [
        (claim(), FULL, str(15 * GIB)),
        (claim(requested="20Gi"), FULL, str(22 * GIB)),
        (claim(requested="22Gi"), FULL, None),
        (claim(capacity="16Gi"), FULL, str(21 * GIB)),
        (claim(capacity="20Gi"), FULL, str(22 * GIB)),
        (claim(capacity="22Gi"), FULL, None),
        (claim(capacity="30Gi"), FULL, None),
        (claim(), 79, None),
        (claim(), 81, str(15 * GIB)),
        (claim(capacity="9Gi"), FULL, None),
        (claim(grown_at=NOW - timedelta(minutes=59)), FULL, None),
        (claim(grown_at=NOW - timedelta(minutes=61)), FULL, str(15 * GIB)),
    ],
)
def test_a_volume_that_fills_up_grows_by_a_step(
    seen: VolumeClaimView, percent: float, size: str | None
) -> None:
    assert sizes(of("10Gi", AUTO), seen, percent=percent).get(0) == size
    assert sizes(of("10Gi"), seen, percent=percent) == {}, "nobody has asked for it"


def test_a_volume_that_its_member_calls_full_grows_however_much_of_it_is_used() -> None:
    """The next segment may not fit on it, or it may be above `disk.fullPercent`."""
    told = {claim().name: use(HALF, is_full=True)}
    cooling = claim(grown_at=NOW - timedelta(minutes=59))

    found = growths(of("10Gi", AUTO).storage, [claim()], told, NOW)

    assert [each.size for each in found] == [str(15 * GIB)]
    assert growths(of("10Gi", AUTO).storage, [cooling], told, NOW) == []


def test_a_volume_that_its_member_has_not_seen_grow_does_not_grow_again() -> None:
    seen, storage = claim(requested="15Gi"), of("10Gi", AUTO).storage

    for told in (use(FULL, 10 * GIB), use(HALF, 10 * GIB, is_full=True)):
        assert growths(storage, [seen], {seen.name: told}, NOW) == []


def test_a_small_volume_grows_although_xfs_keeps_64_mib_of_it_for_its_journal() -> None:
    small, size = claim(requested="384Mi"), (384 - 64) << 20
    auto = AUTO | {"step": "64Mi"}

    found = growths(of("320Mi", auto).storage, [small], {small.name: use(FULL, size)}, NOW)

    assert [each.size for each in found] == [str(448 << 20)]


def grown_group(*sizes: str) -> list[VolumeClaimView]:
    return [claim(ordinal, size) for ordinal, size in enumerate(sizes)]


def test_the_volume_of_a_replaced_member_gets_the_size_of_the_others_at_once() -> None:
    old = [claim(0, "160Gi"), claim(1, "150Gi")]
    new = claim(2, "30Gi", grown_at=NOW - timedelta(minutes=1))

    assert sizes(of("30Gi", AUTO200), *old, new) == {2: str(160 * GIB)}
    assert sizes(of("30Gi"), *old, new) == {}, "nobody has asked for growth"


def test_a_new_member_s_volume_never_gets_more_than_the_maximum() -> None:
    found = sizes(of("30Gi", AUTO200), *grown_group("500Gi", "30Gi", "200Gi"))

    assert found == {1: str(200 * GIB)}


def test_a_new_volume_that_is_larger_than_asked_for_is_measured_as_it_is() -> None:
    new = claim(2, "30Gi", capacity="155Gi")

    assert sizes(of("30Gi", AUTO200), *grown_group("160Gi", "160Gi"), new) == {}
    assert sizes(of("30Gi", AUTO200), *grown_group("170Gi", "160Gi"), new) == {2: str(170 * GIB)}


def test_a_volume_that_was_given_larger_than_asked_for_is_a_measure_for_new_ones() -> None:
    given = claim(0, "30Gi", capacity="160Gi")

    assert sizes(of("30Gi", AUTO200), given, claim(1, "30Gi")) == {1: str(160 * GIB)}


def test_volumes_that_are_a_step_apart_grow_as_they_fill_up() -> None:
    assert sizes(of("30Gi", AUTO200), *grown_group("40Gi", "30Gi", "30Gi")) == {}


@pytest.mark.parametrize(
    "other",
    [
        claim(0, "160Gi", leaving=True),
        claim(0, "160Gi", capacity="30Gi", resize_failed=True),
        claim(0, "160Gi", capacity=""),
    ],
    ids=["leaves", "has not grown", "has no volume"],
)
def test_a_volume_that_no_member_has_is_no_measure(other: VolumeClaimView) -> None:
    assert sizes(of("30Gi", AUTO200), other, claim(1, "30Gi")) == {}


def test_claims_of_removed_members_neither_grow_nor_make_others_grow() -> None:
    running, removed, small = claim(0, "90Gi"), claim(1, "160Gi"), claim(2, "30Gi")
    told = {running.name: use(HALF, 90 * GIB)}

    assert growths(of("30Gi", AUTO200).storage, [running, removed, small], told, NOW) == []


def test_a_volume_that_is_growing_already_is_not_asked_to_grow_to_the_others_size() -> None:
    going = claim(2, "40Gi", capacity="30Gi")

    assert sizes(of("30Gi", AUTO200), claim(0, "160Gi"), going) == {}


def test_a_growth_that_kubernetes_cannot_carry_out_is_stalled() -> None:
    going = claim(0, "20Gi", capacity="10Gi", resizing="FileSystemResizePending: waits for a pod")
    failed = claim(1, "20Gi", capacity="10Gi", resizing="ControllerResizeInfeasible",
                   resize_failed=True)  # fmt: skip

    assert growth_problem([claim()]) is None
    only = growth_problem([claim(2), going])
    assert only == Problem(
        reason="VolumeGrowing",
        message="volume claim data-flights-0 has 10Gi of 20Gi: FileSystemResizePending: waits "
        "for a pod",
    )
    both = growth_problem([going, failed])
    assert both is not None
    assert both.reason == "Stalled"
    assert "data-flights-1 has 10Gi of 20Gi: ControllerResizeInfeasible" in both.message


def why(seen: VolumeClaimView, asked: Group, told: VolumeUse | None = None) -> str:
    found = why_full(asked.storage, seen, told or use(FULL, is_full=True), NOW)
    assert found is None or found.reason == "VolumeFull"
    return found.message if found else ""


def test_a_full_volume_that_may_not_grow_now_says_when_it_does_and_what_to_do() -> None:
    cooling = claim(grown_at=NOW - timedelta(minutes=15))

    assert why(cooling, of("10Gi", AUTO)) == (
        "volume claim data-flights-0 is full; it has 10Gi, and grows again at "
        "2026-01-01T00:45:00Z, after spec.storage.autoGrow.coolDown; to make room now, raise "
        "spec.storage.size"
    )


def test_a_full_volume_that_has_its_maximum_says_so_and_what_to_do() -> None:
    large = claim(requested="22Gi", grown_at=NOW - timedelta(minutes=15))

    assert why(large, of("10Gi", AUTO)) == (
        "volume claim data-flights-0 is full; it has 22Gi, and grows no further by itself than "
        "spec.storage.autoGrow.maxSize; raise maxSize, or let spec.log.retention remove old "
        "segments"
    )


def test_a_full_volume_that_grows_or_that_nobody_lets_grow_is_explained_elsewhere() -> None:
    cooling = claim(grown_at=NOW - timedelta(minutes=15))

    assert why(claim(), of("10Gi", AUTO)) == ""
    assert why(claim(requested="15Gi"), of("10Gi", AUTO)) == "", "it lacks what is asked for"
    assert why(cooling, of("15Gi", AUTO)) == "", "the spec asks for more"
    assert why(cooling, of("10Gi")) == ""
    assert why(replace(cooling, capacity=""), of("10Gi", AUTO)) == ""
    assert why(cooling, of("10Gi", AUTO), use(FULL)) == "", "it is not full yet"


class Claims:
    """An API that grows claims, and raises `error` for the first one."""

    def __init__(self, error: KubeError | None = None) -> None:
        self.error = error
        self.grown: dict[str, tuple[str, datetime | None]] = {}

    async def grow_volume_claim(
        self, claim: VolumeClaimView, size: str, grown_at: datetime | None
    ) -> None:
        if self.error and claim.ordinal == 0:
            raise self.error
        self.grown[claim.name] = (size, grown_at)


async def test_a_claim_that_was_asked_to_grow_is_reported_at_once() -> None:
    api = Claims()

    problem = await grow_claims(api, of("20Gi"), [claim(0), claim(1, "20Gi")], {}, NOW)

    assert api.grown == {"data-flights-0": ("20Gi", None)}
    assert problem is not None
    assert problem.reason == "VolumeGrowing"
    assert "data-flights-0 has 10Gi of 20Gi" in problem.message


async def test_the_time_of_a_growth_by_itself_is_recorded_with_it() -> None:
    api, seen = Claims(), claim(0)

    await grow_claims(api, of("10Gi", AUTO), [seen], {seen.name: use(FULL)}, NOW)

    assert api.grown == {seen.name: (str(15 * GIB), NOW)}


@pytest.mark.parametrize(
    ("error", "is_stalled"),
    [
        (RefusedError("only dynamically provisioned pvc can be resized"), lambda each: each),
        (ConflictError("it has changed"), lambda each: not each),
    ],
)
async def test_a_claim_that_cannot_grow_keeps_no_other_from_it(
    error: KubeError, is_stalled: Callable[[bool], bool]
) -> None:
    api = Claims(error)

    problem = await grow_claims(api, of("20Gi"), [claim(0), claim(1)], {}, NOW)

    assert list(api.grown) == ["data-flights-1"]
    assert problem is not None
    assert is_stalled(problem.reason == "Stalled")
    if problem.reason == "Stalled":
        assert "data-flights-0 cannot grow from 10Gi to 20Gi: only dynamically" in problem.message
        assert "allowVolumeExpansion: true" in problem.message


@pytest.mark.parametrize("change", [{"usedPercent": 0}, {"step": "0"}, {"maxSize": "much"}])
def test_a_rule_that_makes_no_sense_is_refused_in_a_stored_group(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecError, match=r"spec\.storage\.autoGrow"):
        of("10Gi", AUTO | change)


def test_a_volume_is_as_full_as_its_member_says_unless_its_pod_leaves() -> None:
    pods = [pod(0), pod(1), pod(2, leaving=True)]
    told = replace(node_status("n0"), volume_size_bytes=100, volume_available_bytes=5)
    full = replace(told, self_id="n1", storage=StorageState.FULL)

    found = volume_use(pods, {"uid-0": told, "uid-1": full, "uid-2": told})

    known = VolumeUse(size_bytes=100, available_bytes=5)
    assert found == {"data-flights-0": known, "data-flights-1": replace(known, is_full=True)}
    assert known.used_percent == 95
    assert VolumeUse(size_bytes=0, available_bytes=0).used_percent == 0, "nothing is known"
