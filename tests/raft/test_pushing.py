"""The leader's side of replication. Rules: Raft paper, sections 5.3 and 5.4.2."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    Message,
    PushResponse,
    TakeLeadershipRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.ready import WriteProposal
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    append,
    compare,
    heartbeat,
    install,
    log_of,
    of_type,
    only,
    vote_request,
)


def leader_of(terms: list[int], **limits: int) -> CoreDriver:
    """Return a leader whose no-op, in the next term, follows entries of these terms."""
    driver = CoreDriver(terms=terms, **limits)  # type: ignore[arg-type]
    driver.become_leader()
    return driver


def in_append(terms: list[int], **limits: int) -> CoreDriver:
    """Return a leader whose peer n1 holds all of its log."""
    driver = leader_of(terms, **limits)
    driver.agree("n1")
    driver.receive(driver.success_from("n1", len(terms)))
    return driver


def ranges(messages: list[Message], receiver: str = "n1") -> list[tuple[int, int, int]]:
    return [
        (push.first_index, push.last_index, push.entries_term)
        for push in of_type(AppendRequest, messages)
        if push.receiver == receiver
    ]


def test_a_new_leader_probes_every_peer_at_the_end_of_its_own_log() -> None:
    driver = CoreDriver(terms=[1, 1, 2])
    questions = of_type(CompareRequest, driver.become_leader())

    assert [(one.receiver, one.index, one.index_term) for one in questions] == [
        ("n1", 2, 2),
        ("n2", 2, 2),
    ]


def test_a_leader_pushes_nothing_before_the_logs_are_known_to_agree() -> None:
    driver = leader_of([1, 1, 2])

    assert not of_type(AppendRequest, driver.propose(3))


def test_a_leader_probes_from_its_own_end_in_every_term() -> None:
    """Bug 8-1 of DLedger 0.4: it kept its first position, and removed committed entries."""
    driver = in_append([1])
    driver.receive(append(9, (1, 2), 40, 9, sender="n2"))
    questions = of_type(CompareRequest, driver.become_leader())

    assert {(one.index, one.index_term) for one in questions} == {(40, 9)}


def test_a_leader_pushes_the_entries_after_the_one_agreed_on() -> None:
    driver = leader_of([1, 1, 2])

    assert ranges(driver.agree("n1")) == [(3, 3, 3)]


def test_a_range_never_crosses_a_term() -> None:
    driver = leader_of([1, 1, 2, 2, 2, 4])
    question = only(CompareRequest, driver.questions_to("n1"))
    driver.receive(driver.denial_from("n1", 0, probe=question.probe))

    assert ranges(driver.agree("n1")) == [(1, 1, 1), (2, 4, 2), (5, 5, 4), (6, 6, 5)]


def test_the_size_and_number_of_pushes_in_flight_are_bounded() -> None:
    driver = in_append([1], push_entries_max=10, inflight_ranges_max=3)

    assert ranges(driver.propose(95)) == [(2, 11, 2), (12, 21, 2), (22, 31, 2)]
    assert ranges(driver.receive(driver.success_from("n1", 21))) == [(32, 41, 2), (42, 51, 2)]


def test_a_leader_pushes_all_proposals_of_one_turn_in_one_range() -> None:
    driver = in_append([1])
    for _ in range(5):
        driver.raft.propose(2, "bodies")

    assert ranges(driver.work()) == [(2, 11, 2)]


def test_a_partial_confirmation_counts_and_keeps_the_rest_in_flight() -> None:
    driver = in_append([1], inflight_ranges_max=1)
    driver.propose(10)
    assert not ranges(driver.receive(driver.success_from("n1", 5)))
    assert driver.raft.match_indexes()["n1"] == 5
    driver.propose(1)

    assert ranges(driver.receive(driver.success_from("n1", 11))) == [(12, 12, 2)]


def test_a_majority_commits_an_entry_of_this_term() -> None:
    driver = leader_of([1, 1])
    driver.agree("n1")
    assert not driver.raft.master
    driver.receive(driver.success_from("n1", 2))

    assert driver.raft.committed_index == 2
    assert driver.raft.master


def test_a_leader_does_not_commit_entries_of_older_terms_by_counting() -> None:
    """Raft paper, figure 8."""
    driver = leader_of([1, 1])
    driver.agree("n1", match_index=1)
    driver.agree("n2", match_index=1)

    assert driver.raft.committed_index == -1


def test_a_leader_counts_its_own_copy_once_it_is_durable() -> None:
    driver = CoreDriver(terms=[1])
    driver.become_leader(flushed=False)
    driver.agree("n1")
    driver.receive(driver.success_from("n1", 1))
    assert driver.raft.committed_index == -1
    driver.flush()

    assert driver.raft.committed_index == 1


def test_a_majority_of_others_commits_entries_that_the_leader_has_not_flushed() -> None:
    driver = CoreDriver(terms=[1])
    driver.become_leader(flushed=False)
    for peer_id in ("n1", "n2"):
        driver.agree(peer_id)
        driver.receive(driver.success_from(peer_id, 1))

    assert (driver.raft.committed_index, driver.raft.durable_index) == (1, 0)


def test_a_heartbeat_commits_no_more_than_the_peer_confirmed() -> None:
    driver = in_append([1, 1])
    heartbeats = of_type(HeartBeatRequest, driver.tick(HEARTBEAT_TICKS))

    assert {one.receiver: one.committed_index for one in heartbeats} == {"n1": 2, "n2": -1}


def test_a_response_to_an_earlier_term_does_not_count() -> None:
    driver = leader_of([1])
    driver.receive(driver.success_from("n1", 1, term=1))

    assert driver.raft.match_indexes()["n1"] == -1


def test_a_response_to_an_earlier_probe_does_not_count() -> None:
    driver = leader_of([1, 1, 2])
    first = only(CompareRequest, driver.questions_to("n1"))
    driver.receive(driver.denial_from("n1", 0, probe=first.probe))
    late = driver.receive(driver.success_from("n1", 2, probe=first.probe))

    assert not late
    assert driver.raft.match_indexes()["n1"] == -1


def test_a_repeated_probe_keeps_its_number() -> None:
    driver = leader_of([1])
    first = only(CompareRequest, driver.questions_to("n1"))
    again = [
        question
        for question in of_type(CompareRequest, driver.tick(HEARTBEAT_TICKS))
        if question.receiver == "n1"
    ]

    assert again == [first]


def test_a_leader_ignores_a_confirmation_beyond_its_own_log() -> None:
    driver = leader_of([1])
    driver.receive(driver.success_from("n1", 50))

    assert driver.raft.match_indexes()["n1"] == -1
    assert driver.raft.committed_index == -1


def test_a_leader_probes_a_short_peer_at_the_end_of_its_log() -> None:
    driver = leader_of([1] * 50)
    question = only(CompareRequest, driver.questions_to("n1"))
    messages = driver.receive(driver.denial_from("n1", 20, probe=question.probe))

    assert only(CompareRequest, messages).index == 20


def test_a_leader_goes_back_to_its_last_entry_of_a_term_that_both_have() -> None:
    """Bug 8-1a of DLedger 0.4: it goes to the peer's first entry, and removes shared entries."""
    driver = leader_of([1] * 5 + [2] * 8 + [3] * 3)
    question = only(CompareRequest, driver.questions_to("n1"))
    denial = driver.denial_from("n1", 15, conflict_term=2, conflict_index=5, probe=question.probe)
    messages = driver.receive(denial)

    assert only(CompareRequest, messages).index == 12


