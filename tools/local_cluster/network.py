"""The bridge between the nodes, their links, and the machine's routes to them.

The nodes exchange pod traffic directly over the bridge, and no node has a route out of the test
ranges. The machine therefore forwards nothing, and its firewall stays unchanged. `unreachable`
routes cover the rest of these ranges, so no packet for a dead pod leaves through the uplink.
"""

from __future__ import annotations

import json
from pathlib import Path

from .commands import run, succeeds
from .errors import LocalClusterError
from .layout import NODES_MAX, SLOTS, TEST_RANGE, Layout, NodeLayout, bridge_name

NODE_INTERFACE = "eth0"
SYSCTLS = Path("/proc/sys/net")


def _link_exists(name: str) -> bool:
    return Path("/sys/class/net", name).exists()


def ensure_kernel_modules(sysctls: Path = SYSCTLS) -> None:
    """Load kernel modules that a stock kernel may not have loaded yet.

    kube-proxy exits if the settings of connection tracking are missing. Packets on a node's bridge
    must also pass iptables, for Services whose client and pod are on the same node. New network
    namespaces, and so all nodes, have that enabled; on the machine itself it is switched off.
    """
    if not (sysctls / "netfilter" / "nf_conntrack_max").exists():
        run("modprobe", "nf_conntrack")
    if not (sysctls / "bridge").is_dir():
        run("modprobe", "br_netfilter")
        for protocol in ("iptables", "ip6tables", "arptables"):
            (sysctls / "bridge" / f"bridge-nf-call-{protocol}").write_text("0")


def ensure_bridge(layout: Layout) -> None:
    """Create the bridge and the machine's routes; raises LocalClusterError if they conflict."""
    if not _link_exists(layout.bridge):
        _refuse_taken_range(layout)
        run("ip", "link", "add", layout.bridge, "type", "bridge")
    run("ip", "link", "set", layout.bridge, "alias", layout.name)
    run("ip", "address", "replace", f"{layout.host_address}/24", "dev", layout.bridge)
    run("ip", "link", "set", layout.bridge, "up")
    metric = str(layout.unreachable_metric)
    run("ip", "route", "replace", "unreachable", TEST_RANGE, "metric", metric)
    for number in range(1, NODES_MAX + 1):
        node = layout.node(number)
        run(
            *("ip", "route", "replace", node.pod_range),
            *("via", node.address, "dev", layout.bridge),
        )


def slot_of_bridge(name: str) -> int | None:
    """Return the slot of the bridge of the cluster with this name; None if there is no bridge."""
    for slot in range(SLOTS):
        alias = Path("/sys/class/net", bridge_name(slot), "ifalias")
        if alias.exists() and alias.read_text().strip() == name:
            return slot
    return None


def _refuse_taken_range(layout: Layout) -> None:
    found = json.loads(run("ip", "-json", "route", "show", "root", layout.pods_and_nodes_range))
    if found:
        raise LocalClusterError(
            f"slot {layout.slot} needs {layout.pods_and_nodes_range}, but a route to"
            f" {found[0].get('dst')} exists; choose another --slot"
        )


def connect_node(layout: Layout, node: NodeLayout, pid: int) -> None:
    """Connect a node to the bridge and add its routes; `pid` is a process inside the node."""
    if _link_exists(node.link):
        run("ip", "link", "delete", node.link)
    run(
        *("ip", "link", "add", node.link, "type", "veth"),
        *("peer", "name", NODE_INTERFACE, "netns", str(pid)),
    )
    run("ip", "link", "set", node.link, "master", layout.bridge, "up")
    lines = [
        "link set lo up",
        f"address add {node.address}/24 dev {NODE_INTERFACE}",
        f"link set {NODE_INTERFACE} up",
        # A Service's address is rewritten only for packets that have a route.
        f"route add {layout.service_range} via {layout.host_address}",
    ]
    for number in range(1, NODES_MAX + 1):
        other = layout.node(number)
        if other != node:
            lines.append(f"route add {other.pod_range} via {other.address}")
    run(
        *("nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-"),
        input_text="\n".join(lines) + "\n",
    )


def is_connected(node: NodeLayout) -> bool:
    return _link_exists(node.link)


def set_node_link(node: NodeLayout, *, up: bool) -> None:
    """Connect or disconnect a node's link, without stopping anything on the node."""
    run("ip", "link", "set", node.link, "up" if up else "down")


def disconnect_node(node: NodeLayout) -> None:
    """Remove a node's link now; the kernel removes it some time after the last process ends."""
    if not _link_exists(node.link) or succeeds("ip", "link", "delete", node.link):
        return
    # The kernel may have removed it in the meantime.
    if _link_exists(node.link):
        raise LocalClusterError(f"cannot remove the link {node.link} of {node.name}")


def remove(layout: Layout) -> None:
    for number in range(1, NODES_MAX + 1):
        disconnect_node(layout.node(number))
    if _link_exists(layout.bridge):
        # The routes through the bridge go with it.
        run("ip", "link", "delete", layout.bridge)
    metric = str(layout.unreachable_metric)
    if json.loads(run("ip", "-json", "route", "show", TEST_RANGE, "metric", metric)):
        run("ip", "route", "delete", "unreachable", TEST_RANGE, "metric", metric)
