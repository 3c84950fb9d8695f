"""Fixtures: groups of real nodes on loopback."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.groups.node_group import NodeGroup

FOLDER = Path(__file__).parent


OTHER_STAGES = ("storage", "fuzz")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what has a group of its own, unless it is marked for another stage already."""
    for item in items:
        if FOLDER not in item.path.parents or "group" not in getattr(item, "fixturenames", ()):
            continue
        if not any(item.get_closest_marker(stage) for stage in OTHER_STAGES):
            item.add_marker(pytest.mark.group)


@pytest.fixture(scope="module")
def steady_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    """Three members that all tests of a module share, and none may stop."""
    with NodeGroup(tmp_path_factory.mktemp("group")) as running:
        yield running


@pytest.fixture
def group(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members with short timers, running."""
    with NodeGroup(tmp_path) as running:
        yield running
