"""READ_REGISTER waits for the proof of leadership, and then for the applied index."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.register import SET, ReadRegisterRequest, ReadRegisterResponse
from dledger_node.raft.core import Raft
from dledger_node.services.register import RegisterReads
from dledger_node.services.waiting import ANSWER_WAIT_S
from dledger_node.slices import PER_TURN
from dledger_node.state_machine.machine import CommittedEntry
from dledger_node.state_machine.register import Register
from dledger_wire.played import become_master, make_server

Code = DLedgerResponseCode


class PlayedState:
    """A register that is applied when a test says so."""

    def __init__(self) -> None:
        self.machine: Register | None = Register()
        self.applied_index = -1
        self._listener: Callable[[int], None] = lambda _: None

    def call_when_applied(self, listener: Callable[[int], None]) -> None:
        self._listener = listener

    def apply(self, index: int) -> None:
        assert self.machine is not None
        self.machine.apply([CommittedEntry(index, SET.pack(7, index))])
        self.applied_index = index
        self._listener(index)


class Stage:
    """A leader whose first entry is committed, and reads of its register."""

    def __init__(self, core: Raft, **limits: float) -> None:
        self.state = PlayedState()
        self.proof = Code.SUCCESS
        self.answers: list[ReadRegisterResponse] = []
        self.reads = RegisterReads(
            core,
            self.state,
            group="g",
            prove=lambda answer: answer(self.proof),
            **limits,  # type: ignore[arg-type]
        )

    def read(self) -> None:
        self.reads.read(ReadRegisterRequest(group="g", remote_id="n0", key=7), self.answers.append)

    @property
    def codes(self) -> list[DLedgerResponseCode]:
        return [answer.code for answer in self.answers]


@pytest.fixture
async def core(tmp_path: Path) -> Raft:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    await server.close()
    return core


async def test_a_read_is_answered_once_all_that_was_committed_is_applied(core: Raft) -> None:
    stage = Stage(core)
    stage.read()
    assert not stage.answers

    stage.state.apply(0)
    stage.read()

    assert [(answer.code, answer.value) for answer in stage.answers] == [(Code.SUCCESS, 0)] * 2


@pytest.mark.parametrize("proof", [Code.NOT_LEADER, Code.LEADER_PENDING_FULL])
async def test_a_read_without_a_proof_is_refused_with_the_reason(core: Raft, proof: Code) -> None:
    stage = Stage(core)
    stage.proof = proof
    stage.read()

    assert stage.codes == [proof]


async def test_a_group_without_a_register_does_not_support_reads(core: Raft) -> None:
    stage = Stage(core)
    stage.state.machine = None
    stage.read()

    assert stage.codes == [Code.UNSUPPORTED]


async def test_a_read_that_waits_too_long_or_is_one_too_many_is_to_be_asked_again(
    core: Raft,
) -> None:
    stage = Stage(core, reads_max=1, wait_s=5.0)
    stage.read()
    stage.read()
    assert stage.codes == [Code.LEADER_NOT_READY], "one too many"

    now_s = asyncio.get_running_loop().time()
    stage.reads.expire(now_s)
    assert len(stage.answers) == 1
    stage.reads.expire(now_s + 6.0)
    assert stage.codes == [Code.LEADER_NOT_READY] * 2, "too long"


async def test_a_read_that_waits_when_the_member_stops_is_answered(core: Raft) -> None:
    stage = Stage(core)
    stage.read()
    stage.reads.give_up()
    stage.state.apply(0)

    assert stage.codes == [Code.LEADER_NOT_READY]


@pytest.mark.parametrize("code", [Code.SUCCESS, Code.LEADER_NOT_READY])
async def test_reads_that_end_at_the_same_time_are_answered_over_many_turns(
    core: Raft, code: Code
) -> None:
    """10,000 took one turn of 100 ms."""
    stage = Stage(core)
    for _ in range(3 * PER_TURN):
        stage.read()

    if code is Code.SUCCESS:
        stage.state.apply(0)
    else:
        stage.reads.expire(asyncio.get_running_loop().time() + ANSWER_WAIT_S)

    assert stage.codes == [code] * PER_TURN
    for _ in range(2):
        await asyncio.sleep(0)
    assert stage.codes == [code] * 3 * PER_TURN
