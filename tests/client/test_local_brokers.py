"""The members of a local group as RocketMQ brokers: their ports and their settings."""

from pathlib import Path

import pytest

from dledger_broker import settings as broker_settings
from dledger_broker.settings import BrokerSettings
from dledger_client.local.broker import LocalBroker
from dledger_client.local.errors import LocalGroupError
from dledger_client.local.folder import GroupShape
from dledger_client.local.group import LocalGroup
from dledger_client.local.member import environment_of_member
from dledger_formats.settings import NodeSettings

SETTINGS = NodeSettings(
    group="local", self_id="n0", peers={"n0": "127.0.0.1:20911"}, store_base_dir="/nowhere"
)
INHERITED = {"PATH": "/bin", "DLEDGER_SNAPSHOT_THRESHOLD": "7", "DLEDGER_CLIENT_GROUP": "g"}


def test_a_local_broker_makes_snapshots_as_seldom_as_any_broker() -> None:
    broker = LocalBroker.of("local", ["n0"], "127.0.0.1", 9876)

    environment = environment_of_member(SETTINGS, broker.environment(), INHERITED)
    read = BrokerSettings.from_environment(
        {name: text for name, text in environment.items() if name.startswith("DLEDGER_")}
    )

    assert read.node.snapshot_threshold == broker_settings.SNAPSHOT_THRESHOLD
    assert environment["PATH"] == "/bin"


def test_a_local_member_that_is_no_broker_gets_its_own_settings_only() -> None:
    environment = environment_of_member(SETTINGS, {}, INHERITED)

    assert NodeSettings.from_environment(
        {name: text for name, text in environment.items() if name.startswith("DLEDGER_")}
    ) == SETTINGS  # fmt: skip


@pytest.mark.parametrize(("first_port", "broker_port"), [(9870, 9876), (20911, 20910)])
def test_ports_that_members_and_their_brokers_would_share_are_refused_in_words(
    tmp_path: Path, first_port: int, broker_port: int
) -> None:
    shape = GroupShape(group="local", members=3 if first_port == 20911 else 5, broker=True)

    with pytest.raises(LocalGroupError, match="--port and --broker-port both") as refused:
        LocalGroup(shape, tmp_path, first_port=first_port, broker_port=broker_port)

    assert str(max(first_port, broker_port)) in str(refused.value)


def test_ports_of_members_and_their_brokers_may_be_neighbours(tmp_path: Path) -> None:
    shape = GroupShape(group="local", members=3, broker=True)

    group = LocalGroup(shape, tmp_path, first_port=9870, broker_port=9876)

    assert group.broker is not None
    assert group.broker.address == "127.0.0.1:9876"
