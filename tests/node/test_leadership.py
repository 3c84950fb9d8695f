"""Leadership transfer in a running group: on request, and before a member stops."""

import pytest

from dledger_client.client import DLedgerClient
from dledger_formats.protocol import requests
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.leadership_transfer import (
    LeadershipTransferRequest,
    LeadershipTransferResponse,
)
from dledger_group.wire import ask
from tools.groups.node_group import NodeGroup


def transfer(
    group: NodeGroup, transfer_id: str, transferee_id: str, *, term: int | None = None
) -> LeadershipTransferResponse:
    request = LeadershipTransferRequest(
        group="g",
        remote_id=transfer_id,
        term=group.status(transfer_id).term if term is None else term,
        transfer_id=transfer_id,
        transferee_id=transferee_id,
    )
    command = RemotingCommand(
        code=RequestCode.LEADERSHIP_TRANSFER, opaque=1, body=request.to_json()
    )
    return LeadershipTransferResponse.from_json(ask(group, transfer_id, command).body)


def follower_of(group: NodeGroup, master: str) -> str:
    """Return a follower that holds every entry of its leader."""
    follower = next(member for member in group.running() if member != master)
    end_index = group.status(master).ledger_end_index
    group.wait_for_status(follower, lambda view: view.durable_index >= end_index, "holds all")
    return follower


def test_a_leader_transfers_its_leadership_to_the_requested_member(group: NodeGroup) -> None:
    master = group.master()
    transferee = follower_of(group, master)

    response = transfer(group, master, transferee)

    assert response.code is DLedgerResponseCode.SUCCESS
    assert response.leader_id == transferee
    group.wait_for_status(transferee, lambda view: view.master, "is master")
    group.wait_for_status(master, lambda view: view.leader_id == transferee, "follows")


def test_an_impossible_transfer_is_refused_and_the_leader_stays(group: NodeGroup) -> None:
    master = group.master()
    follower = follower_of(group, master)

    codes = [
        transfer(group, master, "n9").code,
        transfer(group, master, follower, term=99).code,
        transfer(group, follower, master).code,
    ]

    assert codes == [
        DLedgerResponseCode.UNKNOWN_MEMBER,
        DLedgerResponseCode.INCONSISTENT_TERM,
        DLedgerResponseCode.NOT_LEADER,
    ]
    assert group.status(master).master


async def test_a_leader_that_is_asked_to_stop_hands_over_first(group: NodeGroup) -> None:
    master = group.master()
    follower_of(group, master)
    term = group.status(master).term

    assert group.stop(master) == 0
    successor = group.master()

    assert group.status(successor).term == term + 1
    assert f"handed the leadership over to {successor}" in group.log(master)


async def test_appends_go_on_through_a_transfer(group: NodeGroup) -> None:
    master = group.master()
    transferee = follower_of(group, master)
    async with DLedgerClient(servers=group.servers, group="g") as client:
        first = await client.append(b"before")
        response = transfer(group, master, transferee)
        second = await client.append(b"after")

    assert response.code is DLedgerResponseCode.SUCCESS
    assert second.index > first.index


@pytest.mark.parametrize("behind", [0, 5])
def test_a_read_behind_the_end_is_answered_by_a_proven_leader(
    steady_group: NodeGroup, behind: int
) -> None:
    master = steady_group.master()
    end_index = steady_group.status(master).committed_index
    request = requests.GetEntriesRequest(
        group="g", remote_id=master, begin_index=end_index + 1 + behind
    )

    answer = ask(
        steady_group,
        master,
        RemotingCommand(code=RequestCode.GET, opaque=1, body=request.to_json()),
    )

    response = requests.GetEntriesResponse.from_json(answer.body)
    assert response.code is DLedgerResponseCode.INDEX_OUT_OF_RANGE


def test_a_frozen_quorum_proves_nothing_so_the_end_is_not_told(group: NodeGroup) -> None:
    master = group.master()
    end_index = group.status(master).committed_index
    for member in group.running():
        if member != master:
            group.freeze(member)
    request = requests.GetEntriesRequest(group="g", remote_id=master, begin_index=end_index + 1)

    answer = ask(
        group, master, RemotingCommand(code=RequestCode.GET, opaque=1, body=request.to_json())
    )

    response = requests.GetEntriesResponse.from_json(answer.body)
    assert response.code is DLedgerResponseCode.NOT_LEADER
