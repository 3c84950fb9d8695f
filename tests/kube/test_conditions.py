"""The conditions of a group."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dledger_formats.http.status import MembershipRole, StorageState
from dledger_kube.objects import NOW, electorate, facts, member, node_status
from dledger_operator.conditions import of_group
from dledger_operator.facts import EndpointsFacts, GroupFacts
from dledger_operator.views import Trouble

LATER = NOW + timedelta(minutes=5)


def conditions(of: GroupFacts, previous: list[Any] | None = None, now: Any = NOW) -> dict[str, Any]:
    built = of_group.build(of, previous=previous or [], now=now, generation=4)
    return {condition["type"]: condition for condition in built}


def verdicts(of: GroupFacts) -> dict[str, tuple[str, str]]:
    return {kind: (each["status"], each["reason"]) for kind, each in conditions(of).items()}


def two_of_three(**absent: Any) -> GroupFacts:
    lost = member(2, ready=False, reason="no answer on port 40912", status=None, **absent)
    return facts(members=(member(0), member(1), lost))


def test_a_group_that_is_well_says_so() -> None:
    assert verdicts(facts()) == {
        "Ready": ("True", "LeaderElected"),
        "LeaderElected": ("True", "LeaderElected"),
        "QuorumHealthy": ("True", "AllMembersReady"),
        "EndpointsSynced": ("True", "LeaderOnly"),
        "Degraded": ("False", "AsExpected"),
        "Progressing": ("False", "AsRequested"),
        "Paused": ("False", "NotPaused"),
    }
    assert conditions(facts())["Ready"]["message"] == "n1 leads term 7; 3 of 3 voters ready"


def test_the_transition_time_moves_only_with_the_status() -> None:
    before = list(conditions(facts()).values())

    same = conditions(facts(members=two_of_three().members), before, LATER)
    lost = conditions(facts(leader=None), before, LATER)

    assert same["QuorumHealthy"]["reason"] == "MajorityReady"
    assert same["QuorumHealthy"]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert lost["LeaderElected"]["lastTransitionTime"] == "2026-01-01T00:05:00Z"
    assert lost["QuorumHealthy"]["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_every_condition_names_the_generation_that_it_is_about() -> None:
    assert {each["observedGeneration"] for each in conditions(facts()).values()} == {4}


def test_a_group_without_a_leader_is_not_ready() -> None:
    verdict = verdicts(facts(leader=None))

    assert verdict["Ready"] == verdict["LeaderElected"] == ("False", "NoLeader")


def test_two_leaders_of_one_term_are_told_apart_from_none() -> None:
    judged = conditions(facts(leader=None, disputed=True))["LeaderElected"]

    assert judged["reason"] == "LeaderDisputed"
    assert "audit" in judged["message"]


def test_a_group_with_a_bare_majority_is_ready_and_degraded() -> None:
    verdict = verdicts(two_of_three())

    assert verdict["Ready"][0] == "True"
    assert verdict["QuorumHealthy"] == ("True", "MajorityReady")
    assert verdict["Degraded"] == ("True", "MemberNotReady")


def test_a_member_that_heals_needs_nobody() -> None:
    healing = replace(node_status("n2"), storage=StorageState.HEALING)
    lost = member(2, ready=False, reason="healing: re-fetching entries 7 to 9", status=healing)

    judged = conditions(facts(members=(member(0), member(1), lost)))["Degraded"]

    assert (judged["status"], judged["reason"]) == ("True", "MemberHealing")
    assert judged["message"] == "flights-2: healing: re-fetching entries 7 to 9"


def test_a_group_without_a_majority_is_not_ready() -> None:
    lost = [member(k, ready=False, reason="there is no pod", exists=False) for k in (0, 2)]
    judged = conditions(facts(members=(lost[0], member(1), lost[1])))

    assert (judged["Ready"]["status"], judged["Ready"]["reason"]) == ("False", "QuorumLost")
    assert "n0: there is no pod" in judged["QuorumHealthy"]["message"]


def test_a_group_whose_service_leads_elsewhere_is_not_ready() -> None:
    wrong = EndpointsFacts(synced=False, reason="WrongEndpoints", message="n0 it is")

    assert verdicts(facts(endpoints=wrong))["Ready"] == ("False", "WrongEndpoints")


def test_a_spec_that_was_not_applied_comes_before_everything_else() -> None:
    problem = Trouble(reason="InvalidSpec", message="spec.replicas is 2; nothing was changed")

    judged = conditions(facts(problem=problem, leader=None))["Ready"]

    assert (judged["status"], judged["reason"]) == ("False", "InvalidSpec")
    assert judged["message"] == problem.message


def test_a_pod_s_own_trouble_is_the_reason_of_degraded() -> None:
    trouble = Trouble(reason="ImagePullBackOff", message="no such image")

    judged = conditions(two_of_three(trouble=trouble))["Degraded"]

    assert judged["reason"] == "ImagePullBackOff"
    assert judged["message"] == "flights-2: ImagePullBackOff: no such image"


def test_trouble_of_a_member_that_is_ready_again_is_past() -> None:
    over = member(2, trouble=Trouble(reason="CrashLoopBackOff", message="before"))

    assert verdicts(facts(members=(member(0), member(1), over)))["Degraded"][0] == "False"


def test_a_young_group_is_starting_and_not_degraded() -> None:
    young = facts(members=two_of_three().members, starting=True)

    assert verdicts(young)["Degraded"] == ("False", "Starting")


def test_a_part_of_the_spec_that_cannot_be_had_degrades() -> None:
    warning = Trouble(reason="StorageUnchanged", message="the volumes keep 1Gi")

    assert verdicts(facts(warning=warning))["Degraded"] == ("True", "StorageUnchanged")


def test_a_paused_group_says_that_it_is_and_stays_ready() -> None:
    verdict = verdicts(facts(paused=True))

    assert verdict["Paused"] == ("True", "PausedByUser")
    assert verdict["Ready"][0] == "True"


@pytest.mark.parametrize("part", ["LeaderElected", "QuorumHealthy", "EndpointsSynced"])
def test_ready_implies_its_parts(part: str) -> None:
    wrong = EndpointsFacts(synced=False, reason="NoEndpoints", message="")
    lost = tuple(member(k, ready=False, reason="gone") for k in range(3))
    for leader in (None, facts().leader):
        for endpoints in (wrong, facts().endpoints):
            for members in (lost, facts().members, two_of_three().members):
                verdict = verdicts(facts(leader=leader, endpoints=endpoints, members=members))
                assert verdict["Ready"][0] == "False" or verdict[part][0] == "True"


def test_messages_have_a_limit() -> None:
    long = Trouble(reason="Error", message="x" * 10_000)

    assert len(conditions(facts(problem=long))["Ready"]["message"]) <= 1024


def test_a_group_that_grows_says_how_far_it_is_and_what_is_in_its_way() -> None:
    refused = Trouble(reason="FallBehindTooMuch", message="the leader refuses to PROMOTE n3")
    growing = facts(
        replicas=5,
        electorate=electorate(3, learners=("n3",)),
        members=(
            *facts().members,
            member(3, membership=MembershipRole.LEARNER, ready=False, reason="joining"),
            member(4, membership=MembershipRole.NONE, ready=False, reason="not added yet"),
        ),
        obstacle=refused,
    )

    judged = conditions(growing)

    assert judged["Progressing"]["status"] == "True"
    assert judged["Progressing"]["reason"] == "FallBehindTooMuch"
    assert judged["Progressing"]["message"] == (
        "3 of 5 members vote; to come: n3, n4; the leader refuses to PROMOTE n3"
    )
    assert verdicts(growing)["QuorumHealthy"] == ("True", "AllMembersReady")
    assert verdicts(growing)["Degraded"][0] == "False", "who does not vote yet has not fallen"


def test_a_group_shrinks_until_the_last_pod_is_gone() -> None:
    leaving = facts(members=(*facts().members, member(3, membership=MembershipRole.NONE)))

    assert verdicts(leaving)["Progressing"] == ("True", "Shrinking")
    assert conditions(leaving)["Progressing"]["message"].endswith("to go: n3")


def test_a_paused_group_is_not_scaled_and_says_so() -> None:
    assert verdicts(facts(replicas=5, paused=True))["Progressing"] == ("True", "Paused")


def test_a_majority_is_one_of_voters() -> None:
    lost = [member(k, ready=False, reason="gone") for k in (1, 2)]
    learners = [member(k, membership=MembershipRole.LEARNER) for k in (3, 4)]

    judged = facts(
        electorate=electorate(3, learners=("n3", "n4")), members=(member(0), *lost, *learners)
    )

    assert verdicts(judged)["QuorumHealthy"] == ("False", "QuorumLost")
    assert judged.quorum_slack == -1
