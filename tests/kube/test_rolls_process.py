"""Rolls by the operator as deployed: a process, the chart's role and a real API server.

The test plays the StatefulSet controller and the kubelets; fake members answer on loopback.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import API, STRATEGIC_PATCH, Object, parsed
from dledger_kube.fake_leader import FakeGroup
from dledger_kube.objects import node_status
from dledger_kube.operated import POLL_S, Operated, operated

pytest_plugins = ["api_server.fixtures"]

APPS = "/apis/apps/v1"
BAD = "bad"
DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
ASYNC = {"log": {"flushDiskType": "AsyncFlush"}}


@dataclass(slots=True)
class Rolling(Operated):
    """A group of three with an operator, and three fake members."""

    members: FakeGroup
    body: Object
    made: list[str] = field(default_factory=list)
    """The pods that were made again, in that order."""

    def change(self, **spec: Any) -> None:
        self.namespace.patch("dledgergroups", "flights", {"spec": spec}, API)

    def approve(self, revision: str) -> None:
        metadata = {"annotations": {"dledger.io/approved-revision": revision}}
        self.namespace.patch("dledgergroups", "flights", {"metadata": metadata}, API)

    def template(self) -> Object:
        found = self.namespace.get("statefulsets", group=APPS)["items"]
        template: Object = found[0]["spec"]["template"] if found else {}
        return template

    def image(self) -> str:
        """The image of the StatefulSet's template; empty while there is none."""
        containers = self.template().get("spec", {}).get("containers", [{}])
        return str(containers[0].get("image", ""))

    def pods(self) -> dict[str, Object]:
        return {pod["metadata"]["name"]: pod for pod in self.namespace.get("pods")["items"]}

    def images(self) -> set[str]:
        return {pod["spec"]["containers"][0]["image"] for pod in self.pods().values()}

    def variables(self, name: str) -> set[str]:
        """The values of a variable in all pods."""
        return {
            each["value"]
            for pod in self.pods().values()
            for each in pod["spec"]["containers"][0]["env"]
            if each["name"] == name
        }

    def plan(self) -> Object:
        plan: Object = self.status().get("plan", {})
        return plan

    def is_done(self) -> bool:
        progressing = self.condition("Progressing")
        current = progressing.get("observedGeneration") == self.generation()
        return current and progressing["reason"] == "AsRequested" and len(self.pods()) == 3

    def generation(self) -> int:
        found = self.namespace.get("dledgergroups", "flights", API)["metadata"]["generation"]
        return int(found)

    def make_missing_pods(self) -> None:
        """Do what the controllers of StatefulSets and budgets and the kubelets do."""
        existing = self.pods()
        for ordinal, node in enumerate(self.nodes):
            name = f"flights-{ordinal}"
            if name in existing or not self.template():
                continue
            good = BAD not in self.image()
            self.namespace.make_pod(parsed(self.body), ordinal, node.ip if good else "")
            if not good:
                self._fail_to_pull(name)
            self.made.append(name)
        if existing:
            self.namespace.play_budget("flights")

    def _fail_to_pull(self, name: str) -> None:
        waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
        container = {
            "name": "node", "ready": False, "image": "", "imageID": "", "restartCount": 0,
            "state": {"waiting": waiting},
        }  # fmt: skip
        status = {"phase": "Pending", "containerStatuses": [container]}
        path = self.namespace.path("pods", f"{name}/status")
        self.namespace.server.request(
            "PATCH", path, {"status": status}, content_type=STRATEGIC_PATCH
        )


async def control(rolling: Rolling) -> None:
    """Make pods that are missing, until cancelled."""
    while True:
        await asyncio.to_thread(rolling.make_missing_pods)
        await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def rolling_group(api_server: ApiServer, folder: Path, **spec: Any) -> AsyncIterator[Rolling]:
    async with operated(api_server, folder, members=3) as (namespace, operator, nodes):
        members = FakeGroup(nodes, voters=3)
        made = Rolling(namespace, operator, nodes, members, namespace.make_group(**spec))
        controller = asyncio.create_task(control(made))
        try:
            yield made
        finally:
            controller.cancel()
            await asyncio.gather(controller, return_exceptions=True)


