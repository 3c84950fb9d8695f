"""A leader that hands over promises its vote to the transferee before that asks for it."""

from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    PushResponse,
    PushResult,
    TakeLeadershipRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    heartbeat,
    of_type,
    only,
    vote_request,
)


def leader_that_asked(transferee_id: str = "n2") -> CoreDriver:
    """Return the leader of term 1 that has asked a level transferee to stand."""
    driver = CoreDriver()
    driver.become_leader()
    for peer_id in ("n1", "n2"):
        driver.agree(peer_id)
        driver.receive(driver.success_from(peer_id, driver.raft.ledger_end_index))
    assert driver.raft.transfer_leadership(transferee_id) is None
    only(TakeLeadershipRequest, driver.work())
    return driver


def saved(driver: CoreDriver) -> tuple[int, str | None]:
    return driver.hard_state.term, driver.hard_state.vote_for


def vote(driver: CoreDriver, sender: str, term: int = 2) -> VoteResult:
    request = vote_request(term, sender=sender, end=(0, 1), take_leadership=True)
    return only(VoteResponse, driver.receive(request)).result


def test_a_leader_saves_its_vote_ahead_and_need_not_save_it_again() -> None:
    driver = leader_that_asked()
    assert saved(driver) == (1, "n0")
    assert driver.raft.promise_vote()
    assert driver.work() == []
    assert saved(driver) == (2, "n2")
    assert (driver.raft.role, driver.raft.term) == (Role.LEADER, 1), "it leads on meanwhile"
    assert not driver.raft.promise_vote(), "one promise is enough"

    driver.raft.step(vote_request(2, sender="n2", end=(0, 1), take_leadership=True))
    ready = driver.raft.ready()

    assert ready is not None
    assert ready.hard_state is None
    assert only(VoteResponse, list(ready.messages)).result is VoteResult.ACCEPT


def test_a_vote_is_promised_only_to_a_transferee_that_was_asked_to_stand() -> None:
    driver = CoreDriver()
    assert not driver.raft.promise_vote()
    driver.become_leader()
    for peer_id in ("n1", "n2"):
        driver.agree(peer_id)
        driver.receive(driver.success_from(peer_id, 0))
    driver.propose()
    assert driver.raft.transfer_leadership("n2") is None
    driver.work()

    assert not driver.raft.promise_vote(), "the transferee lacks an entry"
    assert saved(driver) == (1, "n0")


def test_a_promised_vote_goes_to_no_other_candidate_of_that_term() -> None:
    driver = leader_that_asked("n2")
    driver.raft.promise_vote()

    assert vote(driver, "n1") is VoteResult.REJECT_ALREADY_VOTED
    assert vote(driver, "n2") is VoteResult.ACCEPT
    assert vote(driver, "n1", term=3) is VoteResult.ACCEPT, "the promise was for one term"


def test_a_promised_vote_is_refused_if_the_log_has_grown_since() -> None:
    driver = leader_that_asked("n2")
    driver.raft.promise_vote()
    for _ in range(ELECTION_TICKS):
        driver.tick()
        driver.receive(driver.success_from("n1", 0))
    assert driver.raft.transferee_id is None
    driver.propose()

    assert vote(driver, "n2") is VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    assert saved(driver) == (2, "n2")


def test_a_leader_whose_transferee_does_not_stand_leads_on_in_its_term() -> None:
    driver = leader_that_asked()
    driver.raft.promise_vote()
    for _ in range(ELECTION_TICKS):
        driver.tick()
        driver.receive(driver.success_from("n1", 0))
    messages = driver.propose()

    assert all(push.term == 1 for push in of_type(AppendRequest, messages))
    assert of_type(AppendRequest, messages)
    assert saved(driver) == (2, "n2"), "a promise is not taken back"


def test_a_member_does_not_stand_in_the_term_of_its_promise() -> None:
    driver = leader_that_asked()
    driver.raft.promise_vote()
    driver.tick(2 * ELECTION_TICKS)
    requests = of_type(VoteRequest, driver.stand())

    assert {request.term for request in requests} == {3}
    assert saved(driver) == (3, "n0")


def test_a_member_that_starts_again_keeps_its_promise() -> None:
    driver = leader_that_asked()
    driver.raft.promise_vote()
    driver.work()
    term, vote_for = saved(driver)
    again = CoreDriver(terms=(1,), term=term, vote_for=vote_for)

    assert vote(again, "n1") is VoteResult.REJECT_ALREADY_VOTED
    assert vote(again, "n2") is VoteResult.ACCEPT


def elected_transferee() -> tuple[CoreDriver, list[AppendRequest], list[CompareRequest]]:
    """Return n0, which n1 has asked to lead, with the first requests that it sends as leader."""
    driver = CoreDriver(terms=(1,))
    driver.receive(heartbeat(1))
    driver.receive(TakeLeadershipRequest(sender="n1", receiver="n0", term=1))
    messages = driver.receive(driver.vote_from("n2"))
    assert driver.raft.role is Role.LEADER
    return driver, of_type(AppendRequest, messages), of_type(CompareRequest, messages)


def test_the_leader_that_handed_over_gets_the_first_entry_without_a_question() -> None:
    driver, pushes, questions = elected_transferee()
    assert [(push.receiver, push.previous_index, push.first_index) for push in pushes] == [
        ("n1", 0, 1)
    ]
    assert [question.receiver for question in questions] == ["n2"]
    driver.flush()
    driver.receive(driver.success_from("n1", 1))

    assert driver.raft.master


def test_a_former_leader_with_another_log_is_asked_as_every_peer_is() -> None:
    driver, _, _ = elected_transferee()
    refusal = PushResponse(
        sender="n1", receiver="n0", term=2, requested_term=2, match_index=-1, ledger_end_index=-1,
        result=PushResult.INCONSISTENT_STATE,
    )  # fmt: skip
    messages = driver.receive(refusal)
    for _ in range(HEARTBEAT_TICKS):
        messages += driver.tick()

    questions = [each for each in of_type(CompareRequest, messages) if each.receiver == "n1"]
    assert questions[-1].index == -1
