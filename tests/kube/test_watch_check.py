"""Watches that tell nothing, found by comparing LISTs with what was told."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_server.client import ApiServer
from dledger_kube.cluster import API
from dledger_kube.faulty_proxy import FaultyProxy
from dledger_kube.operated import Operated, operated
from dledger_operator import names
from dledger_operator.behaviors.watch_check import (
    BEHIND_S_MAX,
    FORGET_S,
    LOOK_S,
    WatchBehindError,
    WatchCheck,
)

pytest_plugins = ["api_server.fixtures", "dledger_kube.behind_proxy"]


def event(uid: str, version: int, kind: str | None = "MODIFIED") -> dict[str, Any]:
    return {
        "type": kind,
        "object": {"metadata": {"uid": uid, "resourceVersion": str(version)}},
    }


class Server:
    """Objects that change, a watch that tells of it later or never, and a clock."""

    def __init__(self) -> None:
        self.now_s, self.version = 0.0, 0
        self.objects: dict[str, str] = {}
        self.untold: list[dict[str, Any]] = []
        self.behind: list[float] = []
        self.told_during_list: list[dict[str, Any]] = []
        self.check = WatchCheck(
            self, ["Group"], (), clock=lambda: self.now_s, random=Random(1),
            on_behind=lambda _, seconds: self.behind.append(seconds),
        )  # fmt: skip

    def change(self, uid: str) -> None:
        self.version += 1
        self.objects[uid] = str(self.version)
        self.untold.append(event(uid, self.version))

    def delete(self, uid: str) -> None:
        if self.objects.pop(uid, None) is not None:
            self.version += 1
            self.untold.append(event(uid, self.version, "DELETED"))

    def tell(self) -> None:
        for each in self.untold:
            self.check.take("Group", each)
        self.untold.clear()

    async def versions(self, kind: str, namespace: str | None) -> dict[str, str]:
        assert (kind, namespace) == ("Group", None)
        listed = dict(self.objects)
        for each in self.told_during_list:
            self.check.take("Group", each)
        self.told_during_list.clear()
        return listed

    def look(self) -> float:
        self.now_s += LOOK_S
        asyncio.run(self.check.run_once())
        return self.behind[-1]


STEPS = st.lists(
    st.tuples(st.sampled_from(["change", "delete", "look"]), st.sampled_from("abc")), max_size=30
)


@given(STEPS)
def test_a_watch_that_tells_within_an_interval_is_never_behind(
    steps: list[tuple[str, str]],
) -> None:
    server = Server()
    for step, uid in steps:
        if step == "look":
            assert server.look() == 0.0
            server.tell()
        else:
            getattr(server, step)(uid)

    server.check.check()


@given(STEPS, st.sampled_from("abc"))
def test_a_watch_that_tells_nothing_of_a_change_is_found(
    steps: list[tuple[str, str]], uid: str
) -> None:
    server = Server()
    for step, changed in steps:
        if step != "look":
            getattr(server, step)(changed)
    server.tell()
    assert server.look() == 0.0
    server.change(uid)

    ages = [server.look() for _ in range(4)]

    assert ages == [0.0, LOOK_S, 2 * LOOK_S, 3 * LOOK_S]
    server.tell()
    assert server.look() == 0.0


def test_an_event_during_the_list_is_no_silence() -> None:
    server = Server()
    server.change("a")
    server.tell()
    for _ in range(5):  # the LIST is older than what the watch has told meanwhile
        server.version += 1
        server.told_during_list = [event("a", server.version)]
        assert server.look() == 0.0
        server.objects["a"] = str(server.version)


def test_a_deletion_that_was_missed_is_forgotten() -> None:
    server = Server()
    server.change("a")
    server.tell()
    server.delete("a")

    ages = [server.look() for _ in range(4)]

    assert max(ages) < FORGET_S
    assert ages[-1] == 0.0


def test_the_probe_fails_once_a_watch_has_been_silent_for_long() -> None:
    server = Server()
    server.change("a")
    while server.look() <= BEHIND_S_MAX:
        server.check.check()

    with pytest.raises(WatchBehindError, match="Group has missed a change for 3"):
        server.check.check()


async def test_a_watch_of_a_real_server_that_falls_silent_is_told_by_a_metric(
    api_server: ApiServer, proxy: FaultyProxy, tmp_path: Path
) -> None:
    async with operated(api_server, tmp_path, members=1, through=proxy) as parts:
        group = Operated(*parts)
        await asyncio.to_thread(group.namespace.make_group)
        await group.until("the operator has a status", lambda: bool(group.status()))

        def behind() -> float:
            found = [
                line for line in group.operator.metrics().splitlines()
                if line.startswith("dledger_operator_watch_behind_seconds{")
                and names.GROUP_KIND in line
            ]  # fmt: skip
            return float(found[0].split()[-1]) if found else -1.0

        await group.until("the watches are compared", lambda: behind() == 0.0)
        proxy.is_mute = True
        group.namespace.patch("dledgergroups", "flights", {"metadata": {"labels": {"x": "y"}}}, API)

        await group.until("the watch is behind", lambda: behind() >= LOOK_S, within_s=5 * LOOK_S)
        proxy.is_mute = False
        await proxy.cut_watches()
        group.namespace.patch("dledgergroups", "flights", {"metadata": {"labels": {"x": "z"}}}, API)
        await group.until("the watch is level", lambda: behind() == 0.0, within_s=5 * LOOK_S)
