"""Requests to a leader: real members, and servers that give invalid answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_kube.fake_leader import Answer, remoting
from dledger_operator.clients.errors import MemberSilentError
from dledger_operator.clients.member_remoting import MemberRemotingClient
from dledger_operator.observed_state import Leader
from tools.groups.node_group import NodeGroup
from tools.groups.ports import free_ports

HERE = "127.0.0.1"
LEADER = Leader(term=7, member_id="n0")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodeGroup]:
    with NodeGroup(tmp_path, members=1, addable=1) as group:
        yield group


def requests_to(nodes: NodeGroup, member: str) -> MemberRemotingClient:
    return MemberRemotingClient(port=int(nodes.peers[member].rpartition(":")[2]))


def leading(nodes: NodeGroup) -> Leader:
    nodes.wait_for_status("n0", lambda status: status.master, "leads")
    return Leader(term=nodes.status("n0").term, member_id="n0")


@pytest.mark.group
async def test_a_real_leader_adds_refuses_and_removes_members(nodes: NodeGroup) -> None:
    leader = leading(nodes)
    requests = requests_to(nodes, "n0")

    added = await requests.change(HERE, "g", leader, ChangeKind.ADD_LEARNER, "n1")
    refused = await requests.change(HERE, "g", leader, ChangeKind.PROMOTE, "n1")
    stranger = await requests.change(HERE, "g", leader, ChangeKind.ADD_LEARNER, "n6")
    alone = await requests.change(HERE, "g", leader, ChangeKind.REMOVE, "n0")
    removed = await requests.change(HERE, "g", leader, ChangeKind.REMOVE, "n1")
    again = await requests.change(HERE, "g", leader, ChangeKind.REMOVE, "n1")

    assert (added.voters, added.learners) == (("n0",), ("n1",))
    assert refused.code is DLedgerResponseCode.FALL_BEHIND_TOO_MUCH
    assert stranger.code is DLedgerResponseCode.NO_SUCH_MEMBER
    assert alone.code is DLedgerResponseCode.LAST_VOTER
    assert removed.code is again.code is DLedgerResponseCode.SUCCESS
    assert (again.voters, again.learners) == (("n0",), ())


@pytest.mark.group
async def test_a_real_leader_refuses_a_transfer_to_a_member_that_does_not_run(
    nodes: NodeGroup,
) -> None:
    leader = leading(nodes)

    answer = await requests_to(nodes, "n0").transfer(HERE, "g", leader, "n1")

    assert answer.code is not DLedgerResponseCode.SUCCESS


@pytest.mark.parametrize(
    "answer",
    [lambda _: None, lambda _: b"{", lambda _: b'{"voters":1}', lambda _: b" " * 100_000],
    ids=["no answer", "half an object", "another type", "too many bytes"],
)
async def test_an_invalid_or_missing_answer_raises_an_error_in_time(answer: Answer) -> None:
    async with remoting(HERE, 0, answer) as port:
        requests = MemberRemotingClient(port=port, answer_s_max=0.5)

        with pytest.raises(MemberSilentError, match=f"ChangeMembershipRequest to {HERE}:{port}"):
            await requests.change(HERE, "g", LEADER, ChangeKind.REMOVE, "n1")


async def test_a_refused_connection_raises_an_error() -> None:
    with pytest.raises(MemberSilentError):
        await MemberRemotingClient(port=next(free_ports())).transfer(HERE, "g", LEADER, "n1")
