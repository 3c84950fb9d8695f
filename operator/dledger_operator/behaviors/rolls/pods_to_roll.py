"""Combines a group's pods with their members' answers into the input of a roll. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dledger_formats.http.status import NodeStatus
from dledger_formats.settings import GroupState
from dledger_operator import names, reasons
from dledger_operator.api_objects import CreationFailure, PodView, VolumeClaimView
from dledger_operator.behaviors.founding.empty_members import holds_nothing
from dledger_operator.behaviors.members.membership import proven_leader, reported_membership
from dledger_operator.behaviors.rolls.roll_state import LEADERLESS_S_MIN, RollPod, RollState
from dledger_operator.observed_state import Membership
from dledger_operator.problem import Problem
from dledger_operator.spec.revision import Revision, why_behind
from dledger_operator.spec.seed import SeedSpec


def roll_state(
    pods: Sequence[PodView],
    answers: Mapping[str, NodeStatus],
    wanted: Revision | None,
    membership: Membership,
    *,
    led: bool,
    scaling: bool,
    begins: bool = False,
    claims: Sequence[VolumeClaimView] = (),
    staying: frozenset[str] | None = None,
    emptied: frozenset[str] = frozenset(),
    template_hash: str = "",
    since_s: Mapping[str, float] = MappingProxyType({}),
    leaderless_s_min: float = LEADERLESS_S_MIN,
    seed: SeedSpec | None = None,
    refused: Mapping[str, Problem] = MappingProxyType({}),
    awaited_s: Mapping[str, float] = MappingProxyType({}),
) -> RollState:
    """Return the state of a roll to the revision `wanted`. `answers` are by pod uid. `begins`
    says that the settings must let members begin the group. `emptied` has the uids of the pods
    whose nodes are being emptied. `template_hash` is that of the template which makes pods of
    `wanted`; `since_s` has by pod uid for how many seconds the pod has been ready, or not ready.
    `seed` is the spec's. `refused` and `awaited_s` are as in `RollState`.
    """
    leaving = {claim.name for claim in claims if claim.leaving}
    pending = {claim.name: claim.problem for claim in claims if claim.problem}
    known = {pod.uid: answers[pod.uid] for pod in pods if pod.uid in answers}
    leading = proven_leader(list(known.values()))
    return RollState(
        pods=[
            replace(
                _pod(
                    pod,
                    known.get(pod.uid),
                    leading,
                    _behind(pod, wanted, begins),
                    template_hash,
                    seed,
                ),
                emptied=pod.uid in emptied,
                # The scheduler says of a pod only that its claim is not bound, not why.
                problem=pod.problem and (pending.get(names.volume_claim(pod.name)) or pod.problem),
                volume_leaving=names.volume_claim(pod.name) in leaving,
                ready_s=since_s.get(pod.uid, 0.0) if pod.ready else 0.0,
                unready_s=0.0 if pod.ready else since_s.get(pod.uid, 0.0),
            )
            for pod in pods
        ],
        leader_id=leading.self_id if leading else None,
        voters=reported_membership([leading] if leading else [], membership).voters,
        led=led or any(answer.master for answer in known.values()),
        scaling=scaling,
        staying=staying,
        leaderless_s_min=leaderless_s_min,
        refused=refused,
        awaited_s=awaited_s,
    )


def refused_pods(group_name: str, failures: Sequence[CreationFailure]) -> dict[str, Problem]:
    """Return by member id why pods could not be created. `failures` are the latest first."""
    members = {
        names.pod(group_name, ordinal): names.member_id(ordinal)
        for ordinal in range(names.REPLICAS_MAX)
    }
    return {
        members[each.pod]: Problem(reason=reasons.FAILED_CREATE, message=each.message)
        for each in reversed(failures)
        if each.pod in members
    }


def _pod(
    pod: PodView,
    answer: NodeStatus | None,
    leading: NodeStatus | None,
    behind: str,
    template_hash: str,
    seed: SeedSpec | None,
) -> RollPod:
    healthy = pod.ready and answer is not None and answer.ready and not pod.leaving
    return RollPod(
        name=pod.name,
        uid=pod.uid,
        member_id=pod.member_id,
        behind=behind,
        leaving=pod.leaving,
        runs=pod.runs,
        healthy=healthy,
        blank=answer is not None and is_blank(answer, seed),
        altered=bool(behind and template_hash and pod.template_hash == template_hash),
        lag_entries=leading.lacks_committed(pod.member_id) if leading else None,
        reason=answer.reason if answer else "",
    )


def _behind(pod: PodView, wanted: Revision | None, begins: bool) -> str:
    may_begin = pod.founding == GroupState.NEW.value
    why = why_behind(pod.revision, wanted) if wanted else ""
    return why or (
        "" if may_begin or not begins else "its member has no instruction to begin the group"
    )


def blank_claims(
    claims: Sequence[VolumeClaimView],
    pods: Sequence[PodView],
    answers: Mapping[str, NodeStatus],
    seed: SeedSpec | None,
) -> frozenset[str]:
    """Return the names of the volume claims whose members are blank (`is_blank`)."""
    holders = {
        names.volume_claim(pod.name): answers.get(pod.uid) for pod in pods if not pod.leaving
    }
    held = [(claim, holders.get(claim.name)) for claim in claims if not claim.leaving]
    return frozenset(claim.name for claim, answer in held if answer and is_blank(answer, seed))


def is_blank(answer: NodeStatus, seed: SeedSpec | None) -> bool:
    """Return whether a member reports that it has promised nothing and its volume holds nothing,
    or nothing but the archive that its group is to begin with, by `seed` of the spec.
    """
    if answer.seed_sha256 and not (seed and seed.copy_sha256 in ("", answer.seed_sha256)):
        return False  # the copy of an earlier group of this name
    return answer.joining and holds_nothing(answer)
