"""A group of three whose leadership moves, with a fake API server and fake members."""

import copy
from dataclasses import dataclass, field
from typing import Any, cast

from dledger_formats.http.status import NodeStatus, PeerStatus, Role
from dledger_formats.protocol.codes import DLedgerResponseCode as Code
from dledger_formats.protocol.leadership_transfer import LeadershipTransferResponse
from dledger_kube.objects import STATEFUL_SET_UID, group_body, node_status, pod
from dledger_kube.one_off_world import Object, OneOffWorld, one_off_body
from dledger_operator.api_objects import EndpointView, PodView, StatefulSetView
from dledger_operator.behaviors.handover.switchover import SwitchoverWorker
from dledger_operator.clients.errors import MemberSilentError
from dledger_operator.observed_state import Leader
from dledger_operator.spec.revision import Revision


def switchover_body(name: str = "move", uid: str = "", **spec: Any) -> Object:
    """Return a DLedgerSwitchover of the group `flights` to n2."""
    return one_off_body("DLedgerSwitchover", name, uid, {"target": "n2", **spec})


@dataclass(slots=True)
class SwitchoverWorld(OneOffWorld):
    """A group of three and its switchovers. Tests change the fields to play all other actors."""

    leader: str | None = "n1"
    term: int = 7
    silent: set[str] = field(default_factory=set)
    unready: set[str] = field(default_factory=set)
    lags: dict[str, int] = field(default_factory=dict)
    """How many committed entries a member lacks."""
    learners: set[str] = field(default_factory=set)
    old_pods: set[str] = field(default_factory=set)
    """Members whose pods do not have the template's revision."""
    changing: bool = False
    """Whether a change of members is not committed yet."""
    in_service: str | None = "n1"
    """The member that the master Service points to."""
    service_stuck: bool = False
    refuses_next: int = 0
    """Number of next transfers that the leader refuses."""
    answers_lost: int = 0
    """Number of next transfers that take effect and get no answer."""
    transfers: list[tuple[float, str, str]] = field(default_factory=list)
    """The requested transfers: time, leader and target."""

    def worker(self, uid: str) -> SwitchoverWorker:
        """Return the worker of an operator that has just started."""
        return SwitchoverWorker(copy.deepcopy(self.objects[uid]), self.context(), lambda: None)

    def pass_time(self, seconds: float) -> None:
        """Let time pass; the Service follows the leader."""
        OneOffWorld.pass_time(self, seconds)
        if not self.service_stuck:
            self.in_service = self.leader

    def able(self, member_id: str) -> bool:
        """Return whether a member could take the leadership."""
        unable = self.silent | self.unready | self.learners
        return member_id not in unable and self.lags.get(member_id, 0) <= 1000

    def elect(self, member_id: str | None) -> None:
        """Make a member the leader of a new term."""
        self.leader, self.term = member_id, self.term + 1

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView:
        """Get the StatefulSet."""
        view = StatefulSetView(
            namespace=namespace, name=name, uid=STATEFUL_SET_UID, resource_version="1", replicas=3,
            first_voters=3, identity="", volume_claim_templates=[],
            revision=Revision(parts={"image": "new"}),
        )  # fmt: skip
        return cast("StatefulSetView", self.request(lambda: view))

    async def member_pods(self, namespace: str, group: str) -> list[PodView]:
        """List the pods."""

        def view(ordinal: int) -> PodView:
            old = f"n{ordinal}" in self.old_pods
            return pod(
                ordinal,
                ready=f"n{ordinal}" not in self.unready,
                node=f"worker-{ordinal}",
                revision=Revision(parts={"image": "old" if old else "new"}),
            )

        return cast("list[PodView]", self.request(lambda: [view(each) for each in range(3)]))

    async def service_endpoints(self, namespace: str, service: str) -> list[EndpointView]:
        """List the endpoints of the master Service."""
        pods = [f"flights-{self.in_service[1:]}"] if self.in_service else []
        return cast(
            "list[EndpointView]",
            self.request(lambda: [EndpointView(pod=each, ready=True) for each in pods]),
        )

    async def status_of(self, ip: str) -> NodeStatus:
        """Ask a member for its status."""
        member_id = f"n{int(ip.rsplit('.', 1)[1]) - 1}"
        if member_id in self.silent:
            raise MemberSilentError(member_id)
        leads = member_id == self.leader
        followers = [
            PeerStatus(
                peer_id=each,
                match_index=5000 - self.lags.get(each, 0),
                reachable=each not in self.silent,
            )
            for each in ("n0", "n1", "n2")
            if each != member_id
        ]
        status = node_status(
            member_id,
            term=self.term,
            leader_id=self.leader,
            role=Role.LEADER if leads else Role.FOLLOWER,
            master=leads,
            ready=member_id not in self.unready,
            reason="it starts" if member_id in self.unready else "",
            committed_index=5000,
            ledger_end_index=5000,
            followers=followers if leads else [],
            voters=sorted({"n0", "n1", "n2"} - self.learners),
            membership_index=5001 if self.changing else 0,
        )
        return cast("NodeStatus", self.request(lambda: status))

    async def transfer(
        self, ip: str, group: str, leader: Leader, to: str, *, identity: str = ""
    ) -> LeadershipTransferResponse:
        """Ask a member to hand over."""
        return cast("LeadershipTransferResponse", self.request(lambda: self._hand_over(leader, to)))

    def _hand_over(self, leader: Leader, to: str) -> LeadershipTransferResponse:
        self.transfers.append((self.now_s, leader.member_id, to))
        is_current = (leader.member_id, leader.term) == (self.leader, self.term)
        refused = self.refuses_next > 0
        self.refuses_next -= refused
        if not is_current or refused or not self.able(to):
            code = Code.TAKE_LEADERSHIP_FAILED if is_current else Code.NOT_LEADER
            return LeadershipTransferResponse(group=group_body()["metadata"]["name"], code=code)
        self.elect(to)
        if self.answers_lost:
            self.answers_lost -= 1
            raise MemberSilentError("the answer was lost")
        return LeadershipTransferResponse(group="flights", code=Code.SUCCESS)
