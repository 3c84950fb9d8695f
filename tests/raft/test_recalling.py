"""A member that starts with a disk: what it asks, and when it takes its disk for an older one. The
argument why is in `dledger_node.raft.recalling`.
"""

import pytest

from dledger_node.raft.member_state import Role
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.messages import (
    HeartBeatResponse,
    JoinRequest,
    JoinResponse,
    Message,
    PreVoteRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.recall_messages import Mark, RecallRequest, RecallResponse
from dledger_node.raft.refusals import RefusalCause
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    INCARNATION,
    CoreDriver,
    append,
    compare,
    heartbeat,
    of_type,
    only,
    pre_vote_request,
    vote_request,
)

RECALL_TICKS = 2 * ELECTION_TICKS
TERMS = (1, 1, 2)


def starting(**settings: object) -> CoreDriver:
    """A member of three that has just started with entries up to (2, 2), in term 2."""
    named: dict[str, object] = {"terms": TERMS, "recall_ticks": RECALL_TICKS, **settings}
    return CoreDriver(**named)  # type: ignore[arg-type]


def answer(
    sender: str,
    term: int = 2,
    mark: Mark | None = None,
    *,
    incarnation: int = INCARNATION,
    memberships: tuple[Membership, ...] = (),
) -> RecallResponse:
    return RecallResponse(
        sender=sender, receiver="n0", term=term, incarnation=incarnation, memberships=memberships,
        mark=mark,
    )  # fmt: skip


def votes(driver: CoreDriver, request: VoteRequest) -> bool:
    results = [one.result for one in of_type(VoteResponse, driver.receive(request))]
    return results == [VoteResult.ACCEPT]


# -- asking ----------------------------------------------------------------------------------------


def test_it_asks_those_who_are_silent_until_they_have_answered() -> None:
    driver = starting()

    asked = [of_type(RecallRequest, driver.tick(HEARTBEAT_TICKS)) for _ in range(2)]
    driver.receive(answer("n1"))
    asked.append(of_type(RecallRequest, driver.tick(HEARTBEAT_TICKS)))
    driver.receive(answer("n2"))
    asked.append(of_type(RecallRequest, driver.tick(HEARTBEAT_TICKS)))

    assert [[one.receiver for one in some] for some in asked] == [["n1", "n2"]] * 2 + [["n2"], []]
    assert all((one.incarnation, one.term) == (INCARNATION, 2) for some in asked for one in some)


def test_it_asks_at_once_who_can_be_reached_again() -> None:
    driver = starting()
    driver.tick()

    driver.raft.link_restored("n1")

    assert [one.receiver for one in of_type(RecallRequest, driver.tick())] == ["n1", "n2"]


@pytest.mark.parametrize("settings", [{"recall_ticks": 0}, {"voter_count": 1}])
def test_it_asks_nobody_where_that_is_not_wanted_or_nobody_is_there(
    settings: dict[str, object],
) -> None:
    driver = starting(**settings)

    assert not of_type(RecallRequest, driver.tick(HEARTBEAT_TICKS))
    assert not driver.raft.recalling


def test_until_all_have_answered_it_promises_nothing() -> None:
    driver = starting()
    driver.receive(answer("n1"))
    requests: list[Message] = [
        vote_request(3, sender="n1", end=(9, 2)), pre_vote_request(2, sender="n1", end=(9, 2)),
        heartbeat(2), compare(2, 2, 2), append(2, (2, 2), 3),
    ]  # fmt: skip

    for number, request in enumerate(requests, 1):
        assert not driver.receive(request)
        assert driver.raft.refusals[RefusalCause.RECALLING] == number
    assert not of_type(PreVoteRequest, driver.tick(RECALL_TICKS - 1))
    assert driver.raft.recalling
    assert driver.raft.term == 2


