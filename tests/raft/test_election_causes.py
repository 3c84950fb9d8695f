"""Every election has a cause, which the member logs and counts."""

import itertools
import logging
from typing import cast

import pytest

from dledger_formats.http.status import LeaderView, StoodBecause
from dledger_node.config import TICK_MS
from dledger_node.raft.core import Raft
from dledger_node.raft.election_causes import Election, ElectionCause
from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import TakeLeadershipRequest
from dledger_node.shell.leader_watch import LeaderWatch, describe
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    heartbeat,
    vote_request,
)


def election_of(driver: CoreDriver) -> Election:
    """Tick until the member stands for election, and return why it does."""
    for _ in range(3 * ELECTION_TICKS):
        driver.tick()
        if driver.raft.role is Role.CANDIDATE:
            break
    election = driver.raft.last_election
    assert election is not None
    return election


def test_a_silent_leader_is_the_cause() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))

    election = election_of(driver)

    assert (election.cause, election.leader_id) == (ElectionCause.NO_HEARTBEAT, "n1")
    assert election.silent_ticks == ELECTION_TICKS
    assert "n1, the leader of term 1, sent nothing for" in describe(election)


def test_a_broken_link_to_the_leader_is_the_cause() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    driver.raft.link_lost("n1")

    election = election_of(driver)

    assert election.cause is ElectionCause.LEADER_LINK_LOST
    assert election.silent_ticks <= 2 * HEARTBEAT_TICKS


def test_a_silent_leader_is_the_cause_even_if_the_member_lets_others_stand_first() -> None:
    """While it does, it follows nobody, so that clients look for another leader."""
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    driver.raft.note_state(is_behind=True)
    driver.tick(2 * ELECTION_TICKS)
    assert driver.raft.leader_id is None

    election = election_of(driver)

    assert (election.cause, election.leader_id) == (ElectionCause.NO_HEARTBEAT, "n1")
    assert election.silent_ticks >= 3 * ELECTION_TICKS


def test_a_broken_link_is_the_cause_even_if_the_member_lets_others_stand_first() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    driver.raft.note_state(is_behind=True)
    driver.raft.link_lost("n1")

    election = election_of(driver)

    assert (election.cause, election.leader_id) == (ElectionCause.LEADER_LINK_LOST, "n1")


def test_a_silent_leader_of_an_earlier_term_is_not_the_cause() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    driver.raft.note_state(is_behind=True)
    driver.tick(2 * ELECTION_TICKS)
    driver.receive(vote_request(2, sender="n2"))

    election = election_of(driver)

    assert (election.cause, election.leader_id) == (ElectionCause.NO_LEADER, None)


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        (ElectionCause.NO_HEARTBEAT, "n1, the leader of term 4, sent nothing for 70 ms"),
        (
            ElectionCause.LEADER_LINK_LOST,
            "the link to n1, the leader of term 4, broke, and it sent nothing for 70 ms",
        ),
        (ElectionCause.NO_LEADER, "it knows no leader of term 4"),
        (ElectionCause.NO_WINNER, "the last round of votes after term 4 had no winner"),
        (ElectionCause.TRANSFER, "n1, the leader of term 4, handed over to it"),
    ],
)
def test_every_cause_is_described_in_a_sentence(cause: ElectionCause, sentence: str) -> None:
    election = Election(cause=cause, term=4, leader_id="n1", silent_ticks=70 // TICK_MS)

    assert describe(election) == f"this member stands for election because {sentence}"


def test_a_term_without_a_known_leader_is_the_cause() -> None:
    election = election_of(CoreDriver(term=4))

    assert (election.cause, election.leader_id) == (ElectionCause.NO_LEADER, None)
    assert "no leader of term 4" in describe(election)


def test_a_transfer_is_the_cause() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))

    driver.receive(TakeLeadershipRequest(sender="n1", receiver="n0", term=1))

    assert dict(driver.raft.elections) == {ElectionCause.TRANSFER: 1}


def test_rounds_without_a_winner_are_counted_but_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = CoreDriver(term=4)
    watch = LeaderWatch(cast("Raft", driver.raft))

    with caplog.at_level(logging.INFO):
        for _ in range(20 * ELECTION_TICKS):
            driver.tick()
            watch.on_turn(-1)

    lines = [record.message for record in caplog.records if "election" in record.message]
    assert len(lines) == 2
    assert "no leader of term 4" in lines[0]
    assert "had no winner" in lines[1]
    assert driver.raft.elections[ElectionCause.NO_WINNER] > 10


