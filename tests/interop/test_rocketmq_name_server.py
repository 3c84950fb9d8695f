"""RocketMQ's own name server, at which a group of broker members registers itself."""

import contextlib
import http.client
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.names import TopicRoute
from dledger_java.rocketmq import of_kind, play
from tools import java_rocketmq
from tools.groups.broker_group import BrokerGroup
from tools.groups.java_process import start_java
from tools.groups.node_group import next_port
from tools.groups.waiting import wait_for
from tools.java_dledger import JavaMissingError

pytestmark = [pytest.mark.interop, pytest.mark.sampled(1, by="name_server")]

MAIN = "org.apache.rocketmq.namesrv.NamesrvStartup"


@contextlib.contextmanager
def running_name_server(folder: Path, version: str, port: int) -> Iterator[str]:
    """Run a name server; yield its address."""
    try:
        class_path = java_rocketmq.find_name_server(version)
    except JavaMissingError as error:
        pytest.skip(str(error))
    folder.mkdir(exist_ok=True)
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf" / "logback_namesrv.xml").write_text("<configuration/>")  # 4.9 ends without it
    settings = folder / "name-server.conf"
    settings.write_text(f"listenPort={port}\n")
    with (folder / "name-server.log").open("ab") as log:
        process = start_java(
            class_path, MAIN, ["-c", str(settings)], home=folder, log=log,
            options=("-Xmx256m", "-XX:+UseSerialGC", f"-Drocketmq.home.dir={folder}"),
        )  # fmt: skip
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


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


def test_the_address_of_the_group_is_registered_whoever_leads(
    name_server: str, tmp_path: Path
) -> None:
    """A name server also keeps what a new leader has registered before, as a follower."""

    def is_right(group: BrokerGroup, leader: str) -> bool:
        found = route(name_server, "TBW102")
        followers = wanted_route(group, leader).items() - {("0", group.broker_addresses[leader])}
        living = {group.broker_addresses[member] for member in group.running()}
        return (
            found.get("0") == group.group_address
            and followers <= found.items()
            and {*found.values()} <= living | {group.group_address}
        )

    with BrokerGroup(tmp_path, registered_at=name_server, shares_port=True) as group:
        for _ in range(2):
            leader = group.master()
            wait_for(partial(is_right, group, leader), f"the route while {leader} leads")
            group.kill(leader)
            other = group.master()
            wait_for(partial(is_right, group, other), f"the route once {other} leads")
            group.start(leader)
            group.wait_until_up(leader)


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
