"""Nodes that are drained with kubectl."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from dledger_e2e.group import Group


def drain(group: Group, node: str) -> None:
    """Evict the group's pods from a node; other tests' pods stay."""
    selector = f"--pod-selector=dledger.io/group={group.name}"
    group.kubectl("drain", node, selector, "--delete-emptydir-data", "--timeout=120s")


@contextlib.contextmanager
def drained(group: Group, *nodes: str) -> Iterator[list[Future[None]]]:
    """Drain nodes at the same time, and make them schedulable again at the end.

    The block runs while kubectl evicts; the nodes are empty at its end.
    """
    try:
        with ThreadPoolExecutor(len(nodes)) as threads:
            drains = [threads.submit(drain, group, node) for node in nodes]
            yield drains
            for each in drains:
                each.result()
    finally:
        for node in nodes:
            group.kubectl("uncordon", node)
