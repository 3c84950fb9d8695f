"""Whether a revision may be rolled out, and that the pod template in force stays until it may."""

from dataclasses import replace
from typing import Any

import pytest

from dledger_kube.objects import IMAGES, NOW, group_body, node_status
from dledger_operator import names
from dledger_operator.api_objects import AppliedSpec, Manifest, SettingsView, StatefulSetView
from dledger_operator.behaviors.children.reconcile import reconcile
from dledger_operator.behaviors.members.settings_in_force import WantedSettings
from dledger_operator.behaviors.rolls.permission import Cause, Held, applied_spec, find_held
from dledger_operator.resources import children
from dledger_operator.spec.group import Group
from dledger_operator.spec.images import ImageDefaults
from dledger_operator.spec.revision import Revision
from dledger_operator.spec.shape import Shape

SHAPE = Shape.of_new(3)
NEWER = ImageDefaults(reference="registry.example:5000/dledger-node:2.0", pull_policy="Always")
ASYNC = {"log": {"flushDiskType": "AsyncFlush"}}
APPROVAL = {"updatePolicy": "OnApproval"}


def body(generation: int = 4, approved: str = "", **spec: Any) -> dict[str, Any]:
    made = group_body(spec)
    made["metadata"]["generation"] = generation
    if approved:
        made["metadata"]["annotations"] = {names.APPROVED_REVISION_ANNOTATION: approved}
    return made


def applied(of: dict[str, Any], images: ImageDefaults = IMAGES) -> StatefulSetView:
    """The StatefulSet as it is after this object was reconciled."""
    (made,) = (
        each
        for each in children.build(Group.from_body(of, images), SHAPE)
        if each["kind"] == "StatefulSet"
    )
    return StatefulSetView(
        namespace="air", name="flights", uid="stateful-set-uid", resource_version="11",
        replicas=3, first_voters=3, identity="",
        volume_claim_templates=made["spec"]["volumeClaimTemplates"],
        template=made["spec"]["template"],
        revision=children.revision(Group.from_body(of, images), SHAPE),
        applied_spec=applied_spec(of),
    )  # fmt: skip


def revision(of: dict[str, Any], images: ImageDefaults = IMAGES) -> Revision:
    return children.revision(Group.from_body(of, images), SHAPE)


def held(
    of: dict[str, Any],
    existing: StatefulSetView | None,
    images: ImageDefaults = IMAGES,
    **known: Any,
) -> Held | None:
    values: dict[str, Any] = {"founding": False, "approved": "", "now": NOW}
    return find_held(
        Group.from_body(of, images),
        revision(of, images),
        applied_spec(of),
        existing,
        **values | known,
    )


def cause(found: Held | None) -> Cause | None:
    return found.cause if found else None


BEFORE = applied(body())


def test_a_change_of_the_spec_is_rolled_out_at_once_unless_it_needs_an_approval() -> None:
    asked = body(5, **ASYNC, **APPROVAL)
    found = held(asked, BEFORE)

    assert held(body(5, **ASYNC), BEFORE) is None
    assert found is not None
    assert (found.cause, found.problem.reason) == (Cause.SPEC, "WaitingForApproval")
    assert f"dledger.io/approved-revision={revision(asked).name}" in found.problem.message
    assert held(asked, BEFORE, approved=revision(asked).name) is None
    assert cause(held(asked, BEFORE, approved=revision(body()).name)) is Cause.SPEC


def test_an_upgrade_of_the_operator_alone_waits_for_an_approval() -> None:
    assert cause(held(body(), BEFORE, NEWER)) is Cause.OPERATOR
    assert held(body(), BEFORE, NEWER, approved=revision(body(), NEWER).name) is None


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 5},
        {"services": {"master": {"type": "NodePort"}}},
        {"adminToken": {"rotatedAt": "2026-01-02T00:00:00Z"}},
        {"networkPolicy": {"clients": "Cluster"}},
    ],
)
def test_a_change_that_no_pod_is_made_of_brings_no_upgrade_along(spec: dict[str, Any]) -> None:
    assert cause(held(body(5, **spec), BEFORE, NEWER)) is Cause.OPERATOR
    assert cause(held(body(5, **spec, **ASYNC), BEFORE, NEWER)) is None


def test_to_demand_no_token_any_longer_is_a_change_of_the_spec() -> None:
    asked = body(5, adminToken={"required": False})

    assert held(asked, BEFORE) is None
    assert revision(asked) != BEFORE.revision


