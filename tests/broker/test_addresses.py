"""What a member tells clients and name servers about its address and the group's."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from dledger_broker.registration import addresses
from dledger_broker.registration.addresses import Addresses
from dledger_broker.settings import BrokerSettings
from dledger_broker_client.client import BrokerClient
from dledger_formats.rocketmq import message_id
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.message_record import host_text
from dledger_formats.rocketmq.names import TopicRoute
from dledger_formats.settings import NodeSettings
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

MEMBERS = {"n0": "10.0.0.1:10911", "n1": "10.0.0.2:10911", "n2": "10.0.0.3:10911"}
OWN = {"n1": MEMBERS["n1"]}


def settings(known: dict[str, str], group_address: str = "") -> BrokerSettings:
    node = NodeSettings(group="g", self_id="n1", peers=MEMBERS, store_base_dir="/nowhere")
    return BrokerSettings(node=node, addresses=known, name="g", group_address=group_address)


def test_without_an_address_of_the_group_the_leader_has_id_0() -> None:
    told = Addresses(settings(MEMBERS))

    assert told.route("n2") == {"0": MEMBERS["n2"], "1": MEMBERS["n0"], "2": MEMBERS["n1"]}
    assert "0" not in told.route(None)
    assert told.own_record(leads=False) == (2, MEMBERS["n1"])
    assert told.own_record(leads=True) == (0, MEMBERS["n1"])
    assert told.group_record(is_wanted=True) is None
    assert host_text(told.store_host()) == MEMBERS["n1"]


@pytest.mark.parametrize("leader", ["n0", "n1", None])
def test_an_address_of_the_group_has_id_0_whoever_leads(leader: str | None) -> None:
    told = Addresses(settings(OWN, "10.96.0.7:10911"))

    assert told.route(leader) == {"0": "10.96.0.7:10911"}
    assert host_text(told.store_host()) == "10.96.0.7:10911"


def test_an_eleventh_member_takes_no_id_from_another() -> None:
    """By its name, n10 came before n2, and all later ids changed with the settings."""
    many = {f"n{number}": f"10.0.0.{number + 1}:10911" for number in range(12)}
    before, after = Addresses(settings(dict(list(many.items())[:10]))), Addresses(settings(many))

    assert after.route(None) == {
        str(number + 1): address for number, address in enumerate(many.values())
    }
    assert before.route(None).items() <= after.route(None).items()
    assert before.own_record(leads=False) == after.own_record(leads=False)


def test_beside_an_address_of_the_group_each_known_member_has_its_ordinal_plus_1() -> None:
    told = Addresses(settings(MEMBERS, "10.96.0.7:10911"))

    assert told.route("n0") == {
        "0": "10.96.0.7:10911",
        "1": MEMBERS["n0"],
        "2": MEMBERS["n1"],
        "3": MEMBERS["n2"],
    }


@pytest.mark.parametrize("leads", [True, False])
def test_a_member_registers_its_own_address_beside_that_of_the_group(leads: bool) -> None:
    told = Addresses(settings(OWN, "10.96.0.7:10911"))

    assert told.own_record(leads=leads) == (2, MEMBERS["n1"])
    assert told.group_record(is_wanted=True) == (0, "10.96.0.7:10911")
    assert told.group_record(is_wanted=False) is None


def test_a_member_that_stands_in_for_the_address_of_the_group_has_one_record() -> None:
    """A name server keeps each address under one id."""
    told = Addresses(settings(OWN, "flights-broker:10911"))

    assert told.own_record(leads=True) == (0, MEMBERS["n1"])
    assert told.group_record(is_wanted=True) is None


class Names:
    """What the event loop finds for every name; OSError if it is nothing."""

    def __init__(self, *found: str) -> None:
        self.found = found
        self.lookups = 0

    async def getaddrinfo(self, _: str, port: int, **__: object) -> list[tuple[object, ...]]:
        self.lookups += 1
        if not self.found:
            raise OSError("Name or service not known")
        return [(0, 0, 0, "", (each, port)) for each in self.found]

    async def until_looked_up_twice(self) -> None:
        before = self.lookups
        await asyncio.to_thread(wait_for, lambda: self.lookups >= before + 2, "two lookups")


@contextlib.asynccontextmanager
async def following(
    names: Names, told: Addresses, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names.getaddrinfo)
    monkeypatch.setattr(addresses, "REFRESH_S", 0.01)
    monkeypatch.setattr(addresses, "RETRY_S", 0.01)
    task = asyncio.create_task(told.follow())
    yield
    task.cancel()


async def test_a_name_is_looked_up_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    names, told = Names(), Addresses(settings(OWN, "flights-broker.air.svc:10911"))
    async with following(names, told, monkeypatch):
        await names.until_looked_up_twice()
        assert told.route("n0") == {"0": MEMBERS["n1"]}, "a member that answers is told"
        for found, text in (("10.96.0.7", "10.96.0.7:10911"), ("fd00::7", "[fd00::7]:10911")):
            names.found = (found,)
            await names.until_looked_up_twice()
            assert told.route("n0") == {"0": text}
            assert host_text(told.store_host()) == text
        names.found = ()
        await names.until_looked_up_twice()

    assert told.published == "[fd00::7]:10911", "the last known address is kept"


async def test_an_address_is_kept_while_the_name_still_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names, told = Names("10.96.0.7", "fd00::7"), Addresses(settings(OWN, "flights-broker:10911"))
    async with following(names, told, monkeypatch):
        await names.until_looked_up_twice()
        names.found = ("fd00::7", "10.96.0.7")
        await names.until_looked_up_twice()

    assert told.published == "10.96.0.7:10911"


def tells(group: BrokerGroup, member: str, address: str) -> bool:
    """Whether a member says that it serves clients, which it leads to this address."""
    broker = group.status(member).broker
    if broker is None:
        return False
    return (broker.name, broker.address, broker.serving) == ("g", address, True)


@pytest.mark.group
def test_every_member_leads_clients_to_the_address_of_the_group(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path, reached_at="localhost") as group:
        shared = group.broker_addresses["n0"]
        group.master()
        for member, address in group.broker_addresses.items():
            wait_for(partial(tells, group, member, shared), f"{member} knows the address")
            with BrokerClient(address) as client:
                sent = client.send("t")
                assert sent.code == ResponseCode.SUCCESS, sent.remark
                client.wait_until_visible("t", 1)
                route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"})
                [broker] = TopicRoute.from_json(route.body).broker_datas
                assert broker.broker_addrs == {"0": shared}, member
                stored_at = message_id.parse((sent.ext_fields or {})["msgId"]).store_host
                assert host_text(stored_at) == shared
