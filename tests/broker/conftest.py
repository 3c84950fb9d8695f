"""Fixtures: brokers as processes."""

from collections.abc import Iterator

import pytest

from dledger_broker_client.client import BrokerClient
from tools.groups.broker_group import BrokerGroup


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerGroup]:
    """One broker, shared by the tests of a module, which must not stop it."""
    with BrokerGroup(tmp_path_factory.mktemp("broker"), 1) as running:
        running.master()
        yield running


@pytest.fixture
def client(broker: BrokerGroup) -> Iterator[BrokerClient]:
    """A connection to that broker."""
    with BrokerClient(broker.broker_addresses["n0"]) as connected:
        yield connected
