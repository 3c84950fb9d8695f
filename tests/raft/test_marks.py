"""What a member remembers of what others have promised to it; `dledger_node.raft.marks`."""

from dataclasses import replace

from dledger_node.raft.log_terms import LogEnd
from dledger_node.raft.member_state import Role
from dledger_node.raft.membership import AddLearner, Membership, MembershipEntry, Remove
from dledger_node.raft.messages import (
    CompareRequest,
    HeartBeatRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.recall_messages import Mark, RecallRequest, RecallResponse
from dledger_sim.stage import changing
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    append,
    compare,
    heartbeat,
    of_type,
    only,
    vote_request,
)


def told(driver: CoreDriver, peer_id: str) -> Mark | None:
    """What a member answers to a peer that asks what it remembers."""
    question = RecallRequest(sender=peer_id, receiver="n0", term=0, incarnation=9)
    return only(RecallResponse, driver.receive(question)).mark


def told_promise(driver: CoreDriver, peer_id: str) -> Mark | None:
    """The same without what a loss of power under AsyncFlush is judged by."""
    mark = told(driver, peer_id)
    return Mark(*mark[:3]) if mark else None


def votes_for(driver: CoreDriver, sender: str, term: int, end: tuple[int, int] = (-1, -1)) -> bool:
    request = vote_request(term, sender=sender, end=end, take_leadership=True)
    (answer,) = of_type(VoteResponse, driver.receive(request))
    return answer.result is VoteResult.ACCEPT


def test_a_leader_remembers_what_was_confirmed_to_it_also_when_it_leads_no_more() -> None:
    driver = CoreDriver(terms=(1,))
    driver.become_leader()
    driver.flush()
    driver.agree("n1")
    driver.receive(driver.success_from("n1", 1))
    term = driver.raft.term
    assert told_promise(driver, "n1") == Mark(term, 1, term)

    driver.receive(heartbeat(term + 1, sender="n2"))

    assert driver.raft.role is Role.FOLLOWER
    assert told_promise(driver, "n1") == Mark(term, 1, term)


def test_a_later_promise_takes_the_place_of_a_longer_one() -> None:
    driver = CoreDriver(terms=(1,))
    driver.become_leader()
    driver.flush()
    driver.agree("n1")
    driver.receive(driver.success_from("n1", 1))
    later = driver.raft.term + 2

    assert votes_for(driver, "n1", later, end=(1, later - 1))

    assert told_promise(driver, "n1") == Mark(later, -1, -1)


def test_a_leader_remembers_what_a_peer_has_lost() -> None:
    driver = CoreDriver(terms=(1,))
    driver.become_leader()
    driver.flush()
    driver.agree("n1")
    driver.receive(driver.success_from("n1", 1))
    term = driver.raft.term
    driver.raft.link_lost("n1")
    probe = only(CompareRequest, driver.questions_to("n1")).probe

    driver.receive(driver.denial_from("n1", -1, probe=probe))

    assert driver.raft.match_indexes()["n1"] == -1
    assert told_promise(driver, "n1") == Mark(term, 1, term)


def test_a_mark_goes_with_a_log_that_its_leader_replaces() -> None:
    """A crash right then leaves an empty log, and the disk is sound."""
    driver = CoreDriver(terms=(1, 1, 1), committed_index=2)
    driver.become_leader()
    driver.flush()
    for peer_id, match_index in (("n1", 0), ("n2", 3)):
        question = only(CompareRequest, driver.questions_to(peer_id))
        held = driver.success_from(peer_id, match_index, probe=question.probe)
        driver.receive(held)
    term = driver.raft.term
    assert told_promise(driver, "n1") == Mark(term, 0, 1)
    driver.raft.remove_before(2)
    driver.raft.link_lost("n1")
    question = only(CompareRequest, driver.questions_to("n1"))

    driver.receive(driver.denial_from("n1", 0, probe=question.probe))

    assert told_promise(driver, "n1") == Mark(term, -1, -1)


