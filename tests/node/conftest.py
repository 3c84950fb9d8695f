"""Fixtures: groups of real nodes on loopback."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_group.group import NodeGroup


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
