"""A namespace of a real API server, the operator as a process, and fake members on loopback."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import TypeAlias

from api_server.client import ApiServer
from dledger_kube.cluster import API, Namespace, Object
from dledger_kube.fake_members import FakeMember
from dledger_kube.faulty_proxy import FaultyProxy
from dledger_kube.operator_account import operator_kubeconfig
from dledger_kube.operator_process import OperatorProcess
from dledger_operator import names

WAIT_S = 60.0
POLL_S = 0.05

Parts: TypeAlias = tuple[Namespace, OperatorProcess, list[FakeMember]]


@dataclass(slots=True)
class Operated:
    """The group `flights`, an operator in its namespace, and fake members."""

    namespace: Namespace
    operator: OperatorProcess
    nodes: list[FakeMember]

    def status(self) -> Object:
        """Return the group's status; empty before the operator's first write."""
        found: Object = self.namespace.get("dledgergroups", "flights", API).get("status", {})
        return found

    def condition(self, kind: str) -> Object:
        """Return a condition; its fields are empty while it does not exist."""
        conditions: list[Object] = self.status().get("conditions", [])
        missing = {"status": "", "reason": "", "message": ""}
        return next((each for each in conditions if each["type"] == kind), missing)

    async def until(self, what: str, holds: Callable[[], bool], within_s: float = WAIT_S) -> None:
        """Wait until `holds` returns True, while the members keep answering."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + within_s
        while not await asyncio.to_thread(holds):
            assert loop.time() < deadline_s, f"not within {within_s:g} s: {what}; {self.status()}"
            await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def operated(
    api_server: ApiServer,
    folder: Path,
    members: int,
    through: FaultyProxy | None = None,
    beside: str = "",
) -> AsyncIterator[Parts]:
    """Create a namespace, start members, and start the operator with only the chart's role.

    The operator's requests go `through` a proxy, if there is one. The operator also watches a
    namespace `beside`, for which it has no role.
    """
    namespace = Namespace.make(api_server)
    subnet = f"127.{SystemRandom().randint(1, 254)}.{SystemRandom().randint(1, 254)}"
    nodes = [FakeMember(f"n{k}", f"{subnet}.{k + 1}", names.HTTP_PORT) for k in range(members)]
    kubeconfig = operator_kubeconfig(api_server, namespace, folder)
    if through is not None:
        kubeconfig = through.kubeconfig(kubeconfig)
    async with contextlib.AsyncExitStack() as stack:
        for node in nodes:
            await node.answer()
            stack.push_async_callback(node.fall_silent)
        operator = OperatorProcess(kubeconfig, namespace.name, folder)
        if beside:
            operator.environment["DLEDGER_OPERATOR_WATCH_NAMESPACES"] += f",{beside}"
        stack.enter_context(operator)
        yield namespace, operator, nodes