def test_a_candidate_remembers_its_votes_and_a_voter_its_candidate() -> None:
    driver = CoreDriver()
    driver.become_leader()
    assert told_promise(driver, "n1") == Mark(driver.raft.term, -1, -1)

    voter = CoreDriver()
    assert votes_for(voter, "n2", 4)
    assert told_promise(voter, "n2") == Mark(4, -1, -1)


def test_a_follower_remembers_what_its_leader_has_said_to_be_committed() -> None:
    driver = CoreDriver(terms=(1, 1))
    driver.receive(compare(2, 1, 1, committed_index=0))
    assert told_promise(driver, "n1") == Mark(2, 0, 1)

    driver.tick(3 * ELECTION_TICKS)

    assert driver.raft.role is Role.CANDIDATE
    assert told_promise(driver, "n1") == Mark(2, 0, 1)


def test_a_leader_says_no_more_to_be_committed_than_it_holds_durably() -> None:
    """Or a leader that lost its unflushed tail would be taken for one with an older disk."""
    driver = CoreDriver()
    driver.become_leader(flushed=False)
    for peer_id in driver.voters():
        driver.agree(peer_id)
        driver.receive(driver.success_from(peer_id, 0))
    assert driver.raft.committed_index == 0

    before = of_type(HeartBeatRequest, driver.tick(HEARTBEAT_TICKS))
    driver.flush()
    after = of_type(HeartBeatRequest, driver.tick(HEARTBEAT_TICKS))

    assert {one.committed_index for one in before} == {-1}
    assert {one.committed_index for one in after} == {0}


def test_a_mark_stays_while_the_removal_of_its_member_may_be_truncated() -> None:
    driver = changing.leader(voter_count=5)
    known = told_promise(driver, "n4")
    assert known is not None
    removal = MembershipEntry(1, Membership(("n0", "n1", "n2", "n3")))

    driver.receive(compare(2, 0, 1))
    driver.receive(replace(append(2, (0, 1), 1), memberships=(removal,)))
    assert told_promise(driver, "n4") == known
    driver.receive(compare(3, 0, 1, sender="n2"))
    driver.receive(append(3, (0, 1), 1, sender="n2"))

    assert "n4" in driver.raft.membership.voters, "the removal was truncated"
    assert told_promise(driver, "n4") == known


def test_a_mark_goes_when_its_member_is_added_again() -> None:
    driver = changing.leader(voter_count=4)
    assert driver.change(Remove("n3")) is None
    changing.confirm(driver, "n1", "n2")

    assert driver.change(AddLearner("n3")) is None

    assert told_promise(driver, "n3") is None


def test_a_vote_in_a_later_term_does_not_hide_the_end_that_was_confirmed() -> None:
    driver = CoreDriver(terms=(1,))
    driver.become_leader()
    driver.flush()
    driver.agree("n1")
    driver.receive(driver.success_from("n1", 1))
    term = driver.raft.term

    assert votes_for(driver, "n1", term + 2, end=(term + 1, 9))

    mark = told(driver, "n1")
    assert mark
    assert (mark.term, mark.index, mark.end) == (term + 2, -1, LogEnd(term, 1))


def test_a_mark_is_whole_if_this_member_led_the_term_of_the_confirmed_entry() -> None:
    driver = CoreDriver(terms=(1, 1))
    driver.become_leader()
    driver.flush()
    driver.agree("n1")
    earlier_term = told(driver, "n1")
    driver.receive(driver.success_from("n1", 2))

    this_term = told(driver, "n1")

    assert earlier_term
    assert this_term
    assert (earlier_term.is_whole, this_term.is_whole) == (False, True)
    assert (earlier_term.end, this_term.end) == (LogEnd(1, 1), LogEnd(driver.raft.term, 2))


def test_what_a_follower_remembers_of_its_leader_is_not_whole() -> None:
    driver = CoreDriver(terms=(1, 2))
    driver.receive(compare(2, 1, 2, committed_index=1))

    mark = told(driver, "n1")

    assert mark == Mark(2, 1, 2, end=LogEnd(2, 1), is_whole=False)