def test_once_all_have_answered_it_follows_and_votes() -> None:
    driver = starting()
    driver.receive(answer("n1"))
    driver.receive(answer("n2"))

    assert not driver.raft.recalling
    assert of_type(HeartBeatResponse, driver.receive(heartbeat(2)))
    assert votes(driver, vote_request(3, sender="n2", end=(2, 2), take_leadership=True))


def test_who_is_silent_for_too_long_is_not_waited_for() -> None:
    driver = starting()
    driver.receive(answer("n1"))
    driver.tick(RECALL_TICKS)

    assert not driver.raft.recalling
    assert votes(driver, vote_request(3, sender="n1", end=(2, 2)))
    assert [one.receiver for one in of_type(RecallRequest, driver.tick(HEARTBEAT_TICKS))] == ["n2"]


def test_it_takes_over_the_highest_term_that_is_told_and_votes_in_later_ones_only() -> None:
    driver = starting()
    driver.receive(answer("n1", term=7))
    driver.receive(answer("n2", term=5))

    assert driver.raft.term == 7
    refused = only(VoteResponse, driver.receive(vote_request(7, sender="n1", end=(2, 2))))
    assert refused.result is VoteResult.REJECT_ALREADY_VOTED
    assert votes(driver, vote_request(8, sender="n1", end=(2, 2)))


def test_a_vote_that_its_disk_knows_is_given_again() -> None:
    driver = starting(term=3, vote_for="n1")
    driver.receive(answer("n1", term=3))
    driver.receive(answer("n2", term=3))

    assert votes(driver, vote_request(3, sender="n1", end=(2, 2)))


def test_it_waits_for_members_that_it_learns_of() -> None:
    driver = starting()
    driver.receive(answer("n1", memberships=(Membership(("n0", "n1", "n2", "n3")),)))
    driver.receive(answer("n2"))

    assert driver.raft.recalling
    asked = of_type(RecallRequest, driver.tick(HEARTBEAT_TICKS))
    assert [one.receiver for one in asked] == ["n3"]


def test_answers_to_an_earlier_start_mean_nothing() -> None:
    driver = starting()
    driver.receive(answer("n1", mark=Mark(9, 9, 9), incarnation=INCARNATION - 1))

    assert not driver.raft.joining
    assert driver.raft.recalling


# -- what it concludes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mark",
    [Mark(3, -1, -1), Mark(2, 3, 2), Mark(2, 3, -1), Mark(2, 1, 2), Mark(2, 2, 1)],
    ids=["later term", "more entries", "more entries of any term", "another entry", "older entry"],
)
def test_a_disk_that_lacks_what_a_peer_remembers_is_older(mark: Mark) -> None:
    driver = starting()
    sent = driver.receive(answer("n2", mark=mark))

    assert "the disk is older than what n2 remembers" in driver.raft.joining
    assert driver.hard_state.joining, "a restart must not forget it"
    assert not of_type(VoteResponse, sent)
    driver.tick(RECALL_TICKS)
    assert not votes(driver, vote_request(4, sender="n1", end=(9, 3)))


@pytest.mark.parametrize(
    "mark",
    [None, Mark(2, 2, 2), Mark(2, 0, 1), Mark(2, 0, -1), Mark(2, -1, -1), Mark(1, 9, 1)],
    ids=["nothing", "the end", "less", "less of any term", "a vote", "an earlier term"],
)
def test_a_disk_that_holds_what_peers_remember_is_believed(mark: Mark | None) -> None:
    driver = starting()
    driver.receive(answer("n1", mark=mark))
    driver.receive(answer("n2", mark=mark))

    assert not driver.raft.joining
    assert not driver.raft.recalling


def test_what_was_removed_from_the_front_is_held() -> None:
    driver = starting(committed_index=2)
    driver.raft.remove_before(2)

    driver.receive(answer("n1", mark=Mark(2, 1, 2)))

    assert not driver.raft.joining