def test_a_leader_skips_a_term_that_only_the_peer_has() -> None:
    driver = leader_of([1] * 5 + [3] * 10)
    question = only(CompareRequest, driver.questions_to("n1"))
    denial = driver.denial_from("n1", 30, conflict_term=2, conflict_index=4, probe=question.probe)
    messages = driver.receive(denial)

    assert only(CompareRequest, messages).index == 3


def test_a_refused_push_leads_to_a_probe() -> None:
    driver = in_append([1])
    driver.propose(9)
    messages = driver.receive(driver.denial_from("n1", 4))
    assert only(CompareRequest, messages).index == 4
    assert not driver.receive(driver.denial_from("n1", 4)), "one probe is enough"

    assert ranges(driver.agree("n1")) == [(5, 10, 2)]


def test_a_leader_does_not_probe_a_contradictory_peer_in_a_busy_loop() -> None:
    driver = leader_of([1])
    driver.agree("n1")
    driver.receive(driver.denial_from("n1", 0))
    driver.agree("n1")
    hurried = driver.receive(driver.denial_from("n1", 0))

    assert not of_type(CompareRequest, hurried)
    assert of_type(CompareRequest, driver.tick(HEARTBEAT_TICKS))


def test_a_leader_stops_counting_a_peer_that_lost_entries_and_pushes_them_again() -> None:
    driver = in_append([1, 1, 1])
    driver.raft.link_lost("n1")
    question = only(CompareRequest, driver.questions_to("n1"))
    assert question.index == 3
    driver.receive(driver.denial_from("n1", 0, probe=question.probe))
    assert driver.raft.match_indexes()["n1"] == 0

    assert ranges(driver.agree("n1")) == [(1, 2, 1), (3, 3, 2)]


