"""Nodes are read again, so that a watch that tells nothing hides no drain."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web

from dledger_kube.objects import pod
from dledger_operator.behaviors.handover.node_reads import NodeReads
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.clients.kubernetes import NODES_AT_ONCE, KubeApi

Body = dict[str, Any]


def node(name: str, version: int, *, cordoned: bool = False, **labels: str) -> Body:
    return {
        "metadata": {"name": name, "resourceVersion": str(version), "labels": labels},
        "spec": {"unschedulable": cordoned},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


class Server:
    """An API server with Nodes, and an operator that has been told of some."""

    def __init__(self, *told: Body) -> None:
        self.known, self.found = Nodes(), list(told)
        self.known.readable = True
        self.differed: list[str] = []
        self.during_the_list: Callable[[], object] = lambda: None
        for each in told:
            self.known.changed(each)
        self.reads = NodeReads(self, self.known, Random(1), self.differed.append)

    async def nodes(self) -> Sequence[Body]:
        found = list(self.found)
        self.during_the_list()
        return found


def why(server: Server, name: str) -> str:
    return server.known.why_emptied(pod(0, node=name))


async def test_a_cordon_that_no_watch_told_is_noticed() -> None:
    server = Server(node("a", 1), node("b", 2))
    server.found = [node("a", 1), node("b", 3, cordoned=True)]

    await server.reads.run_once()

    assert server.differed == ["b"]
    assert (why(server, "a"), why(server, "b")) == ("", "it is cordoned")


async def test_a_node_in_which_nothing_that_matters_has_changed_wakes_nobody() -> None:
    server = Server(node("a", 1))
    server.found = [node("a", 2)]

    await server.reads.run_once()

    assert server.differed == []


async def test_nodes_that_came_and_went_are_noticed() -> None:
    server = Server(node("a", 1))
    server.found = [node("b", 2)]

    await server.reads.run_once()

    assert sorted(server.differed) == ["a", "b"]
    assert server.known.get("a") is None
    assert server.known.get("b") is not None


async def test_what_the_watch_tells_during_the_list_is_newer() -> None:
    server = Server(node("a", 1), node("b", 2), node("c", 3))

    def tell() -> None:
        server.known.changed(node("a", 9, cordoned=True))
        server.known.deleted(node("b", 10))
        server.known.changed(node("d", 11))

    server.during_the_list = tell
    await server.reads.run_once()

    assert server.differed == []
    assert why(server, "a") == "it is cordoned"
    assert [server.known.get(each) is not None for each in "abcd"] == [True, False, True, True]


async def test_a_watch_that_lags_behind_a_list_hides_no_cordon() -> None:
    server = Server(node("a", 1))
    server.found = [node("a", 9, cordoned=True)]
    await server.reads.run_once()

    assert not server.known.changed(node("a", 5))
    assert why(server, "a") == "it is cordoned"
    assert server.known.changed(node("a", 10))
    assert why(server, "a") == ""


async def test_a_list_of_a_restored_server_counts_although_its_versions_are_older() -> None:
    server = Server(node("a", 9))
    server.found = [node("a", 5, cordoned=True)]

    await server.reads.run_once()

    assert why(server, "a") == "it is cordoned"


async def test_nodes_that_may_not_be_read_are_not_read() -> None:
    server = Server()
    server.known.readable = False

    await server.reads.run()

    assert server.differed == []


@contextlib.asynccontextmanager
async def serving(nodes: Sequence[Body], folder: Path) -> AsyncIterator[tuple[Path, list[str]]]:
    """Serve LISTs of Nodes in pages; yield a kubeconfig, and the limits that were asked for."""
    limits: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        limits.append(request.query.get("limit", ""))
        begin = int(request.query.get("continue", "0"))
        end = begin + int(request.query["limit"])
        more = {"continue": str(end)} if end < len(nodes) else {}
        return web.json_response(
            {"kind": "NodeList", "apiVersion": "v1", "metadata": more, "items": nodes[begin:end]}
        )

    application = web.Application()
    application.router.add_get("/api/v1/nodes", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = folder / "kubeconfig"
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    config.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }))  # fmt: skip
    try:
        yield config, limits
    finally:
        await runner.cleanup()


async def test_nodes_are_listed_in_pages_with_what_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taint = {"key": "ToBeDeleted", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    nodes = [node(f"worker-{each}", each, zone="a") for each in range(NODES_AT_ONCE + 1)]
    nodes[-1]["spec"] = {"taints": [taint], "podCIDR": "10.0.0.0/24"}
    nodes[-1]["metadata"] |= {"uid": "a-uid", "annotations": {"a": "b"}}
    nodes[0] = {"metadata": {"name": "worker-0", "resourceVersion": "0"}, "spec": {}, "status": {}}
    async with serving(nodes, tmp_path) as (config, limits):
        monkeypatch.setenv("KUBECONFIG", str(config))
        api = KubeApi.open()
        found = await api.nodes()
        await api.close()

    known = Nodes()
    assert known.listed({}, found) == [each["metadata"]["name"] for each in nodes]
    assert limits == [str(NODES_AT_ONCE)] * 2
    last, first = known.get(f"worker-{NODES_AT_ONCE}"), known.get("worker-0")
    assert last is not None
    assert first is not None
    assert (last.labels, last.ready, last.cordoned) == ({"zone": "a"}, True, False)
    assert last.why_emptied(pod(0)) == "it has the taint ToBeDeleted:NoSchedule"
    assert (first.labels, first.ready) == ({}, False)