def test_a_later_term_is_found_out_after_other_answers_have_raised_the_term() -> None:
    driver = starting()
    driver.receive(answer("n1", term=7))
    driver.receive(answer("n2", term=7, mark=Mark(5, -1, -1)))

    assert driver.raft.joining


def test_a_term_that_it_is_told_is_not_saved_before_all_have_answered() -> None:
    """It may die before; its disk must say then what it says now, or marks are compared wrongly."""
    driver = starting()

    driver.receive(answer("n1", term=9))

    assert (driver.raft.term, driver.hard_state.term) == (2, 2)


def test_an_older_disk_takes_over_the_highest_term_that_it_was_told() -> None:
    driver = starting()

    driver.receive(answer("n1", term=9))
    driver.receive(answer("n2", mark=Mark(2, 7, 2)))

    assert driver.raft.joining
    assert driver.hard_state.term == 9


def test_what_is_learnt_late_still_counts() -> None:
    driver = starting()
    driver.receive(answer("n1"))
    driver.tick(RECALL_TICKS)
    assert votes(driver, vote_request(3, sender="n1", end=(2, 2)))

    driver.receive(answer("n2", term=3, mark=Mark(3, 5, 3)))

    assert driver.raft.joining


def test_even_a_leader_gives_up_when_it_learns_late() -> None:
    driver = starting()
    driver.tick(RECALL_TICKS)
    driver.become_leader()

    driver.receive(answer("n2", term=3, mark=Mark(driver.raft.term + 1, 5, 3)))

    assert driver.raft.role is Role.FOLLOWER
    assert driver.raft.joining


def test_late_answers_are_measured_by_what_is_here_by_then() -> None:
    """What it promised since its start, it promised by its disk as it is."""
    driver = starting()
    driver.tick(RECALL_TICKS)
    assert votes(driver, vote_request(3, sender="n1", end=(2, 2)))

    driver.receive(answer("n1", term=3, mark=Mark(3, -1, -1)))
    driver.receive(answer("n2", term=3, mark=Mark(2, 9, 2)))

    assert not driver.raft.joining
    assert driver.raft.term == 3


def test_an_older_disk_joins_by_questions_of_its_own() -> None:
    """Answers that came before may be older than a promise."""
    driver = starting()
    driver.receive(answer("n1"))
    driver.receive(answer("n2", mark=Mark(3, -1, -1)))

    asked = of_type(JoinRequest, driver.tick(HEARTBEAT_TICKS))

    assert [one.receiver for one in asked] == ["n1", "n2"]
    assert {one.incarnation for one in asked} == {INCARNATION}


def test_the_members_that_are_asked_are_those_of_the_log() -> None:
    entry = MembershipEntry(1, Membership(("n0", "n1")))
    driver = starting(memberships=(entry,), committed_index=2)

    assert [one.receiver for one in of_type(RecallRequest, driver.tick())] == ["n1"]


def test_an_answer_to_a_recalling_member_is_ignored_by_one_that_joins() -> None:
    driver = CoreDriver(joining=True)
    for peer_id in ("n1", "n2"):
        driver.receive(answer(peer_id, term=0))

    assert driver.raft.joining.startswith("waits for n1, n2")


def test_an_answer_to_a_joining_member_is_ignored_by_one_that_recalls() -> None:
    driver = starting()
    for peer_id in ("n1", "n2"):
        driver.receive(JoinResponse(
            sender=peer_id, receiver="n0", term=2, incarnation=INCARNATION, ledger_end_index=2,
            leading=False, joining=False, alone=False,
        ))  # fmt: skip

    assert driver.raft.recalling


def test_a_leader_does_not_hand_over_to_a_member_that_recalls() -> None:
    driver = CoreDriver(terms=[1])
    driver.become_leader()
    driver.agree("n1")
    driver.agree("n2")
    driver.receive(RecallRequest(sender="n1", receiver="n0", term=1, incarnation=9))

    assert driver.raft.fit_peer_ids[:1] == ("n2",)
