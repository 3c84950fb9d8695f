"""A namespace of a real API server, the operator as it is deployed, and members on loopback."""

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
from dledger_kube.operator_account import operator_kubeconfig
from dledger_kube.operator_process import OperatorProcess
from dledger_operator import names

WAIT_S = 60.0
POLL_S = 0.05

Parts: TypeAlias = tuple[Namespace, OperatorProcess, list[FakeMember]]


@dataclass(slots=True)
class Operated:
    """The group `flights`, an operator in its namespace, and members that a test speaks through."""

    namespace: Namespace
    operator: OperatorProcess
    nodes: list[FakeMember]

    def status(self) -> Object:
        """What the operator has written; empty while it has not."""
        found: Object = self.namespace.get("dledgergroups", "flights", API).get("status", {})
        return found

    def condition(self, kind: str) -> Object:
        """One condition; its fields are empty while there is none."""
        conditions: list[Object] = self.status().get("conditions", [])
        missing = {"status": "", "reason": "", "message": ""}
        return next((each for each in conditions if each["type"] == kind), missing)

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait for something, while the members go on answering."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + WAIT_S
        while not await asyncio.to_thread(holds):
            assert loop.time() < deadline_s, f"{what}: not in {WAIT_S:g} s; {self.status()}"
            await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def operated(api_server: ApiServer, folder: Path, members: int) -> AsyncIterator[Parts]:
    """Make a namespace, let members answer, and start the operator with the chart's role alone."""
    namespace = Namespace.make(api_server)
    subnet = f"127.{SystemRandom().randint(1, 254)}.{SystemRandom().randint(1, 254)}"
    nodes = [FakeMember(f"n{k}", f"{subnet}.{k + 1}", names.HTTP_PORT) for k in range(members)]
    kubeconfig = operator_kubeconfig(api_server, namespace, folder)
    async with contextlib.AsyncExitStack() as stack:
        for node in nodes:
            await node.answer()
            stack.push_async_callback(node.fall_silent)
        operator = stack.enter_context(OperatorProcess(kubeconfig, namespace.name, folder))
        yield namespace, operator, nodes
