"""RocketMQ's own name server, at which a group of broker members registers itself."""

import contextlib
import http.client
import statistics
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Self

import pytest

import tools.groups.name_server
from dledger_broker.registration import register_broker
from dledger_broker.registration.register_broker import Standing
from dledger_broker.state.broker_state import BrokerState
from dledger_broker.state.tables import TableVersion
from dledger_broker_client.client import BrokerClient
from dledger_broker_client.registering import GROUP_ADDRESS, MEMBERS, SETTINGS
from dledger_formats.protocol.frames import FrameDecoder
from dledger_formats.rocketmq.codes import VERSION_5_3_3, RequestCode, ResponseCode
from dledger_formats.rocketmq.names import TopicRoute
from dledger_java.rocketmq import of_kind, play
from tools import java_rocketmq
from tools.groups.broker_group import BrokerGroup
from tools.groups.node_group import next_port
from tools.groups.waiting import wait_for
from tools.java_dledger import JavaMissingError

pytestmark = [pytest.mark.interop, pytest.mark.sampled(1, by="name_server")]


@contextlib.contextmanager
def running_name_server(folder: Path, version: str, port: int) -> Iterator[str]:
    """Run a name server; yield its address."""
    try:
        with tools.groups.name_server.running_name_server(folder, version, port) as address:
            yield address
    except JavaMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(params=java_rocketmq.NAME_SERVER_VERSIONS)