def test_a_release_that_computes_other_digests_changes_nothing_by_itself() -> None:
    spec = AppliedSpec(generation=4, digest="another")

    assert cause(held(body(), replace(BEFORE, applied_spec=spec), NEWER)) is Cause.OPERATOR
    assert cause(held(body(), replace(BEFORE, applied_spec=None), NEWER)) is Cause.OPERATOR


def test_a_group_that_is_founded_needs_no_approval() -> None:
    asked = body(5, **ASYNC, **APPROVAL)

    assert held(asked, None) is None
    assert held(asked, BEFORE, founding=True) is None


class Api:
    """An API with a founded group's StatefulSet, which records what is applied."""

    def __init__(self, existing: StatefulSetView) -> None:
        self.existing = existing
        self.applied: dict[str, Manifest] = {}
        self.live = group_body()

    async def apply(self, manifest: Manifest) -> None:
        self.applied[manifest["kind"]] = manifest

    async def group(self, namespace: str, name: str) -> dict[str, Any]:
        return self.live

    async def child(self, kind: str, namespace: str, name: str) -> None:
        return None

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView:
        return self.existing

    async def settings(self, namespace: str, config_map: str) -> SettingsView:
        return SettingsView(data={"DLEDGER_PEERS": "n0-a:1;n1-b:1;n2-c:1"})

    async def volume_claims(self, namespace: str, group: str) -> list[Any]:
        return []

    async def set_claim_owners(self, claim: Any, owners: Any) -> None:
        raise AssertionError("there is no claim")

    async def delete_network_policy(self, namespace: str, policy: Any) -> None:
        raise AssertionError("there is no policy")


