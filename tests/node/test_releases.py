"""Members and clients of the previous release and of this one work together, forward and back."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.soak.run import Soak
from dledger_must_run.lacking import skip_or_fail
from tools.groups.mixed_group import MixedGroup
from tools.groups.node_group import NodeGroup
from tools.groups.releases import Release, ReleaseMissingError, previous_release

pytestmark = pytest.mark.group

TIMERS = {"heartbeat_interval_ms": 1000, "election_timeout_ms": 4000}
"""A busy machine deposes no leader within this election timeout."""


@pytest.fixture(scope="session")
def earlier() -> Release:
    try:
        return previous_release()
    except ReleaseMissingError as error:
        skip_or_fail(str(error))


@pytest.fixture
def group(tmp_path: Path, earlier: Release) -> Iterator[MixedGroup]:
    """Three members of the previous release."""
    with MixedGroup(tmp_path, earlier=earlier, **TIMERS) as running:
        yield running


def command_line(group: NodeGroup, *arguments: str, release: Release | None = None) -> str:
    """Run `dledger` of this release or of an earlier one; return what it prints."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DLEDGER_")}
    if release is not None:
        environment |= {"PYTHONPATH": release.python_path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "dledger_client", *arguments, "--group", "g"]
    servers = ",".join(address for address in group.peers.values())
    done = subprocess.run(
        [*command, "--servers", servers], env=environment, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    return done.stdout


def replace_all(group: MixedGroup) -> None:
    """Replace the members one by one by those of the other release, the leader last."""
    master = group.master()
    for member in (*sorted(set(group.peers) - {master}), master):
        group.swap_release(member)
        group.stop(member)
        group.start(member)
        committed = max(
            group.status(one).committed_index for one in group.running() if one != member
        )
        group.wait_for_status(
            member, lambda view, least=committed: view.ready and view.committed_index >= least,
            "is ready again",
        )  # fmt: skip


def test_a_group_is_rolled_to_this_release_and_back(group: MixedGroup, earlier: Release) -> None:
    group.master()
    indexes = [command_line(group, "append", "--body", "of the previous", release=earlier)]

    replace_all(group)
    indexes.append(command_line(group, "append", "--body", "of this"))
    replace_all(group)
    indexes.append(command_line(group, "append", "--body", "back", release=earlier))

    assert group.members_of_earlier == set(group.peers)
    bodies = [command_line(group, "get", index.split()[-1]) for index in indexes]
    assert [body.strip() for body in bodies] == ["of the previous", "of this", "back"]


def test_clients_of_both_releases_use_members_of_both(group: MixedGroup, earlier: Release) -> None:
    member = next(one for one in group.peers if one != group.master())
    group.swap_release(member)
    group.kill(member)
    group.start(member)
    group.wait_for_status(member, lambda view: view.ready, "is ready again")

    for release in (None, earlier):
        pages = ",".join(f"127.0.0.1:{port}" for port in list(group.http_ports.values()))
        assert "n0" in command_line(group, "status", "--http", pages, release=release)
        index = command_line(group, "append", "--body", "x", release=release).split()[-1]
        for other in (None, earlier):
            assert command_line(group, "get", index, release=other).strip() == "x"


@pytest.mark.timeout(900)
async def test_faults_on_members_of_two_releases_break_no_rule(
    tmp_path: Path, earlier: Release
) -> None:
    """`python -m bench.soak --previous-release` runs it for as long as one likes."""
    soak = Soak(
        tmp_path, seconds=45.0, seed=11, per_second=150, election_timeout_ms=4000, earlier=earlier
    )

    await soak.run()

    assert soak.verdict.violations == []
    assert soak.strikes.counts["swap_release"] >= 2, "no member changed its release"
