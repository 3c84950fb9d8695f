"""Groups that demand their administration token: no stranger changes them."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.errors import RefusedError
from dledger_formats.admin_tokens import AdminTokens
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_formats.protocol.requests import Response
from dledger_group.wire import ask
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group
OLD, NEW, FOREIGN = "old-" * 10, "new-" * 10, "foreign-" * 5
DEADLINE_S = 5.0


class GuardedGroup(NodeGroup):
    """A group whose members read one file with tokens."""

    def __init__(self, folder: Path) -> None:
        self.token_file = folder / "tokens"
        super().__init__(folder, admin_token_file=str(self.token_file))

    def write(self, *tokens: str, version: str) -> None:
        """Replace the tokens as Kubernetes does: the new content appears at once."""
        new = self.token_file.with_name("new")
        new.write_text(AdminTokens(accepted=tokens, version=version).to_text())
        new.replace(self.token_file)

    def wait_for_version(self, version: str) -> None:
        for member in self.peers:
            self.wait_for_status(
                member, lambda view: view.admin_tokens_version == version, f"has version {version}"
            )

    def refused(self, reason: str) -> float:
        """Return how many requests all members have refused for this reason."""
        pattern = rf'admin_requests_refused_total\{{reason="{reason}"\}} (\S+)'
        pages = [self.get(member, "/metrics")[1].decode() for member in self.peers]
        return sum(float(found[1]) for page in pages if (found := re.search(pattern, page)))


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedGroup]:
    """A group that accepts OLD."""
    group = GuardedGroup(tmp_path)
    group.write(OLD, version="1")
    with group:
        yield group


async def remove(group: NodeGroup, member: str, token: str) -> tuple[str, ...]:
    async with DLedgerClient(group.servers, "g", admin_token=token) as client:
        after = await client.change_membership(ChangeKind.REMOVE, member, deadline_s=DEADLINE_S)
        return after.voters


async def refusal(group: NodeGroup, member: str, token: str) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await remove(group, member, token)
    return caught.value


def other_than(leader: str) -> str:
    return "n1" if leader == "n0" else "n0"


async def test_a_stranger_neither_removes_a_voter_nor_moves_the_leadership(
    guarded: GuardedGroup,
) -> None:
    leader = guarded.master()
    follower, term = other_than(leader), guarded.status(leader).term

    for token, code in (
        ("", DLedgerResponseCode.ADMIN_TOKEN_MISSING),
        (FOREIGN, DLedgerResponseCode.ADMIN_TOKEN_REFUSED),
    ):
        assert (await refusal(guarded, follower, token)).code is code
        async with DLedgerClient(guarded.servers, "g", admin_token=token) as client:
            with pytest.raises(RefusedError) as caught:
                await client.transfer(follower, deadline_s=DEADLINE_S)
            assert caught.value.code is code

    after = guarded.status(leader)
    assert (after.term, sorted(after.voters)) == (term, ["n0", "n1", "n2"])
    assert (guarded.refused("missing"), guarded.refused("wrong")) == (2, 2)


async def test_the_token_lets_a_change_and_a_transfer_through(guarded: GuardedGroup) -> None:
    leader = guarded.master()
    follower = other_than(leader)

    async with DLedgerClient(guarded.servers, "g", admin_token=OLD) as client:
        assert (await client.transfer(follower)).leader_id == follower
    assert leader not in await remove(guarded, leader, OLD)


async def test_a_refusal_says_what_is_missing_and_the_log_names_no_token(
    guarded: GuardedGroup,
) -> None:
    guarded.master()

    missing, wrong = await refusal(guarded, "n1", ""), await refusal(guarded, "n1", FOREIGN)

    assert "--admin-token-file" in str(missing)
    assert "not one of this group's" in str(wrong)
    logs = "".join(guarded.log(member) for member in guarded.peers)
    assert "refused a ChangeMembershipRequest from 127.0.0.1" in logs
    pages = [guarded.get(member, page)[1].decode() for member in guarded.peers
             for page in ("/status", "/metrics", "/leader")]  # fmt: skip
    for token in (OLD, FOREIGN):
        assert token not in logs + "".join(pages)


async def test_many_refusals_write_few_lines(guarded: GuardedGroup) -> None:
    guarded.master()

    for _ in range(40):
        await refusal(guarded, "n1", FOREIGN)

    logs = "".join(guarded.log(member) for member in guarded.peers)
    assert logs.count("refused a ChangeMembershipRequest") <= 30, "10 a minute at each member"
    assert guarded.refused("wrong") == 40


async def test_tokens_are_replaced_without_a_restart(guarded: GuardedGroup) -> None:
    guarded.master()
    processes = [guarded.process_id(member) for member in guarded.peers]

    guarded.write(OLD, NEW, version="2")
    guarded.wait_for_version("2")
    for token in (OLD, NEW):
        async with DLedgerClient(guarded.servers, "g", admin_token=token) as client:
            for change in (ChangeKind.DEMOTE, ChangeKind.PROMOTE):
                await client.change_membership(change, other_than(guarded.master()))
    guarded.write(NEW, version="3")
    guarded.wait_for_version("3")

    assert (await refusal(guarded, "n1", OLD)).code is DLedgerResponseCode.ADMIN_TOKEN_REFUSED
    async with DLedgerClient(guarded.servers, "g", admin_token=NEW) as client:
        await client.transfer(other_than(guarded.master()))
    assert [guarded.process_id(member) for member in guarded.peers] == processes


async def test_a_file_with_a_mistake_leaves_the_tokens_as_they_are(guarded: GuardedGroup) -> None:
    leader = guarded.master()

    guarded.token_file.write_text("too short\n")
    wait_for(
        lambda: all("is not a token" in guarded.log(member) for member in guarded.peers),
        "every member complains about the file",
    )

    assert leader not in await remove(guarded, leader, OLD)


async def test_a_member_that_has_read_no_token_refuses_until_it_has(tmp_path: Path) -> None:
    with GuardedGroup(tmp_path) as group:
        leader = group.master()
        asked = asyncio.create_task(remove(group, leader, OLD))
        await asyncio.to_thread(
            wait_for, lambda: group.refused("not_ready") > 0, "a request is refused"
        )

        group.write(OLD, version="1")

        assert leader not in await asked


async def test_a_group_without_the_setting_takes_requests_with_and_without_a_token(
    group: NodeGroup,
) -> None:
    leader = group.master()

    async with DLedgerClient(group.servers, "g", admin_token=FOREIGN) as client:
        await client.transfer(other_than(leader))
    async with DLedgerClient(group.servers, "g") as client:
        await client.transfer(leader)
    assert group.status(leader).demands_admin_token is False


def test_a_transfer_as_java_sends_it_is_refused_in_words(guarded: GuardedGroup) -> None:
    leader = guarded.master()
    term = guarded.status(leader).term
    body = (
        f'{{"code":200,"group":"g","leaderId":null,"localId":null,"remoteId":"{leader}",'
        f'"takeLeadershipLedgerIndex":0,"term":{term},"transferId":"{leader}",'
        f'"transfereeId":"{other_than(leader)}"}}'
    )

    command = RemotingCommand(code=RequestCode.LEADERSHIP_TRANSFER, opaque=1, body=body.encode())

    answer = ask(guarded, leader, command)

    assert Response.from_json(answer.body).code is DLedgerResponseCode.ADMIN_TOKEN_MISSING
    assert "demands its administration token" in (answer.remark or "")
    assert guarded.status(leader).term == term