def name_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a name server of each version in turn."""
    with running_name_server(tmp_path / "names", request.param, next_port()) as address:
        yield address


def route(name_server: str, topic: str) -> dict[str, str]:
    """Return the brokers of a topic by id; empty if the name server knows none."""
    with contextlib.suppress(OSError), BrokerClient(name_server) as client:
        answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        if answer.code == ResponseCode.SUCCESS:
            [broker] = TopicRoute.from_json(answer.body).broker_datas
            return broker.broker_addrs
    return {}


def wanted_route(group: BrokerGroup, leader: str) -> dict[str, str]:
    """Return what the name server should know: each living member, the leader under id 0."""
    return {
        "0" if member == leader else str(number): group.broker_addresses[member]
        for number, member in enumerate(sorted(group.peers), 1)
        if member in group.running()
    }


def wait_for_route(name_server: str, group: BrokerGroup, leader: str) -> None:
    def is_right() -> bool:
        return route(name_server, "TBW102") == wanted_route(group, leader)

    wait_for(is_right, f"the route names {leader} as the master")


@pytest.mark.sampled(1, by="rocketmq")
def test_java_clients_find_the_group_at_the_name_server(
    rocketmq: str, name_server: str, tmp_path: Path
) -> None:
    with BrokerGroup(tmp_path, registered_at=name_server) as group:
        wait_for_route(name_server, group, group.master())
        sent = of_kind(
            play(tmp_path, rocketmq, "send", name_server, topic="named", count=100), "sent"
        )
        wait_for(lambda: route(name_server, "named"), "the new topic is registered")
        pulled = play(
            tmp_path, rocketmq, "pull", name_server, topic="named", group="named-pullers", count=100
        )

    assert {event["status"] for event in sent} == {"SEND_OK"}
    assert len(of_kind(pulled, "received")) == len(sent) == 100


def test_the_route_follows_the_leader_and_forgets_dead_members(
    name_server: str, tmp_path: Path
) -> None:
    with BrokerGroup(tmp_path, registered_at=name_server) as group:
        first = group.master()
        wait_for_route(name_server, group, first)
        group.kill(first)
        second = group.master()
        wait_for_route(name_server, group, second)
        group.start(first)
        group.wait_until_up(first)
        wait_for_route(name_server, group, second)
        group.stop(second)
        wait_for_route(name_server, group, group.master())


def own_records(group: BrokerGroup) -> dict[str, str]:
    """Return the records of living members beside that of the group."""
    return {
        str(number): group.broker_addresses[member]
        for number, member in enumerate(sorted(group.peers), 1)
        if member in group.running()
    }


def test_the_address_of_the_group_is_registered_whoever_leads(
    name_server: str, tmp_path: Path
) -> None:
    """Each record has a connection of its own, so a dead member leaves none behind."""

    def is_right(group: BrokerGroup) -> bool:
        wanted = own_records(group) | {"0": group.group_address}
        return route(name_server, "TBW102") == wanted

    with BrokerGroup(tmp_path, registered_at=name_server, shares_port=True) as group:
        for end in (group.kill, group.stop, group.kill):
            leader = group.master()
            wait_for(partial(is_right, group), f"the route while {leader} leads")
            end(leader)
            other = group.master()
            wait_for(partial(is_right, group), f"the route once {other} leads")
            group.start(leader)
            group.wait_until_up(leader)


def wait_until_up(name_server: str) -> None:
    def is_up() -> bool:
        with contextlib.suppress(OSError), BrokerClient(name_server):
            return True
        return False

    wait_for(is_up, "the name server listens")


def registered(name_server: str, broker_id: int, address: str) -> BrokerClient:
    """Register a broker; return the connection that keeps the record."""
    standing = Standing(broker_id, address, 5, TableVersion())
    body = register_broker.body(SETTINGS, standing, BrokerState().tables)
    [asked] = FrameDecoder().feed(register_broker.frame(SETTINGS, standing, body, 7))
    line = BrokerClient(name_server, version=VERSION_5_3_3)
    assert line.ask(asked.code, asked.ext_fields, asked.body).code == ResponseCode.SUCCESS
    return line


def test_a_name_server_that_has_come_back_gives_no_route_before_it_knows_the_master(
    name_server: str,
) -> None:
    """A client that gets none keeps the one that it has. In one without a master it would have no
    address to send to, until the leader has registered, too.
    """
    wait_until_up(name_server)
    with registered(name_server, 2, MEMBERS["n1"]):
        assert route(name_server, "TBW102") == {}
        with (
            registered(name_server, 0, GROUP_ADDRESS),
            registered(name_server, 1, MEMBERS["n0"]),
        ):
            assert route(name_server, "TBW102") == {
                "0": GROUP_ADDRESS,
                "1": MEMBERS["n0"],
                "2": MEMBERS["n1"],
            }


def test_a_name_server_has_no_route_once_the_only_record_of_a_group_is_gone(
    name_server: str,
) -> None:
    wait_until_up(name_server)
    with registered(name_server, 0, GROUP_ADDRESS):
        assert route(name_server, "TBW102") == {"0": GROUP_ADDRESS}

    wait_for(lambda: not route(name_server, "TBW102"), "the record is dropped")
    assert route(name_server, "TBW102") == {}


class RouteWatch:
    """Asks for the route again and again, and keeps when it named no master."""

    def __init__(self, name_server: str) -> None:
        self.asked = 0
        self.missing_s: list[float] = []
        self._name_server = name_server
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join()

    def _watch(self) -> None:
        with BrokerClient(self._name_server) as client:
            while not self._has_ended.is_set():
                answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
                [broker] = TopicRoute.from_json(answer.body).broker_datas
                self.asked += 1
                if "0" not in broker.broker_addrs:
                    self.missing_s.append(time.monotonic())


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_route_hardly_lacks_a_master_while_leaders_end(
    name_server: str, tmp_path: Path, how: str
) -> None:
    """The living members notice a broken connection as soon as the name server does, and register
    the address of the group before they have elected another leader.
    """
    lacking_s = []
    with BrokerGroup(tmp_path, registered_at=name_server, shares_port=True) as group:
        for _ in range(3):
            leader = group.master()
            wanted = own_records(group) | {"0": group.group_address}
            wait_for(lambda all_=wanted: route(name_server, "TBW102") == all_, "all know all")  # type: ignore[misc]
            with RouteWatch(name_server) as watch:
                wait_for(lambda at=watch: at.asked > 100, "the route is watched")  # type: ignore[misc]
                (group.kill if how == "kill" else group.stop)(leader)
                group.master()
                before = watch.asked
                wait_for(lambda at=watch, n=before: at.asked > n + 100, "the route is watched")  # type: ignore[misc]
            gaps = watch.missing_s
            lacking_s.append(gaps[-1] - gaps[0] if gaps else 0.0)
            group.start(leader)
            group.wait_until_up(leader)

    # An election takes longer, and the next master needs its end.
    assert statistics.median(lacking_s) < 0.1, lacking_s


def test_a_deposed_leader_does_not_stay_the_master_of_the_route(
    name_server: str, tmp_path: Path
) -> None:
    with BrokerGroup(tmp_path, registered_at=name_server) as group:
        first = group.master()
        wait_for_route(name_server, group, first)
        group.freeze(first)
        others = [member for member in group.peers if member != first]

        def second() -> str | None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                leader = group.status(others[0]).leader_id
                return leader if leader in others else None
            return None

        leader = wait_for(second, "another leader")
        expected = wanted_route(group, leader) | {}
        del expected[str(1 + sorted(group.peers).index(first))]
        wait_for(lambda: route(name_server, "TBW102") == expected, "the new leader has id 0")
        group.thaw(first)
        wait_for_route(name_server, group, leader)


def test_a_name_server_that_starts_late_or_again_learns_the_group(tmp_path: Path) -> None:
    port = next_port()
    version = java_rocketmq.NAME_SERVER_VERSIONS[0]
    with BrokerGroup(tmp_path, registered_at=f"127.0.0.1:{port}") as group:
        leader = group.master()
        with BrokerClient(group.broker_addresses[leader]) as client:
            assert client.send("early").code == ResponseCode.SUCCESS
        for _ in range(2):
            with running_name_server(tmp_path / "names", version, port) as address:
                wait_for_route(address, group, leader)
                assert route(address, "early") == wanted_route(group, leader)
