"""Volume claims of a living group that are being deleted: its StatefulSet stays, or is made again.

A claim that a pod uses goes only with the pod. On a lost node, that may take days.
"""

from dataclasses import dataclass, field, replace

import pytest

from dledger_formats.settings import GroupState
from dledger_kube.applied import Applied
from dledger_kube.objects import IMAGES, NOW, group, group_body
from dledger_operator import names
from dledger_operator.api_objects import SettingsView, StatefulSetView, VolumeClaimView
from dledger_operator.behaviors.children.reconcile import reconcile
from dledger_operator.behaviors.founding.founding import FoundingRecords
from dledger_operator.behaviors.volumes.recreation import recreate_if_outgrown
from dledger_operator.clients.errors import RefusedError
from dledger_operator.resources import children, config_map
from dledger_operator.spec.shape import Shape

GROUP = group(storage={"size": "40Gi"})
WANTED = children.revision(GROUP, Shape.of_new(3))


def settings(state: GroupState = GroupState.EXISTING, note: str = "") -> SettingsView:
    """The ConfigMap of a group with three first voters."""
    shape = replace(Shape.of_new(3), state=state)
    return SettingsView(data=config_map.founding(GROUP, shape), note=note)


def claims(*leaving: int) -> list[VolumeClaimView]:
    """The claims of four ordinals, of which some are being deleted."""
    return [
        VolumeClaimView(
            name=f"data-flights-{ordinal}", ordinal=ordinal, first_voters=3, identity="",
            leaving=ordinal in leaving, problem=None, volume="v",
        )
        for ordinal in range(4)
    ]  # fmt: skip


@dataclass
class Outgrown:
    """An API server with a StatefulSet whose claim templates are smaller than the spec."""

    made: StatefulSetView = field(
        default_factory=lambda: StatefulSetView(
            namespace="air", name="flights", uid="made", resource_version="1", replicas=3,
            first_voters=3, identity="", revision=WANTED,
            volume_claim_templates=[
                {"spec": {"resources": {"requests": {"storage": "30Gi"}}}},
            ],
        )
    )  # fmt: skip
    notes: list[str | None] = field(default_factory=list)
    orphaned: bool = False

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView:
        return self.made

    async def note_replicas(self, namespace: str, config_map: str, note: str | None) -> None:
        self.notes.append(note)

    async def orphan_stateful_set(self, stateful_set: StatefulSetView) -> None:
        self.orphaned = True

    async def look(self, found: list[VolumeClaimView], note: str = "") -> None:
        records = FoundingRecords(
            settings=settings(note=note), stateful_set=self.made, claims=(), status={}
        )
        await recreate_if_outgrown(self, GROUP, records, WANTED, found)


async def test_a_stateful_set_is_not_made_again_while_the_claim_of_a_member_goes() -> None:
    api = Outgrown()

    await api.look(claims(1))
    assert (api.orphaned, api.notes) == (False, [])
    await api.look(claims(3))

    assert (api.orphaned, api.notes) == (True, ["3"]), "no pod needs the claim of a former member"


async def test_the_note_of_a_stateful_set_that_stays_for_a_claim_is_removed() -> None:
    api = Outgrown()

    await api.look(claims(1), note="5")

    assert (api.orphaned, api.notes) == (False, [None])


class Guarded(Applied):
    """A webhook keeps StatefulSets from being deleted."""

    async def note_replicas(self, *_: object) -> None:
        """Write the note."""

    async def orphan_stateful_set(self, *_: object) -> None:
        raise RefusedError("delete StatefulSet air/flights: a webhook denied the request")


async def test_a_stateful_set_that_may_not_be_deleted_is_a_warning_and_the_spec_is_in_effect() -> (
    None
):
    """The size cannot be reduced again, so a group that does nothing else would be stuck."""
    body = group_body({"storage": {"size": "40Gi"}})
    api = Guarded(Outgrown().made, settings=settings(), claims=claims())

    outcome = await reconcile(api, body, IMAGES, now=NOW, led=True, voters=3)

    assert (outcome.problem, outcome.shape is None) == (None, False)
    assert outcome.warning is not None
    assert outcome.warning.reason == "ChildRefused"
    assert "flights: a webhook denied the request" in outcome.warning.message


@pytest.mark.parametrize("led", [True, False], ids=["led", "after a loss of the status"])
async def test_a_lost_stateful_set_of_a_group_that_has_begun_is_made_although_a_claim_goes(
    led: bool,
) -> None:
    api = Applied(settings=settings(note="3"), claims=claims(1))

    outcome = await reconcile(api, group_body(), IMAGES, now=NOW, led=led, voters=3)

    assert outcome.problem is None
    assert api.kinds[-1] == "StatefulSet"
    assert api.manifests[-1]["spec"]["replicas"] == 3


async def test_a_group_that_has_begun_waits_for_the_claims_that_a_deleted_group_takes_along() -> (
    None
):
    owner = {"kind": names.GROUP_KIND, "name": "flights", "uid": "former-uid"}
    found = [replace(each, owner_references=[owner]) for each in claims(1)]
    api = Applied(settings=settings(), claims=found)

    outcome = await reconcile(api, group_body(), IMAGES, now=NOW, led=True, voters=3)

    assert api.manifests == []
    assert outcome.waits


async def test_a_group_that_is_being_founded_waits_for_claims_that_go() -> None:
    api = Applied(settings=settings(GroupState.NEW), claims=claims(1))

    outcome = await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)

    assert api.manifests == []
    assert outcome.waits
