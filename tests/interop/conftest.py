"""Fixtures: Java DLedger in every version that matters, and a Python group to meet it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import java_dledger
from tools.groups.node_group import NodeGroup
from tools.java_dledger import JavaMissingError


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together, on one core, what shares a group of Java members: a module's tests of one
    version.
    """
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(Path(__file__).parent):
            version = getattr(item, "callspec", None) and item.callspec.params.get("java")
            if version:
                item.add_marker(pytest.mark.xdist_group(f"{item.path.stem} {version}"))


def class_path_of(version: str) -> str:
    """The class path of a version; skips the test where it is not built."""
    try:
        return java_dledger.find(version)
    except JavaMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=java_dledger.VERSIONS)
def java(request: pytest.FixtureRequest) -> str:
    """Class path of one version after the other."""
    return class_path_of(request.param)


@pytest.fixture(scope="module", params=["0.3.1.2", "0.4.0"])
def java_store(request: pytest.FixtureRequest) -> str:
    """Class path of one version for each of the two ways in which Java keeps its store."""
    return class_path_of(request.param)


@pytest.fixture(scope="session")
def class_path_0_3_1_2() -> str:
    """Class path of the version that RocketMQ ships longest."""
    return class_path_of("0.3.1.2")


@pytest.fixture(scope="session")
def class_path_0_4_0() -> str:
    """Class path of the oldest version that knows the empty entries of new leaders."""
    return class_path_of("0.4.0")


@pytest.fixture(scope="module")
def python_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    """Three Python members that all tests of a module share, and none may stop."""
    with NodeGroup(tmp_path_factory.mktemp("python")) as running:
        yield running
