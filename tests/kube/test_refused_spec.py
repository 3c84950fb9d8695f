"""While a spec is refused, the choices of the last accepted one stay, also after a restart."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_kube.objects import IMAGES, NOW, group_body
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.behaviors.leader.role_labeler import FollowResult
from dledger_operator.behaviors.report.status import build_status
from dledger_operator.spec.accepted import AcceptedSpec

CHOICES: dict[str, Any] = {
    "replicas": 5,
    "roles": {"master": "primary", "slave": "replica"},
    "hibernate": True,
    "preferredLeader": {"member": "n4"},
    "adminToken": {"required": False},
    "audit": {"schedule": "0 3 * * *"},
    "broker": {},
    "canary": {"interval": "7s"},
}
FIELDS = {
    "replicas": "replicas",
    "roles": "roles",
    "hibernate": "hibernate",
    "preferredLeader": "preferred_leader",
    "adminToken": "admin_token",
    "audit": "audit",
    "broker": "broker",
    "canary": "canary",
}
MISTAKES: tuple[dict[str, Any], ...] = (
    {"log": "nonsense"},
    {"log": "nonsense", "hibernate": False, "replicas": 1, "preferredLeader": {"member": "n0"}},
    {"audit": "nonsense", "hibernate": "perhaps", "adminToken": 7},
    {"roles": {"master": "same", "slave": "same"}, "replicas": 2, "canary": {"interval": "1d"}},
)


def choices(snapshot: GroupSnapshot) -> dict[str, Any]:
    return {key: getattr(snapshot.group, field) for key, field in FIELDS.items()}


def with_no_pods(snapshot: GroupSnapshot) -> GroupSnapshot:
    """Return the snapshot after its pods were listed: there are none."""
    assert snapshot.group is not None
    snapshot.followed = FollowResult(roles=snapshot.group.roles)
    return snapshot


def status_of(snapshot: GroupSnapshot, previous: dict[str, Any]) -> dict[str, Any]:
    """The status that the operator writes."""
    observed = snapshot.observe(NOW, None, None, Nodes())
    return build_status(observed, LeaderHistory([]), generation=4, previous=previous, now=NOW)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_refused_spec_changes_no_choice(mistake: dict[str, Any]) -> None:
    snapshot = GroupSnapshot.of(group_body(CHOICES), IMAGES)
    before = choices(snapshot)

    snapshot.take_spec(group_body(mistake), IMAGES)

    assert choices(snapshot) == before
    assert snapshot.group is not None
    assert snapshot.group.is_partial


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_operator_that_restarts_beside_a_refused_spec_knows_the_choices(
    mistake: dict[str, Any],
) -> None:
    before = GroupSnapshot.of(group_body(CHOICES), IMAGES)
    status = status_of(before, {})
    for _ in range(2):  # the status of the refused spec has the choices, too
        restarted = GroupSnapshot.of(group_body(mistake) | {"status": status}, IMAGES)
        assert choices(restarted) == choices(before)
        assert with_no_pods(restarted).hibernates
        status = status_of(restarted, status)


@pytest.mark.parametrize(
    ("said", "paused"), [(None, False), (False, False), (True, True), ("perhaps", True)]
)
def test_a_refused_spec_is_paused_if_it_says_so_itself(said: object, paused: bool) -> None:
    wrong = {"log": "nonsense"} | ({} if said is None else {"paused": said})
    for accepted in (False, True):
        snapshot = GroupSnapshot.of(group_body({"paused": accepted}), IMAGES)
        snapshot.take_spec(group_body(wrong), IMAGES)
        assert snapshot.group is not None
        assert snapshot.group.paused is paused


def test_without_a_record_an_operator_takes_what_is_valid_of_a_refused_spec() -> None:
    valid = choices(GroupSnapshot.of(group_body(CHOICES), IMAGES))
    nothing_set = choices(GroupSnapshot.of(group_body(), IMAGES))
    wrong = {**CHOICES, "preferredLeader": {"member": "n9"}, "log": "nonsense"}

    read = choices(GroupSnapshot.of(group_body(wrong), IMAGES))

    assert read == {**valid, "preferredLeader": nothing_set["preferredLeader"]}


def test_a_record_that_somebody_has_edited_does_no_harm() -> None:
    records: tuple[object, ...] = (
        "nonsense", [], {"generation": "x"}, {"generation": 3, "choices": "{"},
        {"generation": 3, "choices": "[" * 9_999}, {"generation": 3, "choices": '{"replicas": 2}'},
        {"generation": "3", "choices": "{}"}, {"generation": 3, "choices": "7"},
    )  # fmt: skip
    for record in records:
        body = group_body({**CHOICES, "log": "nonsense"}) | {"status": {"acceptedSpec": record}}
        assert with_no_pods(GroupSnapshot.of(body, IMAGES)).hibernates


def test_another_replica_of_the_operator_learns_the_choices_from_the_status() -> None:
    holder = GroupSnapshot.of(group_body(CHOICES), IMAGES)
    wrong = group_body({"log": "nonsense"})
    standby = GroupSnapshot.of(wrong, IMAGES)

    standby.take_status(wrong | {"status": status_of(holder, {})}, IMAGES)

    assert choices(standby) == choices(holder)


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.sampled_from([3, 5]),
        "hibernate": st.booleans(),
        "preferredLeader": st.sampled_from([{"member": "n2"}, {"zone": "a"}]),
        "adminToken": st.just({"required": False}),
        "canary": st.just({"interval": "7s"}),
        "paused": st.booleans(),
    },
)


@given(turns=st.lists(st.tuples(SPECS, st.booleans(), st.booleans()), max_size=8))
def test_the_choices_are_always_those_of_the_last_accepted_spec(
    turns: list[tuple[dict[str, Any], bool, bool]],
) -> None:
    snapshot = GroupSnapshot.of(group_body(), IMAGES)
    expected, status = choices(snapshot), status_of(snapshot, {})
    for spec, is_valid, restarts in turns:
        if is_valid:
            expected = choices(GroupSnapshot.of(group_body(spec), IMAGES))
        body = group_body(spec if is_valid else {**spec, "log": "nonsense"}) | {"status": status}
        if restarts:
            snapshot = GroupSnapshot.of(body, IMAGES)
        else:
            snapshot.take_spec(body, IMAGES)
        status = status_of(snapshot, status)

        assert choices(snapshot) == expected
        assert snapshot.group is not None
        assert snapshot.group.paused is spec.get("paused", False)


@pytest.mark.parametrize(("length", "is_kept"), [(60_000, True), (70_000, False)])
def test_choices_that_the_status_cannot_hold_are_left_out_of_it(length: int, is_kept: bool) -> None:
    annotations = {"note": "ü" * length}
    choices = {"broker": {"service": {"annotations": annotations}}}
    told = AcceptedSpec(generation=1, choices=choices).to_json()

    assert (told is not None) == is_kept
