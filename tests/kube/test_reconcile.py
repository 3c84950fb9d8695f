"""Making the objects that a group consists of."""

from typing import Any

import pytest

from dledger_kube.objects import IMAGES, group, group_body
from dledger_operator.behaviours.reconcile import reconcile
from dledger_operator.kube.errors import RefusedError, UnavailableError
from dledger_operator.resources import children
from dledger_operator.views import Manifest


class Applied:
    """An API that remembers what was applied, and refuses what a test names."""

    def __init__(self, existing: list[Manifest] | None = None, refuse: str = "") -> None:
        self.existing = existing
        self.refuse = refuse
        self.manifests: list[Manifest] = []

    async def apply(self, manifest: Manifest) -> None:
        if manifest["metadata"]["name"] == self.refuse:
            raise RefusedError(f"{self.refuse}: spec is invalid")
        self.manifests.append(manifest)

    async def volume_claim_templates(
        self, namespace: str, stateful_set: str
    ) -> list[Manifest] | None:
        assert (namespace, stateful_set) == ("air", "flights")
        return self.existing

    @property
    def kinds(self) -> list[str]:
        return [manifest["kind"] for manifest in self.manifests]

    @property
    def claims(self) -> list[Manifest]:
        found: list[Manifest] = self.manifests[-1]["spec"]["volumeClaimTemplates"]
        return found


def claims(size: str, **metadata: Any) -> list[Manifest]:
    """What the API server made of a volume claim template when the group was young."""
    return [
        {
            "metadata": {"name": "data", **metadata},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": "Filesystem",
                "resources": {"requests": {"storage": size}},
            },
            "status": {"phase": "Pending"},
        }
    ]


async def test_every_child_is_applied_and_the_pods_come_last() -> None:
    api = Applied()

    outcome = await reconcile(api, group_body(), IMAGES)

    assert api.manifests == children.build(group())
    assert api.kinds[-1] == "StatefulSet"
    assert (outcome.generation, outcome.problem, outcome.warning) == (4, None, None)


async def test_a_spec_that_cannot_be_read_changes_nothing() -> None:
    api = Applied()

    outcome = await reconcile(api, group_body({"replicas": 2}), IMAGES)

    assert api.manifests == []
    assert outcome.problem is not None
    assert outcome.problem.reason == "InvalidSpec"
    assert "spec.replicas is 2" in outcome.problem.message


async def test_a_paused_group_is_left_alone() -> None:
    api = Applied()

    outcome = await reconcile(api, group_body({"paused": True}), IMAGES)

    assert api.manifests == []
    assert (outcome.generation, outcome.problem) == (4, None)


async def test_one_refused_child_does_not_keep_the_others_back() -> None:
    api = Applied(refuse="flights-slave")

    outcome = await reconcile(api, group_body(), IMAGES)

    assert len(api.manifests) == len(children.build(group())) - 1
    assert api.kinds[-1] == "StatefulSet"
    assert outcome.problem is not None
    assert outcome.problem.reason == "ChildRefused"
    assert "flights-slave: spec is invalid" in outcome.problem.message


async def test_a_server_that_cannot_answer_is_tried_again_later() -> None:
    class Down(Applied):
        async def apply(self, manifest: Manifest) -> None:
            raise UnavailableError("no answer")

    with pytest.raises(UnavailableError):
        await reconcile(Down(), group_body(), IMAGES)


async def test_what_a_stateful_set_cannot_change_is_sent_as_it_is() -> None:
    existing = claims("10240Mi", labels={"made-by": "an older operator"})
    api = Applied(existing)

    outcome = await reconcile(api, group_body(), IMAGES)

    assert api.claims == existing
    assert outcome.warning is None


async def test_volumes_that_differ_from_the_spec_are_warned_of_and_stop_nothing_else() -> None:
    api = Applied(claims("5Gi"))

    outcome = await reconcile(api, group_body(), IMAGES)

    assert api.claims == claims("5Gi")
    assert outcome.problem is None
    assert outcome.warning is not None
    assert outcome.warning.reason == "StorageUnchanged"
    assert "5Gi" in outcome.warning.message
