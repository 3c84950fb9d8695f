"""Scaling by the operator as it is deployed: a process, the chart's role, a real API server.

Controllers and kubelets are played by the test; members answer on loopback.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

import pytest

from api_server.client import ApiServer
from dledger_group.ports import free_ports
from dledger_kube.cluster import API, Namespace, Object, parsed
from dledger_kube.fake_leader import FakeGroup
from dledger_kube.fake_members import FakeMember
from dledger_kube.operator_account import operator_kubeconfig
from dledger_kube.operator_process import OperatorProcess
from dledger_operator import names

pytest_plugins = ["api_server.fixtures"]

APPS = "/apis/apps/v1"
PORTS = free_ports()
WAIT_S = 60.0
POLL_S = 0.05


@dataclass(slots=True)
class Scaling:
    """A group of three with an operator, and five members that may belong to it."""

    namespace: Namespace
    operator: OperatorProcess
    members: FakeGroup
    body: Object

    def scale(self, replicas: int) -> None:
        self.namespace.patch("dledgergroups", "flights", {"spec": {"replicas": replicas}}, API)

    def pods(self) -> int:
        """The replicas of the StatefulSet; 0 while there is none."""
        found = self.namespace.get("statefulsets", group=APPS)["items"]
        replicas: int = found[0]["spec"]["replicas"] if found else 0
        return replicas

    def settings(self) -> dict[str, str]:
        data: dict[str, str] = self.namespace.get("configmaps", "flights-settings")["data"]
        return data

    def make_pod(self, ordinal: int) -> None:
        """Do what the StatefulSet's controller and a kubelet do."""
        self.namespace.make_pod(parsed(self.body), ordinal, self.members.nodes[ordinal].ip)

    def roles(self) -> dict[str, str]:
        status = self.namespace.get("dledgergroups", "flights", API).get("status", {})
        return {each["id"]: each["membership"] for each in status.get("members", [])}

    def progressing(self) -> tuple[str, str]:
        status = self.namespace.get("dledgergroups", "flights", API).get("status", {})
        for each in status.get("conditions", []):
            if each["type"] == "Progressing":
                return each["status"], each["message"]
        return "", ""

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + WAIT_S
        while not await asyncio.to_thread(holds):
            assert loop.time() < deadline_s, f"{what}: not in {WAIT_S:g} s; {self.progressing()}"
            await asyncio.sleep(POLL_S)


@pytest.fixture
async def scaling(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Scaling]:
    namespace = Namespace.make(api_server)
    kubeconfig = operator_kubeconfig(api_server, namespace, tmp_path)
    subnet = f"127.{SystemRandom().randint(1, 254)}.{SystemRandom().randint(1, 254)}"
    nodes = [FakeMember(f"n{k}", f"{subnet}.{k + 1}", names.HTTP_PORT) for k in range(5)]
    members = FakeGroup(nodes, voters=3)
    async with contextlib.AsyncExitStack() as stack:
        for node in nodes:
            await node.answer()
            stack.push_async_callback(node.fall_silent)
        operator = OperatorProcess(kubeconfig, namespace.name, tmp_path, [next(PORTS), next(PORTS)])
        stack.enter_context(operator)
        made = Scaling(namespace, operator, members, namespace.make_group())
        await made.until("there are pods", lambda: made.pods() == 3)
        for ordinal in range(3):
            made.make_pod(ordinal)
        yield made


async def test_a_group_grows_and_shrinks_over_the_death_of_its_operator(scaling: Scaling) -> None:
    assert scaling.settings()["INITIAL_GROUP_STATE"] == "new"
    await scaling.members.elect("n1", 7)
    async with scaling.members.serve():
        await scaling.until(
            "it is founded", lambda: scaling.settings()["INITIAL_GROUP_STATE"] == "existing"
        )

        scaling.scale(5)
        await scaling.until("the pods are asked for", lambda: scaling.pods() == 5)
        scaling.make_pod(3)
        await scaling.until("n3 votes", lambda: scaling.roles().get("n3") == "Voter")
        scaling.operator.kill()
        scaling.operator.start()
        scaling.make_pod(4)
        await scaling.until("n4 votes", lambda: scaling.roles().get("n4") == "Voter")
        await scaling.until("all is done", lambda: scaling.progressing()[0] == "False")

        assert scaling.members.changes == [
            ("ADD_LEARNER", "n3"), ("PROMOTE", "n3"), ("ADD_LEARNER", "n4"), ("PROMOTE", "n4"),
        ]  # fmt: skip
        peers = scaling.settings()["DLEDGER_PEERS"]
        assert peers.count(";") == 2, "the first voters are three for ever"

        scaling.scale(3)
        await scaling.until("the pods are let go", lambda: scaling.pods() == 3)
        assert scaling.members.changes[4:] == [("REMOVE", "n4"), ("REMOVE", "n3")]

    assert "Traceback" not in scaling.operator.log()
    assert "403" not in scaling.operator.log()


async def test_a_leader_that_cannot_be_asked_is_told_of_and_nothing_is_let_go(
    scaling: Scaling,
) -> None:
    await scaling.members.elect("n0", 7)
    await scaling.until(
        "it is founded", lambda: scaling.settings()["INITIAL_GROUP_STATE"] == "existing"
    )

    scaling.scale(1)

    await scaling.until(
        "it is told", lambda: "ChangeMembershipRequest to" in scaling.progressing()[1]
    )
    assert scaling.pods() == 3
