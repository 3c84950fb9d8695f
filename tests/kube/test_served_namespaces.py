"""A namespace that the API server refuses is left out, and the operator goes on in the others."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import Namespace
from dledger_kube.operated import Operated, operated
from dledger_kube.operator_account import grant_role
from dledger_operator.behaviors import served_namespaces
from dledger_operator.behaviors.served_namespaces import REFUSED_S_MAX, ServedNamespaces
from dledger_operator.behaviors.watch_check import LOOK_S, WatchCheck
from dledger_operator.clients.errors import (
    NotServedError,
    PartlyRefusedError,
    RefusedError,
    UnavailableError,
)

pytest_plugins = ["api_server.fixtures"]


@pytest.fixture(autouse=True)
def asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_namespaces, "AGAIN_S", 0.0)


class Server:
    """An API server that refuses namespaces, and a clock."""

    def __init__(self, *namespaces: str) -> None:
        self.refused, self.lacking = set[str | None](), set[str | None]()
        self.error: Exception | None = None
        self.refuses_once = False
        self.left_out, self.now_s = -1, 0.0
        self.served = ServedNamespaces(self, namespaces, on_left_out=self.leave_out)
        self.behind = dict[str, float]()
        self.listed = dict[str | None, dict[str, str]]()
        self.check = WatchCheck(
            self, ["Group", "Audit"], namespaces, clock=lambda: self.now_s, random=Random(1),
            on_behind=self.behind.__setitem__,
        )  # fmt: skip

    def leave_out(self, count: int) -> None:
        self.left_out = count

    async def check_served(self, namespace: str | None) -> None:
        if self.error:
            raise self.error
        if namespace in self.refused or self.refuses_once:
            self.refuses_once = False
            raise RefusedError(f"list in {namespace}: forbidden")
        if namespace in self.lacking:
            raise PartlyRefusedError(f"list one kind in {namespace}: forbidden")

    async def versions(self, kind: str, namespace: str | None) -> dict[str, str]:
        await self.check_served(namespace)
        return self.listed.get(namespace, {}) if kind == "Group" else {}

    async def compare(self) -> None:
        self.now_s += LOOK_S
        await self.check.run_once()


async def test_a_refused_namespace_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("a", "b", "c")
    server.refused = {"b"}

    with caplog.at_level(logging.ERROR):
        await server.served.look()
        await server.served.look()

    assert (server.served.watched, server.left_out) == (("a", "c"), 1)
    logged = [record.getMessage() for record in caplog.records]
    assert logged == ["b is left out until it can be read: list in b: forbidden"]
    server.refused = set()
    await server.served.look()
    assert (server.served.watched, server.left_out) == (("a", "b", "c"), 0)


async def test_a_namespace_that_is_refused_for_a_moment_is_not_left_out() -> None:
    server = Server("a", "b")
    server.refuses_once = True

    await server.served.look()

    assert (server.served.watched, server.left_out) == (("a", "b"), 0)


@pytest.mark.parametrize("namespaces", [("a", "b"), ("a",), ()])
async def test_a_server_that_refuses_everything_is_waited_for(namespaces: tuple[str, ...]) -> None:
    server = Server(*namespaces)
    server.refused = {None, *namespaces}

    with pytest.raises(RefusedError):
        await server.served.look()

    assert server.served.watched == namespaces


@pytest.mark.parametrize("error", [NotServedError("no such kind"), UnavailableError("no answer")])
async def test_no_namespace_is_left_out_since_the_server_does_not_answer(error: Exception) -> None:
    server = Server("a", "b")
    server.error = error

    with pytest.raises(type(error)):
        await server.served.look()

    assert server.served.watched == ("a", "b")


@pytest.mark.parametrize("namespaces", [("a", "b"), ("b",), ()])
async def test_a_namespace_that_lacks_a_kind_is_waited_for_at_the_first_start_alone(
    namespaces: tuple[str, ...],
) -> None:
    """The pods of the release before work there with the kinds that they know."""
    server = Server(*namespaces)
    server.lacking = {"b", None}

    with pytest.raises(PartlyRefusedError):
        await server.served.look()

    server.lacking = set()
    await server.served.look()
    server.lacking = {"b", None}
    await server.served.look()
    assert (server.served.watched, server.left_out) == (namespaces, 0)


async def test_a_namespace_that_loses_a_kind_later_stays_what_it_was() -> None:
    server = Server("a", "b")
    server.refused = {"a"}
    await server.served.look()
    server.refused, server.lacking = set(), {"a", "b"}

    await server.served.look()

    assert (server.served.watched, server.left_out) == (("b",), 1)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_namespaces, "LOOK_S", 0.001)


async def changes(server: Server, refused_for_s: dict[str, float]) -> bool:
    """Return whether another outcome is noticed."""
    looks = 0

    def refused(namespace: str) -> float:
        nonlocal looks
        looks += 1
        if looks > 10 * len(server.served.watched):
            raise InterruptedError
        return refused_for_s.get(namespace, 0.0)

    try:
        await server.served.changed(refused)
    except InterruptedError:
        return False
    return True


@pytest.mark.usefixtures("soon")
async def test_a_namespace_that_can_be_read_again_is_noticed() -> None:
    server = Server("a", "b")
    server.refused = {"b"}
    await server.served.look()
    assert not await changes(server, {})

    server.refused = set()
    assert await changes(server, {})


@pytest.mark.usefixtures("soon")
async def test_a_namespace_that_is_refused_for_long_is_noticed_unless_all_are() -> None:
    server = Server("a", "b")
    await server.served.look()
    long_s = REFUSED_S_MAX + 1

    assert not await changes(server, {"b": REFUSED_S_MAX})
    assert await changes(server, {"b": long_s})
    assert not await changes(server, {"a": long_s, "b": long_s})


async def restarts(monkeypatch: pytest.MonkeyPatch, readable: Callable[[int], bool]) -> list[float]:
    """Return when everything was started again within an hour, for b that some looks can read."""
    server, now_s, looks = Server("a", "b"), 0.0, 0

    class Clock:
        Event = asyncio.Event

        async def sleep(self, seconds: float) -> None:
            nonlocal now_s
            now_s += seconds
            if now_s > 3600.0:
                raise InterruptedError

    async def check_served(namespace: str | None) -> None:
        nonlocal looks
        looks += namespace == "b"
        if namespace == "b" and not readable(looks):
            raise RefusedError("forbidden")

    monkeypatch.setattr(served_namespaces, "asyncio", Clock())
    monkeypatch.setattr(server, "check_served", check_served)
    begun_s = list[float]()
    with contextlib.suppress(InterruptedError):
        await server.served.look()
        while True:
            await server.served.changed(lambda _: 0.0)
            begun_s.append(now_s)
            await server.served.look()
    return begun_s


async def test_a_namespace_that_one_look_can_read_is_not_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await restarts(monkeypatch, lambda look: look % 3 == 0) == []


async def test_a_namespace_that_flaps_disturbs_the_others_once_a_minute_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun_s = await restarts(monkeypatch, lambda look: look % 4 in (3, 0))

    assert begun_s, "it can be read in two looks in a row"
    gaps_s = [after - before for before, after in itertools.pairwise(begun_s)]
    assert all(each >= REFUSED_S_MAX for each in gaps_s)


async def test_a_namespace_that_can_be_read_is_taken_back_within_two_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await restarts(monkeypatch, lambda look: look > 2) == [2 * served_namespaces.LOOK_S]


async def test_watches_are_compared_although_one_namespace_is_refused() -> None:
    server = Server("a", "b")
    server.refused = {"a"}
    server.listed["b"] = {"uid": "1"}  # of which the watch tells nothing
    for _ in range(3):
        with pytest.raises(RefusedError):
            await server.compare()

    assert server.behind == {"Group": 2 * LOOK_S, "Audit": 0.0}
    assert (server.check.refused_for_s("a"), server.check.refused_for_s("b")) == (2 * LOOK_S, 0.0)
    server.refused = set()
    await server.compare()
    assert server.check.refused_for_s("a") == 0.0


async def test_what_was_told_of_a_namespace_stays_known_while_it_is_refused() -> None:
    server = Server("a", "b")
    server.listed["b"] = {"uid": "1"}
    metadata = {"uid": "uid", "namespace": "b", "resourceVersion": "1"}
    server.check.take("Group", {"type": None, "object": {"metadata": metadata}})
    server.refused = {"b"}
    for _ in range(3):
        with pytest.raises(RefusedError):
            await server.compare()
    server.refused = set()
    await server.compare()

    assert server.behind["Group"] == 0.0


async def test_groups_are_managed_although_another_namespace_was_deleted(
    api_server: ApiServer, tmp_path: Path
) -> None:
    """Its role went with it, and comes back with the next upgrade of the chart."""
    other = Namespace.make(api_server)
    async with operated(api_server, tmp_path, members=1, beside=other.name) as parts:
        group = Operated(*parts)

        def left_out() -> bool:
            return "dledger_operator_namespaces_left_out 1.0" in group.operator.metrics()

        await asyncio.to_thread(group.namespace.make_group)
        await group.until("the operator has a status", lambda: bool(group.status()))
        assert await asyncio.to_thread(left_out)

        await asyncio.to_thread(other.make_group)
        await asyncio.to_thread(grant_role, api_server, group.namespace, other)

        beside = Operated(other, group.operator, [])
        await group.until("the other one has a status too", lambda: bool(beside.status()))
        assert not await asyncio.to_thread(left_out)