async def test_the_template_in_force_stays_until_the_roll_is_permitted() -> None:
    asked = body(5, **ASYNC, **APPROVAL)
    api = Api(BEFORE)

    outcome = await reconcile(api, asked, IMAGES, now=NOW, led=True, voters=3, reported=frozenset())

    assert outcome.wanted == revision(asked)
    assert outcome.held is not None
    template = api.applied["StatefulSet"]["spec"]["template"]
    environment = {
        each["name"]: each.get("value") for each in template["spec"]["containers"][0]["env"]
    }
    assert environment.pop("DLEDGER_GROUP_IDENTITY") == "group-uid", "it reaches every pod"
    assert environment["DLEDGER_FLUSH_DISK_TYPE"] == "SyncFlush"
    assert template["metadata"] == BEFORE.template["metadata"]
    recorded = api.applied["StatefulSet"]["metadata"]["annotations"]["dledger.io/applied-spec"]
    assert recorded.startswith("4 "), "the change is still one of the spec"

    approved = body(5, approved=revision(asked).name, **ASYNC, **APPROVAL)
    outcome = await reconcile(api, approved, IMAGES, now=NOW, led=True, voters=3)

    assert outcome.held is None
    changed = api.applied["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]
    assert Revision.from_text(changed[names.REVISION_ANNOTATION]) == revision(asked)


async def test_after_an_upgrade_of_the_operator_what_runs_is_what_is_wanted() -> None:
    api = Api(BEFORE)

    outcome = await reconcile(api, body(), NEWER, now=NOW, led=True, voters=3)

    assert outcome.wanted == BEFORE.revision
    assert outcome.held is not None
    assert outcome.held.cause is Cause.OPERATOR
    (container,) = api.applied["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGES.reference


async def test_an_upgrade_of_the_operator_closes_no_door_before_it_is_approved() -> None:
    api, guarded = Api(BEFORE), replace(NEWER, operator_namespace="dledger-system")

    await reconcile(api, body(), guarded, now=NOW, led=True, voters=3)
    assert "NetworkPolicy" not in api.applied

    approved = body(approved=revision(body(), guarded).name)
    await reconcile(api, approved, guarded, now=NOW, led=True, voters=3)
    assert "NetworkPolicy" in api.applied


async def test_a_group_that_is_up_to_date_gets_its_policies_at_once() -> None:
    api, guarded = Api(BEFORE), replace(IMAGES, operator_namespace="dledger-system")

    await reconcile(api, body(), guarded, now=NOW, led=True, voters=3)

    assert "NetworkPolicy" in api.applied


async def test_a_paused_group_knows_which_revision_its_spec_asks_for() -> None:
    api = Api(BEFORE)

    outcome = await reconcile(
        api, body(5, paused=True, **ASYNC), IMAGES, now=NOW, led=True, voters=3
    )
    upgraded = await reconcile(api, body(paused=True), NEWER, now=NOW, led=True, voters=3)

    assert api.applied == {}
    assert outcome.wanted == revision(body(5, **ASYNC))
    assert upgraded.wanted == BEFORE.revision


def test_a_pause_brings_no_upgrade_of_the_operator_along() -> None:
    paused = body(5, paused=True)

    assert cause(held(body(6), applied(paused), NEWER)) is Cause.OPERATOR


def test_a_new_object_of_the_name_with_another_spec_is_a_change_of_the_spec() -> None:
    """Its generation begins anew."""
    asked = body(4, **ASYNC, **APPROVAL)
    asked["metadata"]["uid"] = "another"

    assert cause(held(asked, BEFORE)) is Cause.SPEC


@pytest.mark.parametrize("first_voters", [0, 2, 99, None])
async def test_a_paused_group_with_a_wrong_record_of_its_first_voters_is_left_alone(
    first_voters: int | None,
) -> None:
    api = Api(replace(BEFORE, first_voters=first_voters))

    outcome = await reconcile(
        api, body(5, paused=True, **ASYNC), IMAGES, now=NOW, led=True, voters=3
    )

    assert (outcome.wanted, outcome.problem, api.applied) == (None, None, {})


async def test_a_spec_that_another_operator_saw_later_is_not_taken_back() -> None:
    newer = body(6, **ASYNC)
    api = Api(applied(newer))
    api.live = newer

    outcome = await reconcile(api, body(5), IMAGES, now=NOW, led=True, voters=3)

    assert (outcome.generation, outcome.wanted) == (6, revision(newer))
    recorded = api.applied["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]
    assert Revision.from_text(recorded[names.REVISION_ANNOTATION]) == revision(newer)


REQUESTS = "DLEDGER_CLIENT_REQUESTS_PER_S_MAX"


def limited(requests: int, connections: int = 9) -> dict[str, Any]:
    return {"limits": {"requestsPerSecondPerAddress": requests, "connections": connections}}


def of_a_release_without_this_live_setting(requests: int) -> StatefulSetView:
    """Its pods have the limit in their environment, and refuse a file that has it."""
    before = applied(body(**limited(requests)))
    (container,) = before.template["spec"]["containers"]
    container["env"].append({"name": REQUESTS, "value": str(requests)})
    revision = Revision(parts={**BEFORE.revision.parts, "settings": "another"})
    return replace(before, revision=revision)


def live_file(api: Api) -> list[str]:
    text: str = api.applied["ConfigMap"]["data"][names.LIVE_SETTINGS_KEY]
    return text.splitlines()


async def test_the_file_lacks_what_pods_in_force_have_in_their_environment() -> None:
    api = Api(of_a_release_without_this_live_setting(7))
    outcome = await reconcile(api, body(**limited(7)), IMAGES, now=NOW, led=True, voters=3)

    assert cause(outcome.held) is Cause.OPERATOR
    assert live_file(api) == ["DLEDGER_CONNECTIONS_MAX=9"]
    assert outcome.group is not None
    status = node_status("n0")
    told = {"DLEDGER_CONNECTIONS_MAX": "9"}
    lacks = WantedSettings(outcome.group, outcome.not_live).lacking(replace(status, settings=told))
    assert lacks == ""

    approved = body(approved=revision(body(**limited(7))).name, **limited(7))
    outcome = await reconcile(api, approved, IMAGES, now=NOW, led=True, voters=3)

    assert (outcome.held, outcome.not_live) == (None, frozenset())
    assert live_file(api) == [f"{REQUESTS}=7", "DLEDGER_CONNECTIONS_MAX=9"]


@pytest.mark.parametrize("limits", [limited(8), {}])
async def test_a_live_setting_that_pods_have_in_their_environment_changes_with_a_roll(
    limits: dict[str, Any],
) -> None:
    existing = of_a_release_without_this_live_setting(7)

    assert held(body(5, **limits), existing) is None
    assert cause(held(body(5, **limits, **APPROVAL), existing)) is Cause.SPEC

    api = Api(existing)
    await reconcile(api, body(5, **limited(7, 5)), IMAGES, now=NOW, led=True, voters=3)
    assert live_file(api) == ["DLEDGER_CONNECTIONS_MAX=5"], "the others need no roll"