@pytest.fixture
async def rolling(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Rolling]:
    """A group that n1 leads."""
    async with rolling_group(api_server, tmp_path) as made:
        await made.until("there are three pods", lambda: len(made.pods()) == 3)
        await made.members.elect("n1", 7)
        async with made.members.serve():
            await made.until("the group is founded", lambda: is_founded(made))
            await made.until("nothing is left to do", made.is_done)
            made.made.clear()
            yield made
        assert "Traceback" not in made.operator.log()
        assert "forbidden" not in made.operator.log().lower(), "the chart's role suffices"


def is_founded(rolling: Rolling) -> bool:
    data = rolling.namespace.get("configmaps", "flights-settings")["data"]
    return bool(data["DLEDGER_INITIAL_GROUP_STATE"] == "existing")


async def test_a_setting_is_rolled_out_followers_first_across_a_crash_of_the_operator(
    rolling: Rolling,
) -> None:
    rolling.change(**ASYNC)
    await rolling.until("a pod was replaced", lambda: rolling.made == ["flights-2"])
    rolling.operator.kill()
    rolling.operator.start()
    await rolling.until("nothing is left to do", rolling.is_done)

    assert rolling.made == ["flights-2", "flights-0", "flights-1"]
    assert [leader for leader, _ in rolling.members.transfers] == ["n1"]
    assert rolling.variables("DLEDGER_FLUSH_DISK_TYPE") == {"AsyncFlush"}
    assert rolling.plan() == {}


def live_file(rolling: Rolling) -> str:
    data = rolling.namespace.get("configmaps", "flights-settings")["data"]
    return str(data["live.env"])


async def test_a_live_setting_reaches_running_members_and_replaces_no_pod(
    rolling: Rolling,
) -> None:
    """Whatever the update policy says; a member that does not have it yet is named."""
    retention = {"log": {"retention": {"maxAge": "72h"}}}
    await asyncio.to_thread(rolling.change, updatePolicy="OnApproval", **retention)
    await rolling.until(
        "members lack it", lambda: rolling.condition("Progressing")["reason"] == "SettingsPending"
    )
    file = "DLEDGER_FILE_RESERVED_HOURS=72\n"
    await rolling.until("the file has it", lambda: live_file(rolling) == file)

    for node in rolling.nodes[:2]:
        node.status = replace(node.status, settings={"DLEDGER_FILE_RESERVED_HOURS": "72"})
    last = "members that do not have these settings in force yet: flights-2 ("
    await rolling.until(
        "only n2 lacks it", lambda: last in rolling.condition("Progressing")["message"]
    )
    shown = {each["id"]: each for each in rolling.status()["members"]}
    assert shown["n0"]["settings"] == {"DLEDGER_FILE_RESERVED_HOURS": "72"}
    assert "72" in shown["n2"]["lacks"]

    rolling.nodes[2].status = replace(rolling.nodes[2].status, settings=shown["n0"]["settings"])
    await rolling.until("nothing is left to do", rolling.is_done)
    assert (rolling.made, rolling.plan()) == ([], {})


async def test_a_bad_image_costs_one_pod_and_the_right_one_goes_on(rolling: Rolling) -> None:
    await asyncio.to_thread(rolling.change, image={"tag": BAD})
    await rolling.until(
        "the roll stands", lambda: rolling.condition("Progressing")["reason"] == "RollHalted"
    )
    message = rolling.condition("Progressing")["message"]
    assert "flights-2: ImagePullBackOff: no such image" in message
    assert "flights-1 (image dledger-node:1 to dledger-node:bad)" in message
    assert [each["pod"] for each in rolling.plan()["pods"]] == ["flights-0", "flights-1"]
    assert rolling.made == ["flights-2"]

    await asyncio.to_thread(rolling.change, image={"tag": "good"})
    await rolling.until("nothing is left to do", rolling.is_done)

    assert rolling.made == ["flights-2", "flights-2", "flights-0", "flights-1"]
    assert rolling.images() == {"dledger-node:good"}


