"""A member that applies its log after a start lets others lead, and says so; but not for ever."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import RefusedError
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.register import SET
from dledger_formats.settings import NodeSettings
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group

VALUES = 100
RESTED_S = 1.5
DECLINED = [DLedgerResponseCode.TAKE_LEADERSHIP_FAILED, DLedgerResponseCode.FALL_BEHIND_TOO_MUCH]
"""The answers to a transfer to a member that is behind: to the first one, and to those after it."""
HELD_APPLYING = """
import os, time
from dledger_node.state_machine.register import Register

apply = Register.apply

def when_let(register, entries):
    while not os.path.exists({mark!r}):
        time.sleep(0.01)
    apply(register, entries)

Register.apply = when_let
"""
"""Python runs a module of the name `sitecustomize` at each start."""


class HastyGroup(NodeGroup):
    """A group in which one member stands for election before all others once its leader is dead."""

    hasty = ""

    def settings(self, member: str) -> NodeSettings:
        """See `NodeGroup`."""
        own = {"heartbeat_interval_ms": 20} if member == self.hasty else {}
        before, self._settings = self._settings, self._settings | own
        try:
            return super().settings(member)
        finally:
            self._settings = before


@pytest.fixture
def group(tmp_path: Path) -> Iterator[HastyGroup]:
    """Three members with a register and without snapshots."""
    folder = tmp_path / "group"
    folder.mkdir()
    with HastyGroup(folder, state_machine="register", snapshot_threshold=1_000_000) as running:
        yield running


@contextlib.contextmanager
def held(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let members that start now apply nothing until the path that this yields exists."""
    mark, modules = folder / "may-apply", folder / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(HELD_APPLYING.format(mark=str(mark)))
    with patch.context() as changed:
        changed.setenv("PYTHONPATH", str(modules))
        yield mark


def client(group: NodeGroup) -> DLedgerClient:
    return DLedgerClient(list(group.peers.values()), "g", timing=Timing(deadline_s=30.0))


async def set_values(group: NodeGroup) -> None:
    """Set each value, and wait until all members know that."""
    async with client(group) as writing:
        bodies = [SET.pack(key, key) for key in range(VALUES)]
        outcomes = [each async for each in writing.append_all(bodies)]
    acknowledged = [each.index for each in outcomes if isinstance(each, Acknowledged)]
    assert len(acknowledged) == VALUES
    for member in group.peers:  # else its checkpoint would tell less when it is stopped
        group.wait_for_status(
            member,
            lambda told: told.committed_index >= max(acknowledged),
            "knows what is committed",
        )


async def refused(asking: DLedgerClient, member: str) -> int:
    """Return the code with which the leader refuses a transfer to this member.

    The client tries a transfer once if it is given the term.
    """
    term = (await asking.metadata()).term
    with pytest.raises(RefusedError) as refusal:
        await asking.transfer(member, term=term)
    return refusal.value.code


async def let_lead(group: NodeGroup, member: str) -> None:
    """Transfer the leadership once the member no longer declines."""
    async with client(group) as asking, asyncio.timeout(30):
        while True:
            try:
                await asking.transfer(member)
            except RefusedError as error:
                if error.code not in DECLINED:
                    raise
                await asyncio.sleep(0.02)
            else:
                return


async def test_a_member_that_is_behind_is_neither_ready_nor_elected_nor_handed_the_leadership(
    group: HastyGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_values(group)
    leader = group.master()
    behind, ready = (member for member in group.peers if member != leader)
    group.hasty = behind
    group.stop(behind)
    with held(tmp_path, monkeypatch) as mark:
        group.start(behind)
    group.wait_for_status(
        behind, lambda told: told.leader_id == leader and told.state_behind, "it is behind"
    )

    told = group.status(behind)
    async with client(group) as asking:
        while (first := await refused(asking, behind)) != DECLINED[0]:
            assert first == DECLINED[1]  # it has asked whether it must join, just after its start
        codes = [first, await refused(asking, behind)]
        for _ in codes:
            await asking.append(b"the leader takes appends at once")
    group.kill(leader)
    successor = group.master()
    mark.touch()
    group.wait_for_status(behind, lambda told: told.ready, "it has caught up")

    assert not told.ready
    assert told.reason.startswith("applies its log to its state: entry -1 is applied, of ")
    assert codes == DECLINED
    assert successor == ready
    assert not group.status(behind).state_behind
    assert group.status(behind).applied_index >= VALUES
    await let_lead(group, behind)
    async with client(group) as asking:
        assert await asking.read_register(VALUES - 1) == VALUES - 1


async def test_one_of_several_members_that_are_behind_leads_in_the_end(
    group: HastyGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_values(group)
    for member in group.peers:
        group.stop(member)
    with held(tmp_path, monkeypatch) as mark:
        for member in group.peers:
            group.start(member)
        for member in group.peers:
            group.wait_until_up(member)

    leader = group.master()
    is_behind = {member: group.status(member).state_behind for member in group.peers}
    async with client(group) as appending:
        await appending.append(SET.pack(7, 8))
        mark.touch()
        assert await appending.read_register(7) == 8

    assert leader
    assert is_behind == dict.fromkeys(group.peers, True)


async def test_a_member_is_handed_the_leadership_as_soon_as_it_is_ready(
    group: HastyGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle follower hears only heartbeats, and its core learns at once that it has caught up."""
    await set_values(group)
    leader = group.master()
    behind = next(member for member in group.peers if member != leader)
    group.stop(behind)
    with held(tmp_path, monkeypatch) as mark:
        group.start(behind)
    group.wait_for_status(
        behind, lambda told: told.leader_id == leader and told.state_behind, "it is behind"
    )
    await asyncio.sleep(RESTED_S)  # the follower is idle, and its ticker sleeps
    mark.touch()
    group.wait_for_status(behind, lambda told: told.ready, "it has caught up")

    async with DLedgerClient([group.peers[leader]], "g", timing=Timing(deadline_s=30.0)) as asking:
        await asking.transfer(behind)

    assert group.master() == behind
