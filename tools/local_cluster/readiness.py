"""Wait until nodes are Ready, and explain why they are not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from . import node
from .errors import LocalClusterError, with_log
from .layout import Layout, NodeLayout
from .waiting import answers, wait_until

NODES_READY_SECONDS = 120.0
PROXY_HEALTH_PORT = 10256

Kubectl = Callable[..., str]


def node_objects(kubectl: Kubectl) -> dict[str, Any]:
    """Return the node objects by name; empty if the API does not answer."""
    try:
        text = kubectl("get", "nodes", "--output=json", "--request-timeout=5s")
    except LocalClusterError:
        return {}
    return {item["metadata"]["name"]: item for item in json.loads(text)["items"]}


def switched_on_at(layout: Layout, each: NodeLayout) -> float:
    try:
        return node.record(layout, each).stat().st_mtime
    except FileNotFoundError:
        return time.time()


def is_ready(node_object: Any, since: float) -> bool:
    """Return whether a node is Ready and has sent a heartbeat since its last start.

    A node that restarts before its loss was noticed still has the condition from before.
    """
    for condition in (node_object or {}).get("status", {}).get("conditions", []):
        if condition["type"] == "Ready" and condition["status"] == "True":
            heartbeat = datetime.fromisoformat(condition["lastHeartbeatTime"]).timestamp()
            # Heartbeats carry whole seconds, rounded down.
            return heartbeat + 1 > since
    return False


def wait_for_nodes(layout: Layout, nodes: list[NodeLayout], kubectl: Kubectl) -> None:
    """Wait until these nodes are Ready and their proxies have written their rules."""

    def all_ready() -> bool:
        for each in nodes:
            if not node.is_running(layout, each):
                message = f"{each.name} has ended unexpectedly"
                raise LocalClusterError(with_log(message, node.log(layout, each, "init")))
        objects = node_objects(kubectl)
        return all(
            is_ready(objects.get(each.name), switched_on_at(layout, each))
            and answers(f"http://{each.address}:{PROXY_HEALTH_PORT}/healthz")
            for each in nodes
        )

    def explain() -> str:
        objects = node_objects(kubectl)
        late = [each for each in nodes if not is_ready(objects.get(each.name), 0)] or nodes
        message = f"the first node that is not Ready: {late[0].name}"
        for program in ("init", "containerd", "kubelet", "kube-proxy"):
            message = with_log(message, node.log(layout, late[0], program))
        return message

    wait_until(
        f"nodes {', '.join(each.name for each in nodes)} are Ready",
        all_ready,
        deadline_seconds=NODES_READY_SECONDS,
        explain=explain,
        poll_seconds=0.3,
    )
