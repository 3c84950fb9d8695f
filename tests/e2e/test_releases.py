"""The image of the previous release and that of this one, in one group on the cluster."""

from collections.abc import Callable

import pytest

from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost, assert_pauses_are_short, summary
from dledger_e2e.pod_watch import PodWatch
from dledger_e2e.rolls import ROLLED_S
from dledger_e2e.waiting import wait_for
from dledger_must_run.lacking import skip_or_fail
from tools.deployment import Deployment
from tools.groups.releases import ReleaseMissingError, previous_checkout
from tools.local_cluster import images

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(2, among="planned changes on the cluster"),
]

PREVIOUS_TAG = "previous"
PAUSE_S_MAX = 10.0


@pytest.fixture
def previous(deployed: Deployment, make_group: Callable[..., Group]) -> Group:
    """Three ready members of the previous release, made by this release's operator.

    That release has no administration tokens.
    """
    if deployed.local is None:
        pytest.skip("an image can be given to the nodes of the local cluster only")
    try:
        checkout = previous_checkout()
    except ReleaseMissingError as error:
        skip_or_fail(str(error))
    for name in images.build(["node"], context=checkout, tag=PREVIOUS_TAG):
        deployed.local.load(name)
    group = make_group(image={"tag": PREVIOUS_TAG}, adminToken={"required": False})
    group.start_client()
    group.wait_until_ready()
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
    return group


def test_a_group_of_the_previous_image_is_rolled_to_this_one_and_back_under_load(
    previous: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    group, gaps_s = previous, []
    present = group.deployment.image_tag
    with PodWatch(group) as watch, Load(group, per_second=500) as load:
        for tag in (present, PREVIOUS_TAG):
            load.wait_for_more(500)
            since = len(load.acknowledged)
            group.change(image={"tag": tag})
            wait_for(group.is_as_asked, f"every pod runs the image {tag}", ROLLED_S)
            load.wait_for_more(500)
            gaps_s.append(load.longest_pause_s(since))
            found = {each["image"].rpartition(":")[2] for each in group.status()["members"]}
            assert found == {tag}

    with capsys.disabled():
        print(f"\nto this release and back: {summary(gaps_s)}")
    assert (load.refused, load.unknown) == (0, 0), load.failures
    assert_pauses_are_short(gaps_s, PAUSE_S_MAX)
    assert watch.fewest_up >= 2, "one member at a time"
    assert not watch.double_masters
    assert_nothing_was_lost(group, load)