async def test_a_change_waits_for_its_approval_and_reaches_no_pod_before(rolling: Rolling) -> None:
    await asyncio.to_thread(rolling.change, updatePolicy="OnApproval", **ASYNC)
    await rolling.until(
        "the plan waits", lambda: rolling.plan().get("reason") == "WaitingForApproval"
    )
    plan, progressing = rolling.plan(), rolling.condition("Progressing")
    assert plan["cause"] == "Spec"
    assert {each["why"] for each in plan["pods"]} == {"flush SyncFlush to AsyncFlush"}
    assert (progressing["status"], progressing["reason"]) == ("True", "WaitingForApproval")
    assert plan["revision"] in progressing["message"], "the command to approve it"

    rolling.namespace.delete_pod("flights-0")  # a drain
    await rolling.until("it was made again", lambda: rolling.made == ["flights-0"])
    assert rolling.variables("DLEDGER_FLUSH_DISK_TYPE") == {"SyncFlush"}

    await asyncio.to_thread(rolling.approve, plan["revision"])
    await rolling.until("nothing is left to do", lambda: rolling.is_done() and not rolling.plan())
    assert rolling.variables("DLEDGER_FLUSH_DISK_TYPE") == {"AsyncFlush"}


async def test_a_stateful_set_that_is_deleted_while_a_change_waits_comes_back_unchanged(
    rolling: Rolling,
) -> None:
    await asyncio.to_thread(rolling.change, updatePolicy="OnApproval", **ASYNC)
    await rolling.until("the template is kept", lambda: "heldTemplate" in rolling.status())
    template = rolling.template()

    path = rolling.namespace.path("statefulsets", "flights", APPS)
    await asyncio.to_thread(rolling.namespace.server.request, "DELETE", path)
    await rolling.until("it was made again", rolling.template)

    assert rolling.template() == template
    assert rolling.plan()["reason"] == "WaitingForApproval"

    await asyncio.to_thread(rolling.approve, rolling.plan()["revision"])
    await rolling.until("it changes", lambda: rolling.template() != template)
    await rolling.until("nothing is kept", lambda: "heldTemplate" not in rolling.status())


async def test_a_change_waits_for_its_window_and_is_rolled_out_while_it_is_open(
    rolling: Rolling,
) -> None:
    now = datetime.now(UTC)
    later = now + timedelta(days=3)
    night = {"days": [later.strftime("%a")], "from": "01:00", "to": "05:00"}
    await asyncio.to_thread(rolling.change, updatePolicy="Window", updateWindow=night, **ASYNC)
    await rolling.until(
        "the plan waits", lambda: rolling.plan().get("reason") == "WaitingForWindow"
    )
    opens = later.strftime("%Y-%m-%dT01:00:00Z")
    assert rolling.plan()["opensAt"] == opens
    assert opens in rolling.condition("Progressing")["message"]
    assert rolling.made == []

    times = [(now + timedelta(hours=hours)).strftime("%H:%M") for hours in (-1, 2)]
    today = {"days": DAYS, "from": times[0], "to": times[1]}
    await asyncio.to_thread(rolling.change, updateWindow=today)
    await rolling.until("nothing is left to do", lambda: rolling.is_done() and not rolling.plan())
    assert rolling.variables("DLEDGER_FLUSH_DISK_TYPE") == {"AsyncFlush"}


