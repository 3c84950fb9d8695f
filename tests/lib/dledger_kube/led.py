"""A group of three with an operator, whose fake members hand over their leadership."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api_server.client import ApiServer
from dledger_kube.cluster import API, Object
from dledger_kube.fake_leader import FakeGroup
from dledger_kube.operated import POLL_S, operated
from dledger_kube.played import Cluster, led_by

KIND = "dledgerswitchovers"
NODES = "/api/v1/nodes"


@dataclass(slots=True)
class Led(Cluster):
    """A group of three that n1 leads, and whose master Service is kept at its leader."""

    members: FakeGroup

    def order(self, name: str, target: str, **spec: Any) -> None:
        """Create a switchover."""
        sent = {
            "apiVersion": "dledger.io/v1alpha1",
            "kind": "DLedgerSwitchover",
            "metadata": {"name": name},
            "spec": {"groupRef": {"name": "flights"}, "target": target, **spec},
        }
        self.namespace.server.request("POST", self.namespace.path(KIND, group=API), sent)

    def result(self, name: str) -> Object:
        """Return the status of a switchover; empty before the operator's first write."""
        found: Object = self.namespace.get(KIND, name, API).get("status", {})
        return found

    def outcome(self, name: str) -> tuple[str, str]:
        """Return the phase and the reason of a switchover."""
        status = self.result(name)
        condition = (status.get("conditions") or [{}])[0]
        return status.get("phase", ""), condition.get("reason", "")

    def change(self, **spec: Any) -> None:
        """Change the group's spec."""
        self.namespace.patch("dledgergroups", "flights", {"spec": spec}, API)

    def node(self, ordinal: int) -> str:
        """Return the name of the node of a member's pod, which no other test uses."""
        return f"{self.namespace.name}-{ordinal}"

    def make_nodes(self, **labels: str) -> None:
        """Create a Node for each pod, and bind the pod to it."""
        for ordinal in range(len(self.nodes)):
            metadata = {"name": self.node(ordinal), "labels": labels | {"ordinal": str(ordinal)}}
            made = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            self.namespace.server.request("POST", NODES, made)
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": f"flights-{ordinal}"},
                "target": {"kind": "Node", "name": self.node(ordinal)},
            }
            path = self.namespace.path("pods", f"flights-{ordinal}/binding")
            self.namespace.server.request("POST", path, binding)

    def delete_nodes(self) -> None:
        """Delete the Nodes, which belong to no namespace."""
        listed = self.namespace.server.request("GET", NODES)["items"]
        for name in (each["metadata"]["name"] for each in listed):
            if name.startswith(self.namespace.name):
                self.namespace.server.request("DELETE", f"{NODES}/{name}")

    def change_node(self, ordinal: int, **spec: Any) -> None:
        """Change the spec of a Node."""
        self.namespace.server.request(
            "PATCH",
            f"{NODES}/{self.node(ordinal)}",
            {"spec": spec},
            content_type="application/merge-patch+json",
        )

    def play_endpoints(self) -> None:
        """Do what the controller of EndpointSlices does."""
        masters = [name for name, role in self.roles().items() if role == "master"]
        if len(masters) == 1:
            self.point_master_service_to(masters[0])


async def _control(led: Led) -> None:
    while True:
        await asyncio.to_thread(led.play_endpoints)
        await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def led_group(api_server: ApiServer, folder: Path, **spec: Any) -> AsyncIterator[Led]:
    """Yield a group of three that n1 leads; `spec` overrides keys of its spec."""
    async with operated(api_server, folder, members=3) as parts:
        made = Led(*parts, members=FakeGroup(parts[2], voters=3))
        await made.create_group(**spec)
        await made.members.elect("n1", 7)
        controller = asyncio.create_task(_control(made))
        try:
            async with made.members.serve_all():
                await made.until("n1 is labeled", lambda: made.roles() == led_by(1))
                yield made
        finally:
            controller.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await controller
            made.delete_nodes()
