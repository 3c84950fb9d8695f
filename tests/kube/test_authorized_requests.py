"""The operator's requests to real members that demand the administration token."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_formats.admin_tokens import AdminTokens
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_operator.behaviors.admin_tokens.authorized_requests import AuthorizedRequests
from dledger_operator.clients.errors import (
    KubeError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from dledger_operator.clients.member_remoting import MemberRemotingClient
from dledger_operator.observed_state import Leader
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group
HERE = "127.0.0.1"
OLD, NEW = "old-" * 10, "new-" * 10


class Tokens:
    """The token of the group `air/g`, as the operator would read it, or why it cannot."""

    def __init__(self, token: str, problem: KubeError | None = None) -> None:
        self.current = token
        self.problem = problem

    async def token(self, namespace: str, group: str) -> str:
        assert (namespace, group) == ("air", "g")
        if self.problem:
            raise self.problem
        return self.current


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodeGroup]:
    file = tmp_path / "tokens"
    file.write_text(AdminTokens(accepted=(OLD,), version="1").to_text())
    with NodeGroup(tmp_path, members=1, addable=1, admin_token_file=str(file)) as group:
        yield group


def requests_to(nodes: NodeGroup, tokens: Tokens) -> AuthorizedRequests:
    client = MemberRemotingClient(port=int(nodes.peers["n0"].rpartition(":")[2]))
    return AuthorizedRequests(client, tokens, "air", "g")


async def test_each_request_carries_the_token_that_is_to_be_sent_now(nodes: NodeGroup) -> None:
    nodes.wait_for_status("n0", lambda status: status.master, "leads")
    leader = Leader(term=nodes.status("n0").term, member_id="n0")
    tokens = Tokens(OLD)
    requests = requests_to(nodes, tokens)

    added = await requests.change(HERE, "g", leader, ChangeKind.ADD_LEARNER, "n1")
    tokens.current = NEW
    refused = await requests.change(HERE, "g", leader, ChangeKind.REMOVE, "n1")
    not_transferred = await requests.transfer(HERE, "g", leader, "n1")
    tokens.current = ""
    missing = await requests.change(HERE, "g", leader, ChangeKind.REMOVE, "n1")

    assert added.learners == ("n1",)
    assert refused.code is not_transferred.code is DLedgerResponseCode.ADMIN_TOKEN_REFUSED
    assert missing.code is DLedgerResponseCode.ADMIN_TOKEN_MISSING


UNREADABLE = [RefusedError("get Secret: forbidden"), NotFoundError("get Secret: no such namespace")]


@pytest.mark.parametrize("problem", UNREADABLE)
async def test_a_member_that_demands_no_token_obeys_an_operator_that_may_not_read_it(
    tmp_path: Path, problem: KubeError
) -> None:
    with NodeGroup(tmp_path, members=1, addable=1) as nodes:
        nodes.wait_for_status("n0", lambda status: status.master, "leads")
        leader = Leader(term=nodes.status("n0").term, member_id="n0")
        requests = requests_to(nodes, Tokens(OLD, problem))

        added = await requests.change(HERE, "g", leader, ChangeKind.ADD_LEARNER, "n1")

    assert added.learners == ("n1",)


@pytest.mark.parametrize("problem", UNREADABLE)
async def test_a_member_that_demands_a_token_says_that_it_is_missing(
    nodes: NodeGroup, problem: KubeError
) -> None:
    nodes.wait_for_status("n0", lambda status: status.master, "leads")
    leader = Leader(term=nodes.status("n0").term, member_id="n0")
    requests = requests_to(nodes, Tokens(OLD, problem))

    answer = await requests.transfer(HERE, "g", leader, "n1")

    assert answer.code is DLedgerResponseCode.ADMIN_TOKEN_MISSING


async def test_a_request_waits_for_an_api_server_that_does_not_answer(nodes: NodeGroup) -> None:
    requests = requests_to(nodes, Tokens(OLD, UnavailableError("get Secret: no answer")))

    with pytest.raises(UnavailableError):
        await requests.transfer(HERE, "g", Leader(term=1, member_id="n0"), "n1")
