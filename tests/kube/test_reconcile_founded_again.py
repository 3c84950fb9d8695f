"""Reconciling a group that is founded again, with fewer first voters."""

from dledger_kube.applied import Applied
from dledger_kube.objects import IMAGES, NOW, group, group_body, pod
from dledger_operator.api_objects import ChildView, OwnerView, SettingsView, VolumeClaimView
from dledger_operator.behaviors.children.reconcile import reconcile
from dledger_operator.resources import config_map
from dledger_operator.spec.shape import Shape

CLAIM = VolumeClaimView(
    name="data-flights-0", ordinal=0, first_voters=5, identity="", leaving=False, problem=None
)


def founded_again(first_voters: int, superseded: int) -> SettingsView:
    data = config_map.founding(group(), Shape.of_new(first_voters))
    return SettingsView(data=data, resource_version="41", superseded=frozenset({superseded}))


async def test_a_group_is_founded_again_once_the_pods_of_its_first_founding_are_gone() -> None:
    api = Applied(settings=founded_again(3, superseded=5), claims=[CLAIM])
    api.pods = [pod(4, leaving=True)]

    waiting = await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)
    api.pods = []
    begun = await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)

    assert waiting.problem is not None
    assert "the pods of its earlier StatefulSet are gone: flights-4" in waiting.problem.message
    assert waiting.waits
    assert begun.shape is not None
    assert (begun.shape.first_voters, begun.shape.pods) == (3, 3)
    made = next(each for each in api.manifests if each["kind"] == "StatefulSet")
    assert made["spec"]["replicas"] == 3
    assert api.corrected == {CLAIM.name: 3}


async def test_the_records_of_a_founding_are_written_only_over_those_that_were_read() -> None:
    """Another process may have founded the group again meanwhile."""
    settings = ChildView(
        kind="ConfigMap", name="flights-settings", uid="u", leaving=False, labels={},
        owners=[OwnerView(kind="DLedgerGroup", name="flights", uid=group().uid)],
    )  # fmt: skip
    api = Applied(settings=founded_again(3, superseded=5), found=[settings])

    await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)

    sent = next(each for each in api.sent if each["kind"] == "ConfigMap")
    assert sent["metadata"]["resourceVersion"] == "41"
