"""Fixtures: the tested versions of Java DLedger and of RocketMQ's clients, and Python members."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import java_dledger, java_rocketmq
from tools.groups.broker_group import BrokerGroup
from tools.groups.node_group import NodeGroup
from tools.java_dledger import JavaMissingError


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a module's tests of one Java version in one worker, since they share a Java group."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(Path(__file__).parent):
            version = getattr(item, "callspec", None) and item.callspec.params.get("java")
            if version:
                item.add_marker(pytest.mark.xdist_group(f"{item.path.stem} {version}"))


def class_path_of(version: str) -> str:
    """Return the class path of a version; skips the test if it is not built."""
    try:
        return java_dledger.find(version)
    except JavaMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=java_dledger.VERSIONS)
def java(request: pytest.FixtureRequest) -> str:
    """Class path of each version in turn."""
    return class_path_of(request.param)


@pytest.fixture(scope="module", params=["0.3.1.2", "0.4.0"])
def java_store(request: pytest.FixtureRequest) -> str:
    """Class path of one version for each of Java's two store formats."""
    return class_path_of(request.param)


@pytest.fixture(scope="session")
def class_path_0_3_1_2() -> str:
    """Class path of the version that RocketMQ has shipped longest."""
    return class_path_of("0.3.1.2")


@pytest.fixture(scope="session")
def class_path_0_4_0() -> str:
    """Class path of the oldest version that supports the no-ops of new leaders."""
    return class_path_of("0.4.0")


@pytest.fixture(scope="module")
def python_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    """Three Python members, shared by the tests of a module, which must not stop them."""
    with NodeGroup(tmp_path_factory.mktemp("python")) as running:
        yield running


@pytest.fixture(scope="module", params=java_rocketmq.CLIENT_VERSIONS)
def rocketmq(request: pytest.FixtureRequest) -> str:
    """Class path of each version of RocketMQ's clients in turn."""
    return rocketmq_class_path_of(request.param)


@pytest.fixture(scope="module")
def rocketmq_5() -> str:
    """Class path of the clients of the version that the broker imitates."""
    return rocketmq_class_path_of("5.3.3")


def rocketmq_class_path_of(version: str) -> str:
    """Return the class path of a version of RocketMQ's clients; skips if it is not built."""
    try:
        return java_rocketmq.find_client(version)
    except JavaMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerGroup]:
    """Three brokers, shared by the tests of a module, which must not stop them."""
    with BrokerGroup(tmp_path_factory.mktemp("brokers")) as running:
        running.master()
        yield running
