"""A new group whose first voters begin with the log of an archive (`dledger_node.raft.joining`)."""

import pytest

from dledger_node.raft.log_terms import LogEnd
from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import JoinResponse, VoteResponse
from dledger_node.raft.ready import HardState
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    INCARNATION,
    CoreDriver,
    append,
    compare,
    of_type,
    vote_request,
)

TERMS = (1, 1, 4, 4)
SEED = LogEnd(4, 3)


def answer(
    sender: str, term: int, end_index: int, *, joining: bool = True, leading: bool = False
) -> JoinResponse:
    return JoinResponse(
        sender=sender, receiver="n0", term=term, incarnation=INCARNATION,
        ledger_end_index=end_index, leading=leading, joining=joining, alone=False,
    )  # fmt: skip


def seeded(*answers: JoinResponse, new_group: bool = True, voter_count: int = 3) -> CoreDriver:
    driver = CoreDriver(
        terms=TERMS, committed_index=3, joining=True, seed_end=SEED, voter_count=voter_count,
        addable_ids=("n3",), new_group=new_group,
    )  # fmt: skip
    for one in answers:
        driver.receive(one)
    driver.work()
    return driver


def test_a_group_begins_once_all_first_voters_have_the_archive() -> None:
    driver = seeded(answer("n1", 4, 3))
    assert driver.raft.joining == "waits for n2: all others must answer before it may vote"
    driver.receive(answer("n2", 4, 3, joining=False))

    assert not driver.raft.joining
    assert driver.hard_state == HardState(term=4, vote_for=None)
    driver.tick(2 * ELECTION_TICKS)
    assert driver.raft.role is not Role.FOLLOWER


def test_a_seeded_member_neither_votes_nor_stands_before_that() -> None:
    driver = seeded(answer("n1", 4, 3))

    said = driver.receive(vote_request(5, end=(9, 5)))
    driver.tick(10 * ELECTION_TICKS)
    assert not of_type(VoteResponse, said)
    assert driver.raft.role is Role.FOLLOWER
    assert driver.hard_state == HardState(term=4, vote_for=None, joining=True, seed_end=SEED)


@pytest.mark.parametrize(
    "other",
    [
        answer("n2", 0, -1),
        answer("n2", 4, 2),
        answer("n2", 5, 3),
        answer("n2", 3, 3),
        answer("n2", 4, 4, joining=False),
    ],
    ids=["blank", "another archive", "a vote", "an older archive", "an entry more"],
)
def test_no_group_begins_if_a_first_voter_has_something_else(other: JoinResponse) -> None:
    driver = seeded(answer("n1", 4, 3), other)

    assert driver.raft.joining.startswith(
        "waits for a leader, or for all first voters to begin with the archive that ends with "
        "entry 3 of term 4: n2 has another log, or none"
    )
    driver.tick(10 * ELECTION_TICKS)
    assert driver.raft.role is Role.FOLLOWER


def test_blank_members_begin_no_group_without_the_seeded_one() -> None:
    driver = CoreDriver(joining=True, new_group=True)
    for one in (answer("n1", 0, -1), answer("n2", 4, 3)):
        driver.receive(one)

    assert driver.raft.joining


def test_a_group_that_is_not_declared_new_does_not_begin_with_an_archive() -> None:
    others = [answer(f"n{number}", 4, 3) for number in (1, 2, 3)]

    assert seeded(*others, new_group=False).raft.joining


def test_a_member_that_is_seeded_again_after_the_beginning_joins_and_does_not_vote() -> None:
    """The volume of n0 was lost while the settings still called the group new."""
    driver = seeded(
        answer("n1", 5, 6, joining=False, leading=True), answer("n2", 5, 4, joining=False)
    )
    assert not of_type(VoteResponse, driver.receive(vote_request(5, end=(9, 5))))
    driver.receive(compare(5, 3, 4))
    driver.receive(append(5, (3, 4), 5))
    driver.flush()
    assert driver.raft.joining == "waits for the entries of n1 up to 6"
    driver.receive(append(5, (5, 5), 6))
    driver.flush()

    assert driver.hard_state == HardState(term=5, vote_for=None)
    assert driver.raft.ledger_end_index == 6


def test_the_only_first_voter_begins_after_a_time_out_with_its_archive() -> None:
    driver = seeded(voter_count=1)
    driver.tick(ELECTION_TICKS - 1)
    assert driver.raft.joining
    for _ in range(2 * ELECTION_TICKS + 1):
        driver.tick()

    assert driver.raft.role is Role.LEADER


def test_a_member_restarts_as_seeded_until_the_group_has_begun() -> None:
    before = seeded(answer("n1", 4, 3))
    again = CoreDriver(terms=TERMS, committed_index=3, joining=True, new_group=True,
                       seed_end=before.hard_state.seed_end)  # fmt: skip
    for one in (answer("n1", 4, 3), answer("n2", 4, 3)):
        again.receive(one)

    assert not again.raft.joining