async def test_an_upgrade_of_the_operator_replaces_no_pod_until_it_is_approved(
    rolling: Rolling,
) -> None:
    rolling.operator.kill()
    rolling.operator.environment["DLEDGER_OPERATOR_NODE_IMAGE"] = "dledger-node:2"
    rolling.operator.start()
    await rolling.until("the plan says so", lambda: rolling.plan().get("cause") == "Operator")
    plan = rolling.plan()
    assert {each["why"] for each in plan["pods"]} == {"image dledger-node:1 to dledger-node:2"}
    assert rolling.condition("Progressing")["reason"] == "AsRequested"

    rolling.namespace.delete_pod("flights-0")  # a drain
    await rolling.until("it was made again", lambda: rolling.made == ["flights-0"])
    assert rolling.images() == {"dledger-node:1"}

    await asyncio.to_thread(rolling.approve, plan["revision"])
    await rolling.until("nothing is left to do", lambda: rolling.is_done() and not rolling.plan())
    assert rolling.images() == {"dledger-node:2"}


async def test_a_new_value_of_restarted_at_replaces_every_pod_once(rolling: Rolling) -> None:
    await asyncio.to_thread(rolling.change, restartedAt="2026-01-02T00:00:00Z")
    await rolling.until("a pod was replaced", lambda: bool(rolling.made))
    await rolling.until("nothing is left to do", rolling.is_done)

    assert sorted(rolling.made) == ["flights-0", "flights-1", "flights-2"]


@pytest.mark.parametrize("last", ["blank", "holds its archive", "holds an archive", "holds a log"])
async def test_a_group_begins_over_retained_claims_only_if_no_member_has_begun(
    api_server: ApiServer, tmp_path: Path, last: str
) -> None:
    """The archive's log shows that an earlier attempt failed after this member had copied it. If it
    is not the archive of `spec.seed`, the attempt was that of another group.
    """
    unbegun = last in ("blank", "holds its archive")
    seed = {"persistentVolumeClaim": {"claimName": "archives"}, "copySha256": "5a" * 32}
    spec = {"seed": seed} if last == "holds its archive" else {}
    async with operated(api_server, tmp_path, members=3) as (namespace, operator, nodes):
        for ordinal in range(3):
            namespace.server.request(
                "POST", namespace.path("persistentvolumeclaims"), claim(ordinal)
            )
        for node in nodes:
            empty = node.member_id != "n2" or last == "blank"
            digest = "5a" * 32 if last.endswith("archive") and not empty else ""
            node.status = node_status(
                node.member_id, ready=False, reason="joining", joining=True, leader_id=None,
                term=0 if empty else 3, ledger_end_index=-1 if empty else 7, committed_index=-1,
                seed_sha256=digest,
            )  # fmt: skip
        made = Rolling(
            namespace, operator, nodes, FakeGroup(nodes, 3), namespace.make_group(**spec)
        )
        controller = asyncio.create_task(control(made))
        try:
            await made.until("three pods are made", lambda: len(made.made) == 3)
            if unbegun:
                await made.until("all are replaced", lambda: len(made.made) == 6)
            else:
                await made.until(
                    "no leader is reported",
                    lambda: made.condition("LeaderElected")["reason"] == "NoLeader",
                )
        finally:
            controller.cancel()
            await asyncio.gather(controller, return_exceptions=True)

        assert is_founded(made) is not unbegun
        assert len(made.made) == (6 if unbegun else 3)


def claim(ordinal: int) -> Object:
    """The volume claim that a deleted group of three has left."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": f"data-flights-{ordinal}",
            "labels": {"dledger.io/group": "flights"},
            "annotations": {"dledger.io/first-voters": "3"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "30Gi"}},
        },
    }


async def test_a_corrected_spec_replaces_pods_that_never_began(
    api_server: ApiServer, tmp_path: Path
) -> None:
    async with rolling_group(api_server, tmp_path, image={"tag": BAD}) as made:
        await made.until("three pods fail", lambda: len(made.made) == 3)
        await asyncio.to_thread(made.change, image={"tag": "good"})
        await made.until("all are replaced", lambda: len(made.made) == 6)

        assert made.images() == {"dledger-node:good"}
        assert sorted(made.made[3:]) == ["flights-0", "flights-1", "flights-2"]
