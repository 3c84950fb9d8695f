"""APPEND_CANARY over the wire: the entry is like every other, and readers pass over it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.log.canaries import CANARY_CHANNEL
from dledger_formats.protocol.canary import APPEND_CANARY, AppendCanaryRequest
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode, SystemCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.requests import (
    AppendEntryRequest,
    AppendEntryResponse,
    GetEntriesRequest,
    GetEntriesResponse,
)
from dledger_group.wire import ask
from dledger_must_run.lacking import skip_or_fail
from tools.groups.mixed_group import MixedGroup
from tools.groups.node_group import NodeGroup
from tools.groups.releases import ReleaseMissingError, previous_release
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

CALM = {"heartbeat_interval_ms": 250, "election_timeout_ms": 4000}
"""A busy machine deposes no leader within this election timeout."""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[NodeGroup]:
    settings = {"state_machine": "register", "group_identity": "ours", **CALM}
    with NodeGroup(tmp_path, **settings) as running:  # type: ignore[arg-type]
        yield running


def send(group: NodeGroup, member: str, code: int, body: bytes) -> RemotingCommand:
    return ask(group, member, RemotingCommand(code=code, opaque=1, body=body))


def append_canary(group: NodeGroup, member: str, identity: str = "") -> AppendEntryResponse:
    request = AppendCanaryRequest(group="g", remote_id=member, group_identity=identity)
    answer = send(group, member, APPEND_CANARY, request.to_json())
    assert answer.code == SystemCode.SUCCESS, answer.remark
    return AppendEntryResponse.from_json(answer.body)


def append(group: NodeGroup, member: str, body: bytes) -> int:
    request = AppendEntryRequest(group="g", remote_id=member, body=body)
    answer = AppendEntryResponse.from_json(
        send(group, member, RequestCode.APPEND, request.to_json()).body
    )
    assert answer.code is DLedgerResponseCode.SUCCESS
    return answer.index


def command_line(group: NodeGroup, *arguments: str, python_path: str = "") -> list[str]:
    """Run `dledger`, of an earlier release if its path is given; return the lines it prints."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DLEDGER_")}
    if python_path:
        environment |= {"PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": "1"}
    servers = ",".join(group.peers.values())
    done = subprocess.run(
        [sys.executable, "-m", "dledger_client", *arguments, "--group", "g", "--servers", servers],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.splitlines()


def takes_leadership(group: NodeGroup, member: str) -> bool:
    """Ask for a transfer, which the leader refuses until it has heard from the new process."""
    try:
        command_line(group, "transfer", member)
    except subprocess.CalledProcessError:
        return False
    return group.master() == member


def test_a_canary_is_acknowledged_and_readers_pass_over_it(group: NodeGroup) -> None:
    leader = group.master()
    first = append(group, leader, b"\1\0\0\0\2\0\0\0")

    canary = append_canary(group, leader)

    last = append(group, leader, b"\3\0\0\0\4\0\0\0")
    assert canary.code is DLedgerResponseCode.SUCCESS
    assert (first + 1, first + 2) == (canary.index, last)
    read = GetEntriesRequest(group="g", remote_id=leader, begin_index=canary.index)
    answer = GetEntriesResponse.from_json(send(group, leader, RequestCode.GET, read.to_json()).body)
    [entry] = answer.entries
    assert (entry.magic, entry.channel, entry.body) == (disk.NOOP, CANARY_CHANNEL, b"")
    assert (entry.index, entry.term) == (canary.index, canary.term)
    lines = command_line(group, "tail", "--from", "0", "--count", "2", "--format", "%i\\n")
    assert lines == [str(first), str(last)]
    assert command_line(group, "register", "get", "1") == ["2"]
    assert command_line(group, "register", "get", "3") == ["4"]
    for member in group.peers:
        group.wait_for_status(
            member, lambda view: view.ready and view.committed_index >= last, "has all entries"
        )


def test_a_canary_is_refused_where_it_does_not_belong(group: NodeGroup) -> None:
    leader = group.master()
    follower = min(set(group.peers) - {leader})
    end_index = group.status(leader).ledger_end_index

    assert append_canary(group, follower).code is DLedgerResponseCode.NOT_LEADER
    assert append_canary(group, leader, "theirs").code is DLedgerResponseCode.UNKNOWN_GROUP
    assert group.status(leader).ledger_end_index == end_index
    assert append_canary(group, leader, "ours").code is DLedgerResponseCode.SUCCESS


def test_a_canary_without_a_quorum_has_an_unknown_outcome(group: NodeGroup) -> None:
    leader = group.master()
    for member in set(group.peers) - {leader}:
        group.stop(member)

    answer = append_canary(group, leader)

    assert answer.code is DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT


def test_members_and_clients_of_the_previous_release_pass_over_canaries(tmp_path: Path) -> None:
    try:
        earlier = previous_release()
    except ReleaseMissingError as error:
        skip_or_fail(str(error))
    with MixedGroup(tmp_path, earlier=earlier, **CALM) as group:
        leader = group.master()
        unknown = send(
            group, leader, APPEND_CANARY,
            AppendCanaryRequest(group="g", remote_id=leader).to_json(),
        )  # fmt: skip
        assert unknown.code == SystemCode.REQUEST_CODE_NOT_SUPPORTED
        newer = min(set(group.peers) - {leader})
        group.swap_release(newer)
        group.stop(newer)
        group.start(newer)
        group.wait_for_status(newer, lambda view: view.ready, "is ready again")
        wait_for(lambda: takes_leadership(group, newer), f"{newer} takes the leadership")

        first = append(group, newer, b"before")
        assert append_canary(group, newer).code is DLedgerResponseCode.SUCCESS
        last = append(group, newer, b"after")

        for member in group.peers:
            group.wait_for_status(
                member, lambda view: view.ready and view.committed_index >= last, "follows"
            )
        old_follower = min(set(group.peers) - {newer})
        group.stop(old_follower)
        group.start(old_follower)
        group.wait_for_status(
            old_follower, lambda view: view.ready and view.committed_index >= last, "is back"
        )
        lines = command_line(
            group, "tail", "--from", str(first), "--count", "2", python_path=earlier.python_path
        )
        assert [line.split()[-1] for line in lines] == ["before", "after"]
