"""Run local Kubernetes clusters: `python3 -m tools.local_cluster COMMAND`, from the root."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from . import disks, host, images, packages, policy_agent, programs
from .cluster import Cluster
from .errors import LocalClusterError
from .layout import DEFAULT_NAME

Action = Callable[[Cluster, argparse.Namespace], int | None]

EXIT_UNHEALTHY = 3
EXIT_ABSENT = 4


def up(cluster: Cluster, arguments: argparse.Namespace) -> None:
    cluster.up()
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def down(cluster: Cluster, arguments: argparse.Namespace) -> None:
    cluster.down(purge=arguments.purge)


def status(cluster: Cluster, arguments: argparse.Namespace) -> int:
    found = cluster.status()
    if arguments.output == "json":
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(status_lines(found)))
    if found["healthy"]:
        return 0
    return EXIT_UNHEALTHY if found["exists"] else EXIT_ABSENT


def status_lines(found: dict[str, Any]) -> list[str]:
    if not found["exists"]:
        return [f"{found['name']}: no such cluster"]
    lines = [f"{found['name']}: slot {found['slot']}, {found['api']}, {found['folder']}"]
    for program, runs in found["control_plane"].items():
        lines.append(f"  {program:24} {'running' if runs else 'stopped'}")
    for name, node in found["nodes"].items():
        state = "ready" if node["ready"] else "not ready" if node["on"] else "off"
        lines.append(f"  {name:24} {state:10} {node['address']}")
    return lines


def kubeconfig(cluster: Cluster, arguments: argparse.Namespace) -> None:
    print(cluster.kubeconfig)


def load(cluster: Cluster, arguments: argparse.Namespace) -> None:
    for image in arguments.images:
        cluster.load(image, nodes=arguments.node)


def stop_node(cluster: Cluster, arguments: argparse.Namespace) -> None:
    cluster.stop_node(arguments.number)


def start_node(cluster: Cluster, arguments: argparse.Namespace) -> None:
    cluster.start_node(arguments.number)


def cut_link(cluster: Cluster, arguments: argparse.Namespace) -> None:
    cluster.cut_link(arguments.number)


def restore_link(cluster: Cluster, arguments: argparse.Namespace) -> None:
    cluster.restore_link(arguments.number)


def add_disk(cluster: Cluster, arguments: argparse.Namespace) -> None:
    storage_class = arguments.storage_class
    cluster.add_disk(
        arguments.number,
        arguments.size,
        name=arguments.disk,
        storage_class=storage_class,
        grows=arguments.grows,
    )


def build(cluster: Cluster, arguments: argparse.Namespace) -> None:
    print(programs.ensure())
    print(policy_agent.ensure())


def build_images(cluster: Cluster, arguments: argparse.Namespace) -> None:
    for name in images.build(arguments.targets or images.TARGETS):
        if arguments.archives:
            print(images.export(name, arguments.archives))


def doctor(cluster: Cluster, arguments: argparse.Namespace) -> int:
    reason = host.why_not()
    missing = packages.missing({**packages.FOR_CLUSTER, **packages.FOR_IMAGES})
    print(reason or "this machine can run a cluster")
    if missing:
        print(f"Debian packages that will be installed on demand: {', '.join(missing)}")
    return 1 if reason else 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python3 -m tools.local_cluster", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)

    def add(name: str, action: Action, about: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=about, description=about)
        command.add_argument(
            "--name", default=DEFAULT_NAME, help="name of the cluster (default: %(default)s)"
        )
        command.set_defaults(action=action)
        return command

    command = add("up", up, "start or repair a cluster; return when its nodes are Ready")
    command.add_argument("--nodes", type=int, help="number of nodes (default: 3)")
    command.add_argument(
        "--slot", type=int, help="slot of the address plan (default: the first free one)"
    )
    command = add("down", down, "stop a cluster")
    command.add_argument("--purge", action="store_true", help="also delete its objects and volumes")
    command = add(
        "status", status, "show the cluster's state; exit with 3 if unhealthy, with 4 if absent"
    )
    command.add_argument("--output", choices=("table", "json"), default="table")
    add("kubeconfig", kubeconfig, "print the path of the administrator's kubeconfig")
    command = add("load", load, "import images into the running nodes")
    command.add_argument("images", nargs="+", help="an image built here, or an OCI archive")
    command.add_argument(
        "--node",
        type=int,
        action="append",
        help="import only into this node; may be repeated (default: all nodes)",
    )
    for name, action, about in (
        ("stop-node", stop_node, "stop a node abruptly, like a power cut"),
        ("start-node", start_node, "start a node again; return when it is Ready"),
        ("cut-link", cut_link, "cut a node off the network; its pods keep running"),
        ("restore-link", restore_link, "reconnect a node to the network"),
    ):
        add(name, action, about).add_argument("number", type=int)
    command = add("add-disk", add_disk, "add a disk of limited size as a PersistentVolume")
    command.add_argument("number", type=int, help="number of the node")
    command.add_argument("--size", default="64Mi", help="size of the disk (default: %(default)s)")
    command.add_argument(
        "--disk",
        default="small",
        help="name of the disk, unique on its node (default: %(default)s)",
    )
    command.add_argument(
        "--storage-class",
        default=disks.DEFAULT_CLASS,
        help="storage class of the volume (default: %(default)s)",
    )
    command.add_argument(
        "--grows", action="store_true", help="let the volume grow; the size is 300Mi or more"
    )
    add("build", build, "build the cluster's programs into the cache; print their folder")
    command = add("images", build_images, "build the project's images")
    command.add_argument("targets", nargs="*", help=f"{', '.join(images.TARGETS)} (default: all)")
    command.add_argument("--archives", type=Path, help="also write OCI archives to this folder")
    add("doctor", doctor, "report whether this machine can run a cluster")
    return top


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Ignore further signals, which would interrupt the cleanup.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    # SIGTERM is handled like Ctrl-C: a partial start is stopped again. A background job of a script
    # ignores Ctrl-C, and must keep ignoring it.
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)
    arguments = parser().parse_args()
    action: Action = arguments.action
    try:
        cluster = Cluster(
            arguments.name,
            slot=getattr(arguments, "slot", None),
            node_count=getattr(arguments, "nodes", None),
        )
        return action(cluster, arguments) or 0
    except (LocalClusterError, ValueError) as error:
        print(f"local cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("local cluster: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
