"""The broker's settings, as they are read from the environment."""

import pytest

from dledger_broker.registration import register_broker, routes
from dledger_broker.registration.register_broker import Standing
from dledger_broker.settings import SNAPSHOT_THRESHOLD, BrokerSettings
from dledger_broker.state.tables import TableVersion
from dledger_formats import live_settings
from dledger_formats.protocol.frames import FrameDecoder
from dledger_formats.rocketmq.broker_variables import LIVE_DEFAULTS
from dledger_formats.settings import NodeSettings, SettingsError

MEMBER = {
    "DLEDGER_GROUP": "orders",
    "DLEDGER_SELF_ID": "n0",
    "DLEDGER_PEERS": "n0-127.0.0.1:20911;n1-127.0.0.1:20912",
    "DLEDGER_STORE_BASE_DIR": "/data",
}
ADDRESSES = {"DLEDGER_BROKER_ADDRESSES": "n0-127.0.0.1:10911;n1-127.0.0.1:10912"}


def test_a_broker_is_named_after_its_group() -> None:
    settings = BrokerSettings.from_environment(MEMBER | ADDRESSES)

    assert settings.name == "orders"
    assert settings.own_address == ("127.0.0.1", 10911)
    assert settings.auto_create_topics
    assert settings.node.snapshot_threshold == SNAPSHOT_THRESHOLD


def test_routes_and_registrations_name_the_cluster_that_is_set() -> None:
    settings = BrokerSettings.from_environment(
        MEMBER | ADDRESSES | {"DLEDGER_BROKER_CLUSTER": "north"}
    )
    standing = Standing(0, "127.0.0.1:10911", 1, TableVersion())
    [registered] = FrameDecoder().feed(register_broker.frame(settings, standing, b"", 7))

    shown = routes.cluster(settings, settings.addresses)

    assert shown.cluster_addr_table == {"north": ["orders"]}
    assert {each.cluster for each in shown.broker_addr_table.values()} == {"north"}
    assert (registered.ext_fields or {})["clusterName"] == "north"


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("10.1.2.3:10911", "10.1.2.3:10911"),
        ("[10.1.2.3]:10911", "10.1.2.3:10911"),
        ("[fd00::7]:10911", "[fd00::7]:10911"),
    ],
)
def test_behind_an_address_of_the_group_a_member_need_only_know_its_own(
    given: str, known: str
) -> None:
    settings = BrokerSettings.from_environment(
        MEMBER
        | {"DLEDGER_BROKER_GROUP_ADDRESS": "orders.svc:10911", "DLEDGER_BROKER_OWN_ADDRESS": given}
    )

    assert settings.addresses == {"n0": known}
    assert settings.group_address == "orders.svc:10911"
    assert settings.own_address[1] == 10911


def test_only_a_group_with_an_address_may_leave_its_members_unregistered() -> None:
    without = {"DLEDGER_BROKER_REGISTER_MEMBERS": "false"}
    shared = {"DLEDGER_BROKER_GROUP_ADDRESS": "orders.svc:10911"}

    assert BrokerSettings.from_environment(MEMBER | ADDRESSES).register_members
    told = BrokerSettings.from_environment(MEMBER | ADDRESSES | shared | without)
    assert not told.register_members
    with pytest.raises(SettingsError, match="nothing would be registered"):
        BrokerSettings.from_environment(MEMBER | ADDRESSES | without)


def test_a_given_snapshot_threshold_is_kept() -> None:
    given = {"DLEDGER_SNAPSHOT_THRESHOLD": "1000"}

    settings = BrokerSettings.from_environment(MEMBER | ADDRESSES | given)

    assert settings.node.snapshot_threshold == 1000


def test_one_address_may_have_a_thousand_connections_since_gateways_hide_clients() -> None:
    settings = BrokerSettings.from_environment(MEMBER | ADDRESSES)

    assert settings.node.connections_per_address_max == 1000
    assert settings.node.connections_max == 1536, "others find a third of the places"
    kept = live_settings.overlay(settings.node, "DLEDGER_CONNECTIONS_MAX=5000")
    assert kept.connections_per_address_max == 1000, "a file without the setting changes nothing"


def test_the_operator_is_told_of_each_live_setting_with_a_default_of_brokers() -> None:
    """Else it waits forever until members have the defaults of other groups."""
    broker = BrokerSettings.from_environment(MEMBER | ADDRESSES).node
    member = NodeSettings.from_environment(MEMBER)
    values = {name: getattr(broker, name) for name in live_settings.LIVE}
    differing = {name: each for name, each in values.items() if each != getattr(member, name)}

    assert differing == LIVE_DEFAULTS


def test_a_given_limit_of_one_address_is_kept() -> None:
    given = {"DLEDGER_CONNECTIONS_PER_ADDRESS_MAX": "64"}

    settings = BrokerSettings.from_environment(MEMBER | ADDRESSES | given)

    assert settings.node.connections_per_address_max == 64


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"DLEDGER_BROKER_ADDRESSES": ""}, "no address of n0"),
        ({"DLEDGER_BROKER_ADDRESSES": "n0-127.0.0.1:10911"}, "no address of n1"),
        ({"DLEDGER_BROKER_ADDRESSES": "n0-broker:1;n1-127.0.0.1:2"}, "IP:port is needed"),
        ({"DLEDGER_BROKER_ADDRESSES": "n0"}, "is not a member"),
        ({"DLEDGER_BROKER_GROUP_ADDRESS": "orders"}, "the form is HOST:PORT"),
        (
            {"DLEDGER_BROKER_OWN_ADDRESS": "127.0.0.1:1"},
            "DLEDGER_BROKER_OWN_ADDRESS and DLEDGER_BROKER_ADDRESSES are both set",
        ),
        (
            {"DLEDGER_BROKER_OWN_ADDRESS": "127.0.0.1:1", "DLEDGER_BROKER_ADDRESSES": ""},
            "without DLEDGER_BROKER_GROUP_ADDRESS",
        ),
        (
            {
                "DLEDGER_BROKER_OWN_ADDRESS": "host:1",
                "DLEDGER_BROKER_ADDRESSES": "",
                "DLEDGER_BROKER_GROUP_ADDRESS": "orders:1",
            },
            "IP:port is needed",
        ),
        ({"DLEDGER_BROKER_NAME": "a b"}, "letters"),
        ({"DLEDGER_BROKER_AUTO_CREATE_TOPICS": "yes"}, "true or false"),
        (
            {
                "DLEDGER_BROKER_GROUP_ADDRESS": "127.0.0.1:10912",
                "DLEDGER_BROKER_SHARES_PORT": "true",
            },
            "is the address of n1",
        ),
        ({"DLEDGER_BROKER_SHARES_PORT": "true"}, "GROUP_ADDRESS is empty"),
        ({"DLEDGER_BROKER_SHARES_PORT": "1"}, "true or false"),
        ({"DLEDGER_BROKER_PORT": "1"}, "unknown setting DLEDGER_BROKER_PORT"),
        ({"DLEDGER_STATE_MACHINE": "register"}, "a broker's state is its own"),
    ],
)
def test_a_wrong_setting_is_named(changed: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError) as error:
        BrokerSettings.from_environment(MEMBER | ADDRESSES | changed)

    assert words in str(error.value)
