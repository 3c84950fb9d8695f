"""A group's identity: where it comes from, and whom the operator does not believe."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from dledger_formats.http.status import LeaderView, NodeStatus, is_stranger
from dledger_kube.fake_members import members
from dledger_kube.objects import (
    IMAGES,
    group,
    group_body,
    leader_status,
    leader_view,
    membership,
    node_status,
    pod,
)
from dledger_operator import names
from dledger_operator.api_objects import Manifest, SettingsView, StatefulSetView, VolumeClaimView
from dledger_operator.behaviors.founding.founding import FoundingRecords
from dledger_operator.behaviors.founding.identity import find_identity, overriding_identity
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.leader.leader_polls import LeaderPolls
from dledger_operator.behaviors.loops import Wake
from dledger_operator.behaviors.members import observe
from dledger_operator.problem import Problem
from dledger_operator.resources import stateful_set
from dledger_operator.spec.shape import Shape

UID = group().uid
NONE = FoundingRecords(settings=None, stateful_set=None, claims=(), status={})
SETTINGS = SettingsView(data={})
NOT_ALL_ANSWERED = None
NONE_KNOWS = frozenset[str]()


def recorded_set(identity: str) -> StatefulSetView:
    return StatefulSetView(
        namespace="air", name="flights", uid="u", resource_version="1", replicas=3, first_voters=3,
        identity=identity, volume_claim_templates=(),
    )  # fmt: skip


def claim(ordinal: int, identity: str) -> VolumeClaimView:
    return VolumeClaimView(
        name=f"data-flights-{ordinal}", ordinal=ordinal, first_voters=3, identity=identity,
        leaving=False, problem=None,
    )  # fmt: skip


def found(
    reported: frozenset[str] | None = NOT_ALL_ANSWERED, override: str = "", **records: Any
) -> str | Problem:
    return find_identity(group(), replace(NONE, **records), override=override, reported=reported)


def refused(*args: Any, **records: Any) -> str:
    problem = found(*args, **records)
    assert isinstance(problem, Problem), problem
    assert problem.reason == "IdentityUnknown"
    return problem.message


def test_a_new_group_gets_the_uid_of_its_object() -> None:
    assert found() == UID


@pytest.mark.parametrize(
    "records",
    [{"settings": SETTINGS}, {"status": {"conditions": []}}],
    ids=["a refused StatefulSet", "a status without members"],
)
def test_a_group_without_a_pod_so_far_is_new(records: Mapping[str, Any]) -> None:
    assert found(**records) == UID


@pytest.mark.parametrize(
    "records",
    [
        {"stateful_set": recorded_set("a"), "settings": SETTINGS},
        {"claims": [claim(0, ""), claim(1, "a")]},
        {"status": {"identity": "a"}},
        {"stateful_set": recorded_set(""), "status": {"identity": "a"}},
    ],
    ids=lambda records: " and ".join(records),
)
def test_each_record_suffices(records: Mapping[str, Any]) -> None:
    assert found(NONE_KNOWS, **records) == "a"
    assert found(NOT_ALL_ANSWERED, **records) == "a"


def test_a_group_of_an_earlier_release_adopts_an_identity_once_all_voters_have_answered() -> None:
    earlier = {"stateful_set": recorded_set(""), "settings": SETTINGS}

    assert found(NOT_ALL_ANSWERED, **earlier) == ""
    assert found(NONE_KNOWS, **earlier) == UID


def snapshot_of(answers: Mapping[str, NodeStatus]) -> GroupSnapshot:
    """A group whose three members gave these answers, by the names of the asked members."""
    snapshot = GroupSnapshot.of(group_body(), IMAGES)
    pods = tuple(pod(ordinal) for ordinal in range(3))
    snapshot.followed = replace(snapshot.followed, pods=pods)
    snapshot.membership = membership()
    snapshot.answers = {each.uid: answers[each.member_id] for each in pods}
    return snapshot


def test_members_report_their_identity_once_one_of_them_is_master() -> None:
    """One that has just started may not know the identity in its folder yet."""
    started = {f"n{ordinal}": node_status(f"n{ordinal}") for ordinal in range(3)}
    serving = started | {"n1": leader_status("n1", group_identity="a")}

    assert snapshot_of(started).reported_identities() is None
    assert snapshot_of(serving).reported_identities() == {"a"}


def test_members_that_know_their_identity_keep_it_if_all_records_are_lost() -> None:
    """The volumes were kept when a group of an earlier release was deleted."""
    claims = [claim(0, ""), claim(1, "")]

    assert found(NOT_ALL_ANSWERED, claims=claims) == ""
    assert found(frozenset({"a"}), claims=claims) == "a"
    assert "a, b" in refused(frozenset({"b", "a"}), claims=claims)


def test_contradicting_records_change_nothing() -> None:
    message = refused(claims=[claim(0, "a"), claim(1, "b")])

    assert "volume claim data-flights-0 says a, volume claim data-flights-1 says b" in message
    assert message.endswith("nothing was changed")


def test_the_annotation_of_the_object_overrides_all_records() -> None:
    body = {"metadata": {"annotations": {names.IDENTITY_ANNOTATION: "c"}}}

    assert overriding_identity(body) == "c"
    assert found(override="c", stateful_set=recorded_set("a"), status={"identity": "b"}) == "c"
    assert "must match" in refused(override="not one")


def container_of(made: Manifest) -> dict[str, str]:
    (container,) = made["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each.get("value", "") for each in container["env"]}


def test_the_identity_is_recorded_and_given_to_new_pods_only() -> None:
    """Running pods read the ConfigMap again when they restart, also those of an earlier release."""
    without = stateful_set.build(group(), Shape.of_new(3))
    made = stateful_set.build(group(), replace(Shape.of_new(3), identity="a"))
    (template,) = made["spec"]["volumeClaimTemplates"]

    assert made["metadata"]["annotations"][names.IDENTITY_ANNOTATION] == "a"
    assert template["metadata"]["annotations"][names.IDENTITY_ANNOTATION] == "a"
    assert container_of(made)["DLEDGER_GROUP_IDENTITY"] == "a"
    assert "DLEDGER_GROUP_IDENTITY" not in container_of(without)


@pytest.mark.parametrize("before", ["", "before"])
def test_a_template_that_stays_in_force_gets_the_identity_that_the_group_has_now(
    before: str,
) -> None:
    """A survivor may be adopted while a change of the pods waits for its approval."""
    made = stateful_set.build(group(), replace(Shape.of_new(3), identity=before))

    template = stateful_set.with_identity(
        made["spec"]["template"], replace(Shape.of_new(3), identity="adopted")
    )

    assert container_of({"spec": {"template": template}})["DLEDGER_GROUP_IDENTITY"] == "adopted"


@pytest.mark.parametrize(
    ("name", "identity", "stranger"),
    [
        ("flights", "a", False),
        ("flights", "", False),
        ("", "", False),
        ("flights", "b", True),
        ("orders", "a", True),
        ("orders", "", True),
    ],
)
def test_a_stranger_is_known_by_name_or_identity(name: str, identity: str, stranger: bool) -> None:
    view = replace(leader_view("n0", 1), group=name, group_identity=identity)

    assert is_stranger(view, "flights", "a") is stranger


async def test_a_strangers_claim_to_lead_is_silence() -> None:
    async with members(1) as ([node], client):
        await node.say(7, "n0", "a")
        changed = Wake()

        def strange(view: LeaderView) -> bool:
            return is_stranger(view, "flights", "a")

        polls = LeaderPolls(client, Random(1), changed.set, strange)
        polls.sync([pod(0, ip=node.ip)])
        while not [each for each in polls.observations() if each.answers]:
            await changed.wait(10)

        await node.say(99, "n0", "b")
        while [each for each in polls.observations() if each.answers]:
            await changed.wait(10)

        (seen,) = polls.observations()
        assert (seen.term, seen.answers) == (7, False)
        await polls.stop()


async def test_a_strangers_status_is_silence() -> None:
    async with members(2) as (nodes, client):
        nodes[0].status = node_status("n0", group_identity="a")
        nodes[1].status = node_status("n1", group_identity="b")
        pods = [pod(ordinal, ip=node.ip) for ordinal, node in enumerate(nodes)]

        answers = await observe.statuses(
            client, pods, lambda view: is_stranger(view, "flights", "a")
        )

        assert [answer.self_id for answer in answers.values()] == ["n0"]
