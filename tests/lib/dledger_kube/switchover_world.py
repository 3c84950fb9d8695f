"""A fake API server and fake members for tests of switchovers, in which any request may be the last
one of an operator.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from dledger_formats.http.status import NodeStatus, PeerStatus, Role
from dledger_formats.protocol.codes import DLedgerResponseCode as Code
from dledger_formats.protocol.leadership_transfer import LeadershipTransferResponse
from dledger_kube.objects import (
    IMAGES,
    NOW,
    STATEFUL_SET_UID,
    group_body,
    node_status,
    pod,
)
from dledger_operator.api_objects import EndpointView, PodView, StatefulSetView
from dledger_operator.behaviours.context import Context
from dledger_operator.behaviours.handover.nodes import Nodes
from dledger_operator.behaviours.handover.switchover import SwitchoverWorker
from dledger_operator.clients.errors import MemberSilentError, NotFoundError
from dledger_operator.metrics import OperatorMetrics
from dledger_operator.observed_state import Leader
from dledger_operator.spec.revision import Revision

Object = dict[str, Any]


class KilledError(BaseException):
    """The operator was killed. No handler of the operator's catches it."""


def switchover_body(name: str = "move", uid: str = "", **spec: Any) -> Object:
    """Return a DLedgerSwitchover of the group `flights` to n2."""
    return {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": "DLedgerSwitchover",
        "metadata": {
            "namespace": "air", "name": name, "uid": uid or f"{name}-uid", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"groupRef": {"name": "flights"}, "target": "n2", **spec},
    }  # fmt: skip


@dataclass(slots=True)
class SwitchoverWorld:
    """A group of three and its switchovers. Tests change the fields to play everybody else."""

    switchovers: dict[str, Object] = field(default_factory=dict)
    """The stored objects by uid."""
    group: Object | None = field(default_factory=group_body)
    now_s: float = 0.0
    leader: str | None = "n1"
    term: int = 7
    silent: set[str] = field(default_factory=set)
    unready: set[str] = field(default_factory=set)
    lags: dict[str, int] = field(default_factory=dict)
    """How many committed entries a member lacks."""
    learners: set[str] = field(default_factory=set)
    old_pods: set[str] = field(default_factory=set)
    """Members whose pods are not of the revision that the template makes."""
    changing: bool = False
    """Whether a change of members is not committed yet."""
    in_service: str | None = "n1"
    """The member that the master Service points to."""
    service_stuck: bool = False
    refuses_next: int = 0
    """How many next transfers the leader refuses."""
    answers_lost: int = 0
    """How many next transfers take effect and get no answer."""
    kills: list[tuple[int, bool]] = field(default_factory=list)
    """At which requests the operator is killed, and whether after their effect."""
    requests: int = 0
    transfers: list[tuple[float, str, str]] = field(default_factory=list)
    """When which leader was asked to hand over to which member."""
    nodes: Nodes = field(default_factory=Nodes)
    events: list[str] = field(default_factory=list)

    def worker(self, uid: str) -> SwitchoverWorker:
        """Return the worker of an operator that has just started."""
        context = SimpleNamespace(
            api=_Api(self),
            member_http=_Members(self),
            authorized_requests=lambda *_: self,
            events=self,
            metrics=OperatorMetrics(clock=lambda: self.now_s),
            nodes=self.nodes,
            node_image=IMAGES,
            clock=lambda: self.now_s,
            now=lambda: self.now,
            random=Random(1),
        )
        body = copy.deepcopy(self.switchovers[uid])
        return SwitchoverWorker(body, cast("Context", context), lambda: None)

    @property
    def now(self) -> datetime:
        """The time of day."""
        return NOW.astimezone(UTC) + timedelta(seconds=self.now_s)

    def pass_time(self, seconds: float) -> None:
        """Let time pass; the Service follows the leader."""
        self.now_s += seconds
        if not self.service_stuck:
            self.in_service = self.leader

    def status(self, uid: str) -> Object:
        """Return the status of a switchover."""
        found: Object = self.switchovers[uid].get("status", {})
        return found

    def able(self, member_id: str) -> bool:
        """Return whether a member could take the leadership."""
        unable = self.silent | self.unready | self.learners
        return member_id not in unable and self.lags.get(member_id, 0) <= 1000

    def elect(self, member_id: str | None) -> None:
        """Make a member the leader of a new term."""
        self.leader, self.term = member_id, self.term + 1

    def _request(self, effect: Callable[[], Any]) -> Any:
        self.requests += 1
        kills = {after for at, after in self.kills if at == self.requests}
        if False in kills:
            raise KilledError
        result = effect()
        if True in kills:
            raise KilledError
        return result

    async def custom_objects(self, kind: str, namespace: str) -> list[Object]:
        """List the switchovers."""
        return cast(
            "list[Object]", self._request(lambda: copy.deepcopy([*self.switchovers.values()]))
        )

    async def apply_status(self, kind: str, body: Mapping[str, Any], status: Object) -> None:
        """Replace the status of a switchover."""

        def store() -> None:
            uid = body["metadata"]["uid"]
            if uid not in self.switchovers:
                raise NotFoundError(uid)
            self.switchovers[uid]["status"] = copy.deepcopy(status)

        self._request(store)

    async def delete_custom_object(self, kind: str, body: Mapping[str, Any]) -> None:
        """Delete a switchover."""
        self._request(lambda: self.switchovers.pop(body["metadata"]["uid"]))

    async def record(self, kind: str, body: Mapping[str, Any], note: Any) -> None:
        """Record an Event."""
        self.events.append(f"{note.severity} {note.reason}: {note.message}")

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView:
        """Get the StatefulSet."""
        view = StatefulSetView(
            namespace=namespace, name=name, uid=STATEFUL_SET_UID, resource_version="1", replicas=3,
            first_voters=3, identity="", volume_claim_templates=[],
            revision=Revision(parts={"image": "new"}),
        )  # fmt: skip
        return cast("StatefulSetView", self._request(lambda: view))

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

        return cast("list[PodView]", self._request(lambda: [view(each) for each in range(3)]))

    async def service_endpoints(self, namespace: str, service: str) -> list[EndpointView]:
        """List the endpoints of the master Service."""
        pods = [f"flights-{self.in_service[1:]}"] if self.in_service else []
        return cast(
            "list[EndpointView]",
            self._request(lambda: [EndpointView(pod=each, ready=True) for each in pods]),
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
        return cast("NodeStatus", self._request(lambda: status))

    async def transfer(
        self, ip: str, group: str, leader: Leader, to: str, *, identity: str = ""
    ) -> LeadershipTransferResponse:
        """Ask a member to hand over."""
        return cast(
            "LeadershipTransferResponse", self._request(lambda: self._hand_over(leader, to))
        )

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


class _Api:
    """The world as an API server: it has the group as a request, not as a field."""

    def __init__(self, world: SwitchoverWorld) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    async def group(self, namespace: str, name: str) -> Object:
        """Get the group."""

        def get() -> Object:
            if self._world.group is None or name != "flights":
                raise NotFoundError(name)
            return self._world.group

        return cast("Object", self._world._request(get))


class _Members:
    """The world as the members' HTTP pages."""

    def __init__(self, world: SwitchoverWorld) -> None:
        self._world = world

    async def status(self, ip: str) -> NodeStatus:
        """Ask a member for its status."""
        return await self._world.status_of(ip)
