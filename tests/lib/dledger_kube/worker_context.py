"""The contexts of workers that tests run or call without an API server."""

import asyncio
import time
from datetime import UTC, datetime
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from dledger_kube.objects import IMAGES, NOW
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.leases.duties import Duties
from dledger_operator.behaviors.phases import Phases
from dledger_operator.behaviors.report.event_recorder import EventRecorder
from dledger_operator.clients.canary_client import CanaryClient
from dledger_operator.clients.errors import UnavailableError
from dledger_operator.clients.kubernetes import KubeApi
from dledger_operator.clients.member_http import MemberHttpClient
from dledger_operator.clients.member_remoting import MemberRemotingClient
from dledger_operator.metrics import OperatorMetrics


def unconnected(api: Any = None) -> Context:
    """Return a context whose time stands still; `api` replaces the API server's client."""
    made = SimpleNamespace(
        api=api,
        member_http=None,
        leader_requests=None,
        authorized_requests=lambda *_: None,
        canaries=None,
        count_failure=lambda *_: None,
        nodes=Nodes(),
        metrics=OperatorMetrics(clock=lambda: 0.0),
        node_image=IMAGES,
        phases=Phases(),
        clock=lambda: 0.0,
        now=lambda: NOW,
        random=Random(1),
        reconcile_slots=asyncio.Semaphore(8),
    )
    return cast("Context", made)


class DownApi:
    """An API server that never answers, so that workers retry until they are stopped."""

    def __getattr__(self, name: str) -> Any:
        async def answer_nothing(*_: object, **__: object) -> None:
            raise UnavailableError(f"{name}: no answer")

        return answer_nothing


def without_server(member_http: MemberHttpClient, server: DownApi | None = None) -> Context:
    """Return the context of workers that run, in a process without Leases."""
    api = cast("KubeApi", server or DownApi())

    def now() -> datetime:
        return datetime.now(UTC)

    return Context(
        api=api,
        member_http=member_http,
        leader_requests=MemberRemotingClient(),
        canaries=CanaryClient(),
        nodes=Nodes(),
        duties=Duties(api.leases, None, clock=time.monotonic, now=now),
        metrics=OperatorMetrics(clock=time.monotonic),
        events=EventRecorder(api, now=now),
        node_image=IMAGES,
        audit_image=IMAGES,
        audit_driver_role="",
        audit_api_ports=(),
        clock=time.monotonic,
        now=now,
        random=Random(1),
        reconcile_slots=asyncio.Semaphore(8),
        phases=Phases(),
    )
