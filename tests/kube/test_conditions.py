"""The conditions of a group."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dledger_formats.http.status import MembershipRole, StorageState
from dledger_kube.objects import NOW, member, membership, node_status, observed_group
from dledger_operator.conditions import of_group
from dledger_operator.observed_state import ObservedEndpoints, ObservedGroup
from dledger_operator.problem import Problem

LATER = NOW + timedelta(minutes=5)


def conditions(
    of: ObservedGroup, previous: list[Any] | None = None, now: Any = NOW
) -> dict[str, Any]:
    built = of_group.build(of, previous=previous or [], now=now, generation=4)
    return {condition["type"]: condition for condition in built}


def verdicts(of: ObservedGroup) -> dict[str, tuple[str, str]]:
    return {kind: (each["status"], each["reason"]) for kind, each in conditions(of).items()}


def two_of_three(**absent: Any) -> ObservedGroup:
    lost = member(2, ready=False, reason="no answer on port 40912", status=None, **absent)
    return observed_group(members=(member(0), member(1), lost))


def test_the_conditions_of_a_healthy_group() -> None:
    assert verdicts(observed_group()) == {
        "Ready": ("True", "LeaderElected"),
        "LeaderElected": ("True", "LeaderElected"),
        "QuorumHealthy": ("True", "AllMembersReady"),
        "EndpointsSynced": ("True", "LeaderOnly"),
        "Degraded": ("False", "AsExpected"),
        "Progressing": ("False", "AsRequested"),
        "LeaderPlaced": ("True", "NoPreference"),
        "AuditPassed": ("Unknown", "NeverAudited"),
        "Paused": ("False", "NotPaused"),
    }
    assert (
        conditions(observed_group())["Ready"]["message"] == "n1 leads term 7; 3 of 3 voters ready"
    )


def test_the_transition_time_changes_only_with_the_status() -> None:
    before = list(conditions(observed_group()).values())

    same = conditions(observed_group(members=two_of_three().members), before, LATER)
    lost = conditions(observed_group(leader=None), before, LATER)

    assert same["QuorumHealthy"]["reason"] == "MajorityReady"
    assert same["QuorumHealthy"]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert lost["LeaderElected"]["lastTransitionTime"] == "2026-01-01T00:05:00Z"
    assert lost["QuorumHealthy"]["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_every_condition_has_the_observed_generation() -> None:
    assert {each["observedGeneration"] for each in conditions(observed_group()).values()} == {4}


def test_a_leader_whose_place_nobody_has_looked_at_is_not_in_the_wrong_one() -> None:
    assert verdicts(observed_group(placement=None))["LeaderPlaced"] == ("Unknown", "Unknown")


def test_a_group_without_a_leader_is_not_ready() -> None:
    verdict = verdicts(observed_group(leader=None))

    assert verdict["Ready"] == verdict["LeaderElected"] == ("False", "NoLeader")


def test_ready_names_the_problem_of_a_pod_for_which_there_is_no_leader() -> None:
    refused = Problem(reason="FailedCreate", message="exceeded quota: team")
    lost = member(2, ready=False, reason="the pod does not exist", status=None, problem=refused)
    members = (member(0), member(1), lost)

    judged = conditions(observed_group(leader=None, members=members))["Ready"]
    led = conditions(observed_group(members=members))["Ready"]

    assert judged["reason"] == "FailedCreate"
    assert "flights-2: FailedCreate: exceeded quota: team" in judged["message"]
    assert led["status"] == "True"


CURES: list[tuple[str, str, str]] = [
    ("FailedCreate", "exceeded quota: team", "raise the namespace's quota"),
    ("FailedCreate", "no PriorityClass with name gold was found", "create the PriorityClass"),
    ("FailedCreate", "denied by webhook", "change what refuses the pod"),
    ("VolumePending", "volume claim data-flights-2 is Pending", "create the storage class"),
    ("VolumeLost", "volume claim data-flights-2 is Lost", "new one with a DLedgerReplace"),
    ("Unschedulable", "0/3 nodes match the node selector", "correct spec.scheduling"),
    (
        "Unschedulable",
        "3 node(s) didn't match PersistentVolume's node affinity",
        "if the volume does not come back, give the member a new one with a DLedgerReplace",
    ),
    ("ErrImagePull", "not found", "correct spec.image"),
    ("ImagePullBackOff", "back-off", "correct spec.image"),
    ("InvalidImageName", "couldn't parse", "correct spec.image"),
]


@pytest.mark.parametrize(("reason", "told", "cure"), CURES)
def test_ready_and_degraded_say_what_to_do_about_a_pod_that_cannot_start(
    reason: str, told: str, cure: str
) -> None:
    problem = Problem(reason=reason, message=told)
    lost = member(2, ready=False, reason="it does not start", status=None, problem=problem)
    members = (member(0), member(1), lost)

    judged = conditions(observed_group(leader=None, members=members))["Ready"]
    served = conditions(observed_group(members=members))["Degraded"]

    assert (judged["status"], judged["reason"]) == ("False", reason)
    assert told in judged["message"]
    assert cure in judged["message"]
    assert served["message"].startswith(f"flights-2: {reason}: {told}; ")
    assert cure in served["message"]


def test_a_cure_is_named_once_and_is_not_cut_off_with_a_long_message() -> None:
    problem = Problem(reason="Unschedulable", message="no node. " * 50)
    lost = [member(k, ready=False, reason="x", status=None, problem=problem) for k in (1, 2)]

    message = conditions(observed_group(members=(member(0), *lost)))["Degraded"]["message"]

    assert len(message) == 1024
    assert message.count("correct spec.scheduling") == 1


def test_a_growing_group_names_what_keeps_a_new_pod_from_starting() -> None:
    problem = Problem(reason="Unschedulable", message="0/3 nodes are available")
    waits = Problem(reason="MemberStarting", message="n3 does not answer yet")
    new = member(
        3, membership=MembershipRole.NONE, ready=False, reason="x", status=None, problem=problem
    )
    growing = observed_group(
        replicas=5, members=(*observed_group().members, new), scaling_problem=waits
    )

    judged = conditions(growing)["Progressing"]

    assert judged["reason"] == "MemberStarting"
    assert (
        "; n3 does not answer yet; flights-3: Unschedulable: 0/3 nodes are available; add a node "
        "that fits, or correct spec.scheduling"
    ) in judged["message"]


def test_two_leaders_of_one_term_have_a_reason_of_their_own() -> None:
    judged = conditions(observed_group(leader=None, disputed=True))["LeaderElected"]

    assert judged["reason"] == "LeaderDisputed"
    assert "audit" in judged["message"]


def test_a_group_with_a_bare_majority_is_ready_and_degraded() -> None:
    verdict = verdicts(two_of_three())

    assert verdict["Ready"][0] == "True"
    assert verdict["QuorumHealthy"] == ("True", "MajorityReady")
    assert verdict["Degraded"] == ("True", "MemberNotReady")


def test_a_volume_that_is_being_deleted_under_a_ready_member_degrades_the_group() -> None:
    danger = Problem(reason="VolumeTerminating", message="volume claim data-flights-2 was deleted")
    members = (member(0), member(1), member(2, danger=danger))

    judged = conditions(observed_group(members=members))

    assert (judged["Degraded"]["status"], judged["Degraded"]["reason"]) == (
        "True", "VolumeTerminating",
    )  # fmt: skip
    assert judged["Ready"]["status"] == "True"


def test_foreign_pods_and_forged_terms_are_named() -> None:
    foreign = conditions(observed_group(foreign_pods=[f"web-{k}" for k in range(7)]))["Degraded"]
    of = observed_group(leader=None, overstated_pods=["flights-0 (9999)"])

    assert foreign["reason"] == "ForeignPods"
    assert "web-4 and 2 more" in foreign["message"]
    assert verdicts(of)["Ready"] == verdicts(of)["LeaderElected"] == ("False", "TermTooHigh")
    assert "flights-0 (9999)" in conditions(of)["Ready"]["message"]


def test_a_healing_member_has_a_reason_of_its_own() -> None:
    healing = replace(node_status("n2"), storage=StorageState.HEALING)
    lost = member(2, ready=False, reason="healing: re-fetching entries 7 to 9", status=healing)

    judged = conditions(observed_group(members=(member(0), member(1), lost)))["Degraded"]

    assert (judged["status"], judged["reason"]) == ("True", "MemberHealing")
    assert judged["message"] == "flights-2: healing: re-fetching entries 7 to 9"


def test_damage_that_a_ready_member_cannot_mend_is_named() -> None:
    waits = replace(
        node_status("n2"), storage=StorageState.HEALING, unmended="entry 7 is damaged. Not mended"
    )

    judged = conditions(observed_group(members=(member(0), member(1), member(2, status=waits))))

    assert (judged["Degraded"]["status"], judged["Degraded"]["reason"]) == (
        "True", "DamageNotMended",
    )  # fmt: skip
    assert judged["Degraded"]["message"] == "flights-2: entry 7 is damaged. Not mended"
    assert judged["Ready"]["status"] == "True"


def test_a_voter_that_came_up_without_its_log_is_named() -> None:
    empty = replace(node_status("n2"), joining=True, ready=False)
    joins = member(2, ready=False, reason="joining: waits for a leader", status=empty)

    judged = conditions(observed_group(members=(member(0), member(1), joins)))["Degraded"]

    assert (judged["status"], judged["reason"]) == ("True", "MemberWithoutLog")
    assert judged["message"].startswith("flights-2: joining: waits for a leader; the log of n2 is")
    assert "find out what happened to its volume" in judged["message"]


def test_a_new_group_whose_members_have_no_log_yet_is_not_degraded() -> None:
    empty = replace(node_status("n2"), joining=True, ready=False)
    joins = member(2, ready=False, reason="joining: waits for a leader", status=empty)

    of = observed_group(members=(member(0), member(1), joins), starting=True)

    assert conditions(of)["Degraded"]["reason"] == "Starting"


def test_a_group_without_a_majority_is_not_ready() -> None:
    lost = [member(k, ready=False, reason="the pod does not exist", exists=False) for k in (0, 2)]
    judged = conditions(observed_group(members=(lost[0], member(1), lost[1])))

    assert (judged["Ready"]["status"], judged["Ready"]["reason"]) == ("False", "QuorumLost")
    assert "n0: the pod does not exist" in judged["QuorumHealthy"]["message"]


def test_a_group_with_wrong_endpoints_is_not_ready() -> None:
    wrong = ObservedEndpoints(synced=False, reason="WrongEndpoints", message="n0")

    assert verdicts(observed_group(endpoints=wrong))["Ready"] == ("False", "WrongEndpoints")


def test_a_spec_that_was_not_applied_takes_precedence() -> None:
    problem = Problem(reason="InvalidSpec", message="spec.replicas is 2; nothing was changed")

    judged = conditions(observed_group(problem=problem, leader=None))["Ready"]

    assert (judged["status"], judged["reason"]) == ("False", "InvalidSpec")
    assert judged["message"] == problem.message


def test_a_problem_of_a_pod_is_the_reason_of_degraded() -> None:
    problem = Problem(reason="ImagePullBackOff", message="no such image")

    judged = conditions(two_of_three(problem=problem))["Degraded"]

    assert judged["reason"] == "ImagePullBackOff"
    assert judged["message"].startswith("flights-2: ImagePullBackOff: no such image; correct")


def test_a_problem_of_a_ready_member_is_ignored() -> None:
    recovered = member(2, problem=Problem(reason="CrashLoopBackOff", message="before"))

    members = (member(0), member(1), recovered)
    assert verdicts(observed_group(members=members))["Degraded"][0] == "False"


def test_a_group_in_its_startup_grace_period_is_not_degraded() -> None:
    young = observed_group(members=two_of_three().members, starting=True)

    assert verdicts(young)["Degraded"] == ("False", "Starting")


def test_a_part_of_the_spec_that_cannot_be_applied_degrades_the_group() -> None:
    warning = Problem(reason="Stalled", message="the volumes keep 1Gi")

    assert verdicts(observed_group(warning=warning))["Degraded"] == ("True", "Stalled")


def test_a_paused_group_stays_ready() -> None:
    verdict = verdicts(observed_group(paused=True))

    assert verdict["Paused"] == ("True", "PausedByUser")
    assert verdict["Ready"][0] == "True"


@pytest.mark.parametrize("part", ["LeaderElected", "QuorumHealthy", "EndpointsSynced"])
def test_ready_implies_its_parts(part: str) -> None:
    wrong = ObservedEndpoints(synced=False, reason="NoEndpoints", message="")
    lost = tuple(member(k, ready=False, reason="gone") for k in range(3))
    for leader in (None, observed_group().leader):
        for endpoints in (wrong, observed_group().endpoints):
            for members in (lost, observed_group().members, two_of_three().members):
                verdict = verdicts(
                    observed_group(leader=leader, endpoints=endpoints, members=members)
                )
                assert verdict["Ready"][0] == "False" or verdict[part][0] == "True"


def test_messages_are_truncated() -> None:
    long = Problem(reason="Error", message="x" * 10_000)

    assert len(conditions(observed_group(problem=long))["Ready"]["message"]) <= 1024


def test_a_growing_group_lists_what_is_left_and_what_blocks_it() -> None:
    refused = Problem(reason="FallBehindTooMuch", message="the leader refuses PROMOTE n3")
    growing = observed_group(
        replicas=5,
        membership=membership(3, learners=("n3",)),
        members=(
            *observed_group().members,
            member(3, membership=MembershipRole.LEARNER, ready=False, reason="joining"),
            member(4, membership=MembershipRole.NONE, ready=False, reason="not added yet"),
        ),
        scaling_problem=refused,
    )

    judged = conditions(growing)

    assert judged["Progressing"]["status"] == "True"
    assert judged["Progressing"]["reason"] == "FallBehindTooMuch"
    assert judged["Progressing"]["message"] == (
        "the group has 3 voters; spec.replicas is 5; to add: n3, n4; the leader refuses PROMOTE n3"
    )
    assert verdicts(growing)["QuorumHealthy"] == ("True", "AllMembersReady")
    assert verdicts(growing)["Degraded"][0] == "False", "members that do not vote do not count"


def test_a_group_is_shrinking_until_the_last_extra_pod_is_gone() -> None:
    leaving = observed_group(
        members=(*observed_group().members, member(3, membership=MembershipRole.NONE))
    )

    assert verdicts(leaving)["Progressing"] == ("True", "Shrinking")
    assert conditions(leaving)["Progressing"]["message"].endswith("to remove: n3")


def test_a_paused_group_gives_the_reason_why_it_is_not_scaled() -> None:
    assert verdicts(observed_group(replicas=5, paused=True))["Progressing"] == ("True", "Paused")


def test_progressing_names_the_pods_that_are_behind_and_why() -> None:
    why = "flush SyncFlush to AsyncFlush"
    one_behind = observed_group(members=(member(0), member(1), member(2, behind=why)))

    judged = conditions(one_behind)

    assert verdicts(one_behind)["Progressing"] == ("True", "RollingOut")
    assert judged["Progressing"]["message"].endswith(f": flights-2 ({why})")
    assert judged["Ready"]["status"] == "True", "a pod runs what the spec asks for"


@pytest.mark.parametrize(("paused", "reason"), [(False, "NotRolledOut"), (True, "Paused")])
def test_a_spec_that_no_pod_runs_is_not_ready(paused: bool, reason: str) -> None:
    behind = tuple(member(k, behind="image a to b") for k in range(3))
    of = observed_group(members=(*behind, member(3, exists=False)), paused=paused)

    assert verdicts(of)["Ready"] == ("False", reason)
    assert "flights-0 (image a to b)" in conditions(of)["Ready"]["message"]
    assert verdicts(of)["Progressing"][0] == "True"


def test_learners_do_not_count_towards_a_majority() -> None:
    lost = [member(k, ready=False, reason="gone") for k in (1, 2)]
    learners = [member(k, membership=MembershipRole.LEARNER) for k in (3, 4)]

    judged = observed_group(
        membership=membership(3, learners=("n3", "n4")), members=(member(0), *lost, *learners)
    )

    assert verdicts(judged)["QuorumHealthy"] == ("False", "QuorumLost")
    assert judged.quorum_slack == -1
