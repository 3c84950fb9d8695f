"""Scaling by the operator as deployed: a process, the chart's role and a real API server.

The test plays the controllers and kubelets; fake members answer on loopback.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from api_server.client import ApiServer
from dledger_formats.audit import Verdict
from dledger_kube.cluster import API, Object, parsed
from dledger_kube.fake_leader import FakeGroup
from dledger_kube.operated import Operated, operated
from dledger_kube.played_audits import PlayedAudits

pytest_plugins = ["api_server.fixtures"]

APPS = "/apis/apps/v1"


@dataclass(slots=True)
class Scaling(Operated):
    """A group of three with an operator, and five fake members."""

    members: FakeGroup
    body: Object

    def scale(self, replicas: int) -> None:
        self.namespace.patch("dledgergroups", "flights", {"spec": {"replicas": replicas}}, API)

    def pods(self) -> int:
        """The replicas of the StatefulSet; 0 while it does not exist."""
        found = self.namespace.get("statefulsets", group=APPS)["items"]
        replicas: int = found[0]["spec"]["replicas"] if found else 0
        return replicas

    def settings(self) -> dict[str, str]:
        data: dict[str, str] = self.namespace.get("configmaps", "flights-settings")["data"]
        return data

    def is_founded(self) -> bool:
        return self.settings()["DLEDGER_INITIAL_GROUP_STATE"] == "existing"

    def make_pod(self, ordinal: int) -> None:
        """Create a ready pod, as the StatefulSet controller and a kubelet do."""
        self.namespace.make_pod(parsed(self.body), ordinal, self.nodes[ordinal].ip)

    def roles(self) -> dict[str, str]:
        return {each["id"]: each["membership"] for each in self.status().get("members", [])}


@pytest.fixture
async def scaling(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Scaling]:
    async with operated(api_server, tmp_path, members=5) as (namespace, operator, nodes):
        members = FakeGroup(nodes, voters=3)
        made = Scaling(namespace, operator, nodes, members, namespace.make_group())
        await made.until("the StatefulSet has 3 replicas", lambda: made.pods() == 3)
        for ordinal in range(3):
            made.make_pod(ordinal)
        yield made


async def test_a_group_scales_up_and_down_across_a_crash_of_the_operator(scaling: Scaling) -> None:
    assert scaling.settings()["DLEDGER_INITIAL_GROUP_STATE"] == "new"
    await scaling.members.elect("n1", 7)
    async with scaling.members.serve():
        await scaling.until("the group is founded", scaling.is_founded)

        scaling.scale(5)
        await scaling.until("the StatefulSet has 5 replicas", lambda: scaling.pods() == 5)
        scaling.make_pod(3)
        await scaling.until("n3 votes", lambda: scaling.roles().get("n3") == "Voter")
        scaling.operator.kill()
        scaling.operator.start()
        scaling.make_pod(4)
        await scaling.until("n4 votes", lambda: scaling.roles().get("n4") == "Voter")
        await scaling.until(
            "scaling is complete", lambda: scaling.condition("Progressing")["status"] == "False"
        )

        assert scaling.members.changes == [
            ("ADD_LEARNER", "n3"), ("PROMOTE", "n3"), ("ADD_LEARNER", "n4"), ("PROMOTE", "n4"),
        ]  # fmt: skip
        peers = scaling.settings()["DLEDGER_PEERS"]
        assert peers.count(";") == 2, "the number of first voters stays 3"

        scaling.scale(3)
        await scaling.until("the StatefulSet has 3 replicas", lambda: scaling.pods() == 3)
        assert scaling.members.changes[4:] == [("REMOVE", "n4"), ("REMOVE", "n3")]

    assert "Traceback" not in scaling.operator.log()
    assert "forbidden" not in scaling.operator.log().lower(), "the chart's role suffices"


async def test_an_unreachable_leader_is_reported_and_no_pod_is_deleted(
    scaling: Scaling,
) -> None:
    await scaling.members.elect("n0", 7)
    await scaling.until("the group is founded", scaling.is_founded)

    scaling.scale(1)

    await scaling.until(
        "the failed request is reported",
        lambda: "ChangeMembershipRequest to" in scaling.condition("Progressing")["message"],
    )
    assert scaling.pods() == 3


async def test_members_are_removed_only_once_an_audit_is_sound(scaling: Scaling) -> None:
    audits = PlayedAudits(scaling.namespace)
    await scaling.members.elect("n0", 7)
    async with scaling.members.serve():
        await scaling.until("the group is founded", scaling.is_founded)
        asked = {"spec": {"replicas": 1, "audit": {"beforeScalingDown": True}}}
        scaling.namespace.patch("dledgergroups", "flights", asked, API)

        await scaling.until("an audit is created", lambda: len(audits.all()) == 1)
        (first,) = audits.all()
        await scaling.until(
            "it goes first", lambda: scaling.condition("Progressing")["reason"] == "AuditGoesFirst"
        )
        await audits.run(first, Verdict.DAMAGED, scaling.until)
        await scaling.until(
            "it is not Sound", lambda: scaling.condition("Progressing")["reason"] == "AuditNotSound"
        )
        assert scaling.members.changes == []
        assert scaling.pods() == 3

        await audits.ask("mended")
        await audits.run("mended", Verdict.SOUND, scaling.until)
        await scaling.until("the StatefulSet has 1 replica", lambda: scaling.pods() == 1)
        assert scaling.members.changes == [("REMOVE", "n2"), ("REMOVE", "n1")]
