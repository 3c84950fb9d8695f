"""The context of a worker whose parts a test calls by themselves, without any connection."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from dledger_kube.objects import IMAGES, NOW
from dledger_operator.behaviours.context import Context
from dledger_operator.behaviours.handover.nodes import Nodes
from dledger_operator.behaviours.phases import Phases
from dledger_operator.metrics import OperatorMetrics


def unconnected(api: Any = None) -> Context:
    """Return a context that stands still in time; `api` stands for the API server's client."""
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
