"""A namespace with an operator, in which a test plays the controllers, kubelets and members."""

from dataclasses import dataclass
from typing import Any

from dledger_kube.cluster import Object, parsed
from dledger_kube.operated import Operated
from dledger_operator import names


@dataclass(slots=True)
class Cluster(Operated):
    """A namespace with an operator and three fake members."""

    async def elect(self, ordinal: int, term: int) -> None:
        for node in self.nodes:
            await node.say(term, f"n{ordinal}")

    async def create_group(self, **spec: Any) -> Object:
        """Create the group, wait for its StatefulSet, and create the pods of the StatefulSet."""
        body = self.namespace.make_group(**spec)
        await self.until("the StatefulSet exists", lambda: self.has("statefulsets", "flights"))
        for ordinal, node in enumerate(self.nodes):
            self.namespace.make_pod(parsed(body), ordinal, node.ip)
        return body

    def has(self, kind: str, name: str) -> bool:
        found = self.namespace.get(
            kind, group="/apis/apps/v1" if kind == "statefulsets" else "/api/v1"
        )
        return name in [item["metadata"]["name"] for item in found["items"]]

    def service_uid(self, name: str) -> str:
        """Return the uid of a Service; empty while it does not exist."""
        services = self.namespace.get("services")["items"]
        uids = {each["metadata"]["name"]: str(each["metadata"]["uid"]) for each in services}
        return uids.get(name, "")

    def roles(self) -> dict[str, str]:
        pods = self.namespace.get("pods")["items"]
        labels = [(pod["metadata"]["name"], pod["metadata"]["labels"]) for pod in pods]
        return {name: each.get(names.ROLE_LABEL, "") for name, each in labels}

    def last_change(self) -> Object:
        changes: list[Object] = self.status().get("leaderChanges") or [{}]
        return changes[0]

    def point_master_service_to(self, pod: str) -> None:
        """Write the EndpointSlice that the controller would write."""
        self.namespace.point_service("flights", "flights-master", pod)


def led_by(ordinal: int) -> dict[str, str]:
    return {f"flights-{k}": "master" if k == ordinal else "slave" for k in range(3)}