def test_changes_of_the_leader_are_logged_as_sentences(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        watched = Watched()
        watched.driver.tick(3 * ELECTION_TICKS)
        watched.turn(1.0)
        watched.win()

    logged = [line for line in caplog.messages if line.startswith("leader: ")]
    assert logged[0] == "leader: this member follows n1, the leader of term 1"
    assert "leader: this member knows no leader of term 1" in logged
    assert logged[-1].startswith("leader: this member leads term 2; entries up to 0 are committed")


def test_a_leader_that_no_majority_answers_says_why_it_no_longer_leads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched()
    watched.win()

    for _ in range(2 * ELECTION_TICKS):
        watched.driver.tick()
        watched.turn()

    logged = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    silent_ms = ELECTION_TICKS * TICK_MS
    why = f"no majority has answered for {silent_ms} ms"
    assert logged.count(f"leader: this member no longer leads term 2: {why}") == 1
    assert not watched.driver.raft.leads


def test_a_leader_that_learns_of_a_later_term_does_not_say_that_no_majority_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched()
    watched.win()

    watched.driver.receive(heartbeat(5))
    watched.turn()

    assert "no majority" not in caplog.text


def test_the_same_sentence_about_the_leader_is_not_logged_twice_in_a_row(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        watched = Watched()
        watched.driver.stand()
        watched.turn()
        for peer_id in watched.driver.voters():
            watched.driver.receive(watched.driver.vote_from(peer_id))
            watched.turn()

    logged = [line for line in caplog.messages if line.startswith("leader: ")]
    assert watched.driver.raft.leads
    assert logged == [line for line, _ in itertools.groupby(logged)]


class Watched:
    """A member with a watch, and a clock that the test advances."""

    def __init__(self) -> None:
        self.driver = CoreDriver()
        self.now_s = 100.0
        self.watch = LeaderWatch(cast("Raft", self.driver.raft), clock=lambda: self.now_s)
        self.driver.receive(heartbeat(1))
        self.turn()

    def turn(self, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.watch.on_turn(-1)

    def win(self) -> LeaderView:
        """Win the votes and commit the first entry of the term; return what `/leader` says."""
        self.driver.become_leader()
        self.turn()
        self.driver.agree("n1", 0)
        self.turn(after_s=0.25)
        self.now_s += 4.0
        return self.watch.leader_view()


def test_a_leader_says_that_it_stood_because_the_former_one_was_silent() -> None:
    member = Watched()
    election_of(member.driver)
    member.turn()

    view = member.win()

    assert view.master
    assert (view.stood_because, view.former_leader_id) == ("NO_HEARTBEAT", "n1")
    assert view.silent_ms == ELECTION_TICKS * TICK_MS
    assert (view.election_ms, view.leading_ms) == (250, 4000)


def test_a_leader_says_that_it_was_handed_the_leadership() -> None:
    member = Watched()
    member.driver.receive(TakeLeadershipRequest(sender="n1", receiver="n0", term=1))
    member.turn()

    view = member.win()

    assert (view.stood_because, view.silent_ms) == ("TRANSFER", 0)


def test_rounds_without_a_winner_count_as_part_of_the_election_that_they_began_with() -> None:
    member = Watched()
    for _ in range(10 * ELECTION_TICKS):
        member.driver.tick()
        member.turn(after_s=0.01)
    assert member.driver.raft.elections[ElectionCause.NO_WINNER] > 1

    view = member.win()

    assert view.stood_because == "NO_HEARTBEAT"
    assert view.election_ms > 1000


def test_a_follower_says_nothing_about_an_election_that_another_member_won() -> None:
    member = Watched()
    election_of(member.driver)
    member.turn()
    member.driver.receive(heartbeat(5))
    member.turn()

    view = member.watch.leader_view()

    assert view.leader_id == "n1"
    assert (view.stood_because, view.silent_ms, view.leading_ms) == ("", -1, -1)


def test_the_causes_that_members_tell_are_those_that_they_know() -> None:
    assert {each.value for each in StoodBecause} == {each.value for each in ElectionCause}
