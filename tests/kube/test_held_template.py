"""The template in force while a change waits, also after the StatefulSet was deleted."""

from typing import Any

import pytest

from dledger_kube.applied import Applied
from dledger_kube.objects import IMAGES, NOW, group_body, observed_group
from dledger_operator import names
from dledger_operator.api_objects import Manifest, SettingsView, StatefulSetView
from dledger_operator.behaviors.children.reconcile import ReconcileResult, reconcile
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.behaviors.report.status import build_status
from dledger_operator.behaviors.rolls.permission import applied_spec
from dledger_operator.held_template import HeldTemplate
from dledger_operator.resources import children
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape

FOUNDED = SettingsView(data={"DLEDGER_GROUP": "flights", "DLEDGER_PEERS": "n0-a:1;n1-b:1;n2-c:1"})
SHAPE = Shape.of_new(3)


def before() -> StatefulSetView:
    """The StatefulSet of a group before its spec changes."""
    body = group_body({"updatePolicy": "OnApproval"})
    group = Group.from_body(body, IMAGES)
    (made,) = (each for each in children.build(group, SHAPE) if each["kind"] == "StatefulSet")
    return StatefulSetView(
        namespace="air", name="flights", uid="stateful-set-uid", resource_version="11",
        replicas=3, first_voters=3, identity="",
        volume_claim_templates=made["spec"]["volumeClaimTemplates"],
        template=made["spec"]["template"],
        revision=children.revision(group, SHAPE),
        applied_spec=applied_spec(body),
    )  # fmt: skip


def changed(**status: Any) -> dict[str, Any]:
    """The group after a change that waits for an approval."""
    body = group_body({"updatePolicy": "OnApproval", "log": {"flushDiskType": "AsyncFlush"}})
    body["metadata"]["generation"] = 5
    return {**body, "status": status}


async def reconciled(api: Applied, body: dict[str, Any]) -> ReconcileResult:
    return await reconcile(api, body, IMAGES, now=NOW, led=True, voters=3)


def stateful_set(api: Applied) -> Manifest:
    (made,) = (each for each in api.manifests if each["kind"] == "StatefulSet")
    return made


def flush_disk_type(made: Manifest) -> str:
    (container,) = made["spec"]["template"]["spec"]["containers"]
    (value,) = (
        each["value"] for each in container["env"] if each["name"] == "DLEDGER_FLUSH_DISK_TYPE"
    )
    return str(value)


def shown(outcome: ReconcileResult, previous: Manifest) -> Manifest:
    """The group's next status."""
    observed = observed_group(
        held_template=outcome.held_template,
        first_voters=outcome.shape.first_voters if outcome.shape else None,
    )
    return build_status(observed, LeaderHistory([]), generation=5, previous=previous, now=NOW)


async def held_status() -> Manifest:
    """The status once the change waits."""
    api = Applied(before(), settings=FOUNDED)
    return shown(await reconciled(api, changed()), previous={})


async def test_a_stateful_set_that_was_deleted_gets_the_template_in_force() -> None:
    status = await held_status()
    api = Applied(None, settings=FOUNDED)

    outcome = await reconciled(api, changed(**status))

    made = stateful_set(api)
    assert flush_disk_type(made) == "SyncFlush"
    recorded = made["metadata"]["annotations"][names.APPLIED_SPEC_ANNOTATION]
    assert recorded.startswith("4 "), "the change of the spec is still not applied"
    assert outcome.held is not None
    assert outcome.in_force == before().revision
    assert shown(outcome, status)["heldTemplate"] == status["heldTemplate"]


async def test_an_approved_change_is_applied_to_a_stateful_set_that_was_deleted() -> None:
    status = await held_status()
    body = changed(**status)
    wanted = children.revision(Group.from_body(body, IMAGES), SHAPE)
    body["metadata"]["annotations"] = {names.APPROVED_REVISION_ANNOTATION: wanted.name}
    api = Applied(None, settings=FOUNDED)

    outcome = await reconciled(api, body)

    assert flush_disk_type(stateful_set(api)) == "AsyncFlush"
    assert outcome.held is None
    assert "heldTemplate" not in shown(outcome, status)


@pytest.mark.parametrize(
    "recorded",
    [
        None,
        {},
        {"template": ""},
        {"template": "{"},
        {"template": "[" * 100_000},
        {"template": "[]"},
        {"template": '{"spec": null}'},
    ],
)
async def test_without_a_record_the_spec_alone_says_what_pods_are(recorded: Any) -> None:
    api = Applied(None, settings=FOUNDED)

    await reconciled(api, changed(heldTemplate=recorded))

    assert flush_disk_type(stateful_set(api)) == "AsyncFlush"


async def test_the_record_outlives_what_cannot_be_reconciled() -> None:
    status = await held_status()
    paused = changed(**status)
    paused["spec"]["paused"] = True

    outcome = await reconciled(Applied(None, settings=FOUNDED), paused)

    assert shown(outcome, status)["heldTemplate"] == status["heldTemplate"]


async def test_the_stateful_set_counts_more_than_the_record() -> None:
    status = await held_status()
    other = status["heldTemplate"]["template"].replace("SyncFlush", "AsyncFlush")
    api = Applied(before(), settings=FOUNDED)

    await reconciled(api, changed(heldTemplate={**status["heldTemplate"], "template": other}))

    assert flush_disk_type(stateful_set(api)) == "SyncFlush"


async def test_a_record_is_read_as_it_was_written() -> None:
    record = HeldTemplate.of(before())

    assert HeldTemplate.from_status({"heldTemplate": record.to_json()}) == record