def test_unanswered_pushes_lead_to_a_probe_for_the_last_entry_sent() -> None:
    driver = in_append([1])
    driver.propose(5)
    asked: list[CompareRequest] = []
    for round_ in range(ELECTION_TICKS):
        driver.receive(driver.heard_from("n1", round_))
        asked += [one for one in of_type(CompareRequest, driver.tick()) if one.receiver == "n1"]
        if asked:
            break

    assert asked[0].index == 6
    assert round_ < ELECTION_TICKS
    assert driver.raft.role is Role.LEADER


@settings(max_examples=300)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=14).map(sorted),
    st.lists(st.integers(1, 6), max_size=14).map(sorted),
    st.integers(0, 14),
)
def test_any_two_logs_converge_with_one_probe_per_term(
    mine: list[int], tail: list[int], shared: int
) -> None:
    """The peer shares a prefix and has a different tail, as in figure 7 of the paper."""
    shared = min(shared, len(mine))
    driver = leader_of(mine)
    lowest_term = (mine[:shared] or [0])[-1]
    # The peer cannot hold entries of the leader's own term that the leader does not have.
    theirs = mine[:shared] + [one for one in tail if one >= lowest_term and one != driver.raft.term]
    peer = log_of(theirs)
    question = only(CompareRequest, driver.questions_to("n1"))
    count = 1
    while not peer.holds(question.index, question.index_term):
        count += 1
        question = only(CompareRequest, driver.receive(denied(driver, theirs, question)))

    assert question.index >= shared - 1
    assert count <= len(set(theirs)) + 2


def denied(driver: CoreDriver, theirs: list[int], question: CompareRequest) -> PushResponse:
    """Return the response of a peer with entries of these terms."""
    conflict_term = theirs[question.index] if question.index < len(theirs) else -1
    conflict_index = theirs.index(conflict_term) if conflict_term >= 0 else -1
    return driver.denial_from(
        "n1", len(theirs) - 1, conflict_term=conflict_term, conflict_index=conflict_index,
        probe=question.probe,
    )  # fmt: skip


@pytest.mark.parametrize("count", [0, -1])
def test_an_empty_proposal_raises_an_error(count: int) -> None:
    with pytest.raises(AssertionError):
        leader_of([1]).propose(count)


def test_a_leader_pushes_after_unflushed_entries_of_a_peer_without_waiting() -> None:
    driver = leader_of([1] * 10)
    driver.propose(5)
    messages = driver.agree("n1", match_index=4)

    assert ranges(messages) == [(10, 15, 2)]
    assert driver.raft.match_indexes()["n1"] == 4


def test_a_leader_refuses_a_candidate_of_its_term() -> None:
    driver = leader_of([1])
    response = only(VoteResponse, driver.receive(vote_request(2, end=(9, 1))))

    assert response.result is VoteResult.REJECT_ALREADY_HAS_LEADER
    assert driver.raft.role is Role.LEADER


@pytest.mark.parametrize("term", [1, 2])
def test_a_leader_only_appends_to_its_own_log(term: int) -> None:
    """Leader Append-Only (Raft paper, figure 3), despite requests of an earlier term or its own."""
    driver = leader_of([1, 1, 1])
    driver.agree("n1", match_index=0)
    driver.receive(driver.denial_from("n2", 1, conflict_term=1, conflict_index=0))
    written = list(driver.writes)
    for message in (
        append(term, (0, 1), 9),
        append(term, (-1, -1), 1, 1, committed_index=1),
        compare(term, 3, 1),
        install(term, 9, 10),
        heartbeat(term, committed_index=3),
        TakeLeadershipRequest(sender="n1", receiver="n0", term=term),
    ):
        driver.receive(message)
    driver.propose(2)

    assert driver.raft.role is Role.LEADER
    assert driver.writes == [
        *written,
        WriteProposal(first_index=4, last_index=5, term=2, entries="bodies"),
    ]
