"""Connections leave enough of the files that a process may open."""

import logging
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_formats.settings import NodeSettings
from dledger_node import open_files
from dledger_node.remoting.limits import Limits
from tools.groups.node_group import NodeGroup


@pytest.fixture
def soft_limit() -> Iterator[int]:
    """Give processes a low soft limit, which they may raise."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = min(soft, 1024)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowered, hard))
    yield lowered
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_take_at_most_half_of_the_files(
    soft_limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    assert open_files.connections_that_fit(soft_limit // 2) == soft_limit // 2
    assert not caplog.messages
    assert open_files.connections_that_fit(5000) == soft_limit // 2
    assert "instead of 5000" in caplog.messages[0]


def test_a_change_of_another_setting_does_not_tell_the_limit_of_open_files_again(
    soft_limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    settings = NodeSettings(
        group="g", self_id="n0", peers={"n0": "a:1"}, store_base_dir="/d", connections_max=5000
    )
    limits = Limits.of(settings)
    changed = Limits.of(replace(settings, connections_per_address_max=7), limits)
    assert (changed.connections_max, changed.connections_per_address_max) == (soft_limit // 2, 7)
    assert len(caplog.messages) == 1

    fewer = Limits.of(replace(settings, connections_max=100), changed)
    more = Limits.of(replace(settings, connections_max=6000), fewer)

    assert (fewer.connections_max, more.connections_max) == (100, soft_limit // 2)
    assert len(caplog.messages) == 2
    assert "instead of 6000" in caplog.messages[1]


@pytest.mark.group
def test_a_member_raises_the_limit_of_its_open_files(tmp_path: Path, soft_limit: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with NodeGroup(tmp_path) as group:
        member = group.master()
        limits = Path(f"/proc/{group.process_id(member)}/limits").read_text()

    [line] = [each for each in limits.splitlines() if each.startswith("Max open files")]
    raised = min(hard, open_files.FILES_MAX)
    assert int(line.split()[3]) == raised >= soft_limit
