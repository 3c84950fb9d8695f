"""The shared dependencies of all behaviors: clients, metrics, clocks and random numbers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random

from dledger_operator.behaviors.admin_tokens.authorized_requests import AuthorizedRequests
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.leases.duties import Duties
from dledger_operator.behaviors.phases import Phases
from dledger_operator.behaviors.report.event_recorder import EventRecorder
from dledger_operator.clients.canary_client import CanaryClient
from dledger_operator.clients.errors import ConflictError
from dledger_operator.clients.kubernetes import KubeApi
from dledger_operator.clients.member_http import MemberHttpClient
from dledger_operator.clients.member_remoting import MemberRemotingClient
from dledger_operator.metrics import OperatorMetrics
from dledger_operator.spec.images import ImageDefaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Dependencies that all groups and audits of this process share."""

    api: KubeApi
    member_http: MemberHttpClient
    leader_requests: MemberRemotingClient
    """Sends requests without a token; behaviors use `authorized_requests`."""
    canaries: CanaryClient
    """Tests groups through their master Services."""
    metrics: OperatorMetrics
    events: EventRecorder
    nodes: Nodes
    """The Nodes that the members run on."""
    duties: Duties
    """The duties of this process in each namespace."""
    node_image: ImageDefaults
    audit_image: ImageDefaults
    audit_driver_role: str
    """KIND/NAME of the role of an audit with executors; empty if audits have none."""
    audit_api_ports: tuple[int, ...]
    """The ports of API servers, which such audits may reach."""
    clock: Callable[[], float]
    """Returns monotonic seconds."""
    now: Callable[[], datetime]
    """Returns the current time in UTC."""
    random: Random
    reconcile_slots: asyncio.Semaphore
    """Limits concurrent reconciliations, so that after a restart with many groups there are still
    connections for following leaders.
    """
    phases: Phases
    """Spreads the groups over the moments at which their loops run."""

    def authorized_requests(self, namespace: str, group: str) -> AuthorizedRequests:
        """Return the requests to the leaders of a group, with its administration token."""
        return AuthorizedRequests(self.leader_requests, self.api.tokens, namespace, group)

    def count_failure(self, behavior: str, error: Exception) -> None:
        """Count a failed run of a control loop; conflicts with other clients count separately."""
        conflict = isinstance(error, ConflictError)
        counter = self.metrics.conflicts if conflict else self.metrics.failures
        counter.labels(behavior).inc()
