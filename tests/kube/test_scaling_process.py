"""Scaling by the operator as it is deployed: a process, the chart's role, a real API server.

Controllers and kubelets are played by the test; members answer on loopback.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import API, Object, parsed
from dledger_kube.fake_leader import FakeGroup
from dledger_kube.operated import Operated, operated

pytest_plugins = ["api_server.fixtures"]

APPS = "/apis/apps/v1"


@dataclass(slots=True)
class Scaling(Operated):
    """A group of three with an operator, and five members that may belong to it."""

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
        self.namespace.make_pod(parsed(self.body), ordinal, self.nodes[ordinal].ip)

    def roles(self) -> dict[str, str]:
        return {each["id"]: each["membership"] for each in self.status().get("members", [])}


@pytest.fixture
async def scaling(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Scaling]:
    async with operated(api_server, tmp_path, members=5) as (namespace, operator, nodes):
        members = FakeGroup(nodes, voters=3)
        made = Scaling(namespace, operator, nodes, members, namespace.make_group())
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
        await scaling.until(
            "all is done", lambda: scaling.condition("Progressing")["status"] == "False"
        )

        assert scaling.members.changes == [
            ("ADD_LEARNER", "n3"), ("PROMOTE", "n3"), ("ADD_LEARNER", "n4"), ("PROMOTE", "n4"),
        ]  # fmt: skip
        peers = scaling.settings()["DLEDGER_PEERS"]
        assert peers.count(";") == 2, "the first voters are three for ever"

        scaling.scale(3)
        await scaling.until("the pods are let go", lambda: scaling.pods() == 3)
        assert scaling.members.changes[4:] == [("REMOVE", "n4"), ("REMOVE", "n3")]

    assert "Traceback" not in scaling.operator.log()
    assert "forbidden" not in scaling.operator.log().lower(), "it may do all that it does"


async def test_a_leader_that_cannot_be_asked_is_told_of_and_nothing_is_let_go(
    scaling: Scaling,
) -> None:
    await scaling.members.elect("n0", 7)
    await scaling.until(
        "it is founded", lambda: scaling.settings()["INITIAL_GROUP_STATE"] == "existing"
    )

    scaling.scale(1)

    await scaling.until(
        "it is told",
        lambda: "ChangeMembershipRequest to" in scaling.condition("Progressing")["message"],
    )
    assert scaling.pods() == 3
