"""What every behaviour works with: the world outside, passed in."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random

from dledger_operator.behaviours.report.event_recorder import NewsDesk
from dledger_operator.clients.kubernetes import KubeApi
from dledger_operator.clients.member_pages import NodePages
from dledger_operator.clients.member_requests import MemberRequests
from dledger_operator.metrics import OperatorMetrics
from dledger_operator.spec.group import ImageDefaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """One set, shared by all groups and audits of this process."""

    api: KubeApi
    pages: NodePages
    requests: MemberRequests
    metrics: OperatorMetrics
    news: NewsDesk
    node_image: ImageDefaults
    audit_image: ImageDefaults
    clock: Callable[[], float]
    """Monotonic seconds."""
    now: Callable[[], datetime]
    """The time of day, in UTC."""
    random: Random
    reconcile_slots: asyncio.Semaphore
    """Bounds how many groups are reconciled at once, so that a restart with many groups leaves
    connections for following leaders.
    """
