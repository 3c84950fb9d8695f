"""What a follower asks its leader for linearizable reads (Raft dissertation, 6.4)."""

import pytest

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.raft.ready import ReadState
from dledger_node.remoting.read_index_messages import (
    NOT_LEADING,
    ReadIndexRequest,
    ReadIndexResponse,
)
from dledger_node.services.read_index import PROOFS_OF_PEER_MAX, ReadIndexes
from dledger_sim.stage.driver import ELECTION_TICKS, CoreDriver, heartbeat

Code = DLedgerResponseCode
INCARNATION = 7
WAIT_S = 2.0
REPEAT_S = 0.1


class Follower:
    """Member n0, which follows n1 in term 1 and has committed entry 1 of three."""

    def __init__(self, *, reads_max: int = 100, is_led: bool = True) -> None:
        self.driver = CoreDriver(terms=[1, 1, 1], committed_index=1)
        if is_led:
            self.lead("n1", 1)
        self.sent: list[ReadIndexRequest] = []
        self.codes: list[Code] = []
        self.indexes = ReadIndexes(
            self.driver.raft,
            self.sent.append,  # type: ignore[arg-type]
            incarnation=INCARNATION,
            reads_max=reads_max,
            wait_s=WAIT_S,
            repeat_s=REPEAT_S,
        )

    def lead(self, leader_id: str, term: int) -> None:
        self.driver.receive(heartbeat(term, sender=leader_id))

    def ask(self, now_s: float = 0.0) -> None:
        self.indexes.ask(self.codes.append, now_s)

    def answer(
        self, index: int, *, sender: str = "n1", number: int = 1, incarnation: int = INCARNATION
    ) -> None:
        response = ReadIndexResponse(
            sender=sender, receiver="n0", incarnation=incarnation, round=number, index=index
        )
        self.indexes.answered(response, 0.0)

    def turn(self, committed_index: int = 1, now_s: float = 0.0) -> None:
        self.indexes.on_turn(committed_index, now_s)


def question(receiver: str, number: int) -> ReadIndexRequest:
    return ReadIndexRequest(sender="n0", receiver=receiver, incarnation=INCARNATION, round=number)


def test_a_read_is_answered_once_the_leader_has_proved_an_index_that_is_committed_here() -> None:
    follower = Follower()
    follower.ask()
    assert (follower.sent, follower.codes) == ([question("n1", 1)], [])
    follower.answer(1)

    assert follower.codes == [Code.SUCCESS]


def test_a_read_waits_until_the_leaders_index_is_committed_here() -> None:
    follower = Follower()
    follower.ask()
    follower.answer(2)
    follower.turn(1)
    assert follower.codes == []
    follower.turn(2)

    assert follower.codes == [Code.SUCCESS]


def test_reads_that_arrive_during_a_round_share_the_next_one() -> None:
    follower = Follower()
    for _ in range(3):
        follower.ask()
    assert follower.sent == [question("n1", 1)]
    follower.answer(1)
    assert (follower.codes, follower.sent[1:]) == ([Code.SUCCESS], [question("n1", 2)])
    follower.answer(1, number=2)

    assert (follower.codes, len(follower.sent)) == ([Code.SUCCESS] * 3, 2)


def test_without_a_leader_a_read_is_refused_at_once() -> None:
    follower = Follower(is_led=False)
    follower.ask()

    assert (follower.codes, follower.sent) == ([Code.NOT_LEADER], [])


def test_a_read_is_refused_when_its_leader_is_lost() -> None:
    follower = Follower()
    follower.ask()
    follower.ask()
    follower.driver.tick(3 * ELECTION_TICKS)
    follower.turn()

    assert follower.codes == [Code.NOT_LEADER] * 2


def test_the_next_leader_is_asked_at_once() -> None:
    follower = Follower()
    follower.ask()
    follower.lead("n2", 2)
    follower.turn()
    assert follower.sent == [question("n1", 1), question("n2", 1)]
    follower.answer(1, sender="n2")

    assert follower.codes == [Code.SUCCESS]


def test_a_leader_that_was_deposed_refuses_the_round() -> None:
    follower = Follower()
    follower.ask()
    follower.answer(NOT_LEADING)

    assert follower.codes == [Code.NOT_LEADER]


@pytest.mark.parametrize(
    "other", [{"number": 0}, {"incarnation": INCARNATION - 1}, {"sender": "n2"}]
)
def test_an_answer_to_another_question_is_ignored(other: dict[str, object]) -> None:
    follower = Follower()
    follower.ask()
    follower.answer(1, **other)  # type: ignore[arg-type]

    assert follower.codes == []


def test_a_question_without_an_answer_is_repeated_and_given_up() -> None:
    follower = Follower()
    follower.ask()
    follower.indexes.expire(REPEAT_S / 2)
    assert follower.sent == [question("n1", 1)]
    follower.indexes.expire(REPEAT_S)
    assert follower.sent == [question("n1", 1)] * 2
    follower.indexes.expire(WAIT_S)

    assert follower.codes == [Code.NOT_LEADER]


def test_an_answer_that_comes_too_late_answers_no_later_read() -> None:
    follower = Follower()
    follower.ask(0.0)
    follower.indexes.expire(WAIT_S)
    follower.ask(WAIT_S)
    follower.answer(1, number=1)

    assert follower.codes == [Code.NOT_LEADER]


def test_a_follower_that_does_not_reach_the_index_says_so() -> None:
    follower = Follower()
    follower.ask()
    follower.answer(2)
    follower.indexes.expire(WAIT_S)

    assert follower.codes == [Code.FALL_BEHIND_TOO_MUCH]


def test_the_reads_that_wait_are_bounded() -> None:
    follower = Follower(reads_max=3)
    follower.ask()
    follower.answer(2)
    for _ in range(3):
        follower.ask()
    assert follower.codes == [Code.LEADER_PENDING_FULL]
    follower.indexes.give_up()

    assert follower.codes[1:] == [Code.NOT_LEADER] * 3


# The leader.


class Leader:
    """Member n0, which leads term 1; entry 0 is its first one."""

    def __init__(self) -> None:
        self.driver = CoreDriver()
        self.driver.become_leader()
        self.sent: list[ReadIndexResponse] = []
        self.indexes = ReadIndexes(
            self.driver.raft,
            self.sent.append,  # type: ignore[arg-type]
            incarnation=INCARNATION,
        )

    def asked(self, number: int = 1) -> None:
        request = ReadIndexRequest(sender="n1", receiver="n0", incarnation=3, round=number)
        self.indexes.asked(request)
        self.work()

    def work(self) -> None:
        self.driver.work()
        reads, self.driver.reads = self.driver.reads, []
        for read in reads:
            assert isinstance(read, ReadState)
            assert isinstance(read.handle, ReadIndexRequest)
            self.indexes.proved(read.handle, read.index)


def answer_of(index: int, number: int = 1) -> ReadIndexResponse:
    return ReadIndexResponse(sender="n0", receiver="n1", incarnation=3, round=number, index=index)


def test_a_leader_answers_after_a_round_of_heartbeats_with_its_first_entry() -> None:
    leader = Leader()
    leader.asked()
    assert leader.sent == []
    leader.driver.receive(leader.driver.heard_from("n2", 2))
    leader.work()

    assert leader.sent == [answer_of(0)], "which is not committed yet; the follower waits for it"


def test_a_deposed_leader_tells_that_it_does_not_lead() -> None:
    leader = Leader()
    leader.asked()
    leader.driver.receive(heartbeat(2))
    leader.work()
    leader.asked(2)

    assert leader.sent == [answer_of(NOT_LEADING), answer_of(NOT_LEADING, 2)]


def test_the_questions_of_a_peer_are_bounded() -> None:
    leader = Leader()
    for number in range(PROOFS_OF_PEER_MAX + 3):
        leader.asked(number)
    leader.driver.receive(leader.driver.heard_from("n2", 2))
    leader.work()
    leader.driver.receive(leader.driver.heard_from("n2", 3))
    leader.work()

    assert [answer.round for answer in leader.sent] == list(range(PROOFS_OF_PEER_MAX))
