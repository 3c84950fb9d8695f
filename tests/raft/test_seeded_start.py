"""A new group whose first voters begin with the log of an archive (`dledger_node.raft.joining`)."""

import pytest

from dledger_node.raft.log_terms import LogEnd, Seed
from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import JoinRequest, JoinResponse, VoteResponse
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
DIGEST, OTHER_DIGEST = "a5" * 32, "5a" * 32
SEED = Seed(LogEnd(4, 3), DIGEST)


def answer(
    sender: str, term: int, end_index: int, *, joining: bool = True, leading: bool = False,
    seed_sha256: str = DIGEST,
) -> JoinResponse:  # fmt: skip
    return JoinResponse(
        sender=sender, receiver="n0", term=term, incarnation=INCARNATION,
        ledger_end_index=end_index, leading=leading, joining=joining, alone=False,
        seed_sha256=seed_sha256,
    )  # fmt: skip


def seeded(
    *answers: JoinResponse, new_group: bool = True, voter_count: int = 3, needs_seed: bool = True,
    addable_ids: tuple[str, ...] = ("n3",),
) -> CoreDriver:  # fmt: skip
    driver = CoreDriver(
        terms=TERMS, committed_index=3, joining=True, seed=SEED, voter_count=voter_count,
        addable_ids=addable_ids, new_group=new_group, needs_seed=needs_seed,
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
    assert driver.hard_state == HardState(term=4, vote_for=None, seed=SEED)
    driver.tick(2 * ELECTION_TICKS)
    assert driver.raft.role is not Role.FOLLOWER


def test_a_seeded_member_neither_votes_nor_stands_before_that() -> None:
    driver = seeded(answer("n1", 4, 3))

    sent = driver.receive(vote_request(5, end=(9, 5)))
    driver.tick(10 * ELECTION_TICKS)
    assert not of_type(VoteResponse, sent)
    assert driver.raft.role is Role.FOLLOWER
    assert driver.hard_state == HardState(term=4, vote_for=None, joining=True, seed=SEED)


@pytest.mark.parametrize(
    "other",
    [
        answer("n2", 0, -1),
        answer("n2", 4, 2),
        answer("n2", 5, 3),
        answer("n2", 3, 3),
        answer("n2", 4, 4, joining=False),
        answer("n2", 4, 3, seed_sha256=OTHER_DIGEST),
        answer("n2", 4, 3, seed_sha256=""),
    ],
    ids=[
        "blank",
        "another archive",
        "a vote",
        "an older archive",
        "an entry more",
        "another archive that ends in the same place",
        "a log of unknown origin",
    ],
)
def test_no_group_begins_if_a_first_voter_has_something_else(other: JoinResponse) -> None:
    driver = seeded(answer("n1", 4, 3), other)

    assert driver.raft.joining.startswith(
        "waits for a leader, or for all first voters to begin with the archive that ends with "
        f"entry 3 of term 4 and has copySha256 {DIGEST}: n2 has another log, or none"
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

    assert seeded(*others, new_group=False).raft.joining.endswith(
        f"for the settings to call the group new: all have the archive with copySha256 {DIGEST}"
    )


@pytest.mark.parametrize("new_group", [False, True])
@pytest.mark.parametrize(
    ("voter_count", "addable_ids"), [(1, ()), (1, ("n3",)), (3, ("n3",)), (7, ())]
)
def test_members_with_an_archive_begin_no_group_that_is_to_begin_without_one(
    voter_count: int, addable_ids: tuple[str, ...], *, new_group: bool
) -> None:
    """Their volumes are left of a group of this name that never had a leader."""
    others = [answer(f"n{number}", 4, 3) for number in range(1, voter_count)]
    others += [answer(one, 4, 3) for one in addable_ids if voter_count == 1]
    driver = seeded(
        *others, new_group=new_group, voter_count=voter_count, addable_ids=addable_ids,
        needs_seed=False,
    )  # fmt: skip
    driver.tick(10 * ELECTION_TICKS)

    assert driver.raft.role is Role.FOLLOWER
    assert driver.hard_state == HardState(term=4, vote_for=None, joining=True, seed=SEED)
    assert driver.raft.joining == (
        f"waits for a leader: it has the log of an archive, with copySha256 {DIGEST}, but the "
        "settings do not say that the group begins with an archive"
    )


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

    assert driver.hard_state == HardState(term=5, vote_for=None, seed=SEED)
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
                       needs_seed=True, seed=before.hard_state.seed)  # fmt: skip
    for one in (answer("n1", 4, 3), answer("n2", 4, 3)):
        again.receive(one)

    assert not again.raft.joining


def test_a_member_says_which_archive_it_began_with_to_those_that_say_so_too() -> None:
    driver = seeded(answer("n1", 4, 3), answer("n2", 4, 3))
    for asked, told in ((DIGEST, DIGEST), (OTHER_DIGEST, DIGEST), ("", "")):
        question = JoinRequest(
            sender="n1", receiver="n0", term=4, incarnation=9, seed_sha256=asked
        )  # fmt: skip
        [response] = of_type(JoinResponse, driver.receive(question))
        assert response.seed_sha256 == told
    assert not driver.raft.joining


def test_a_member_asks_with_its_archive_while_it_has_nothing_else() -> None:
    asked = of_type(JoinRequest, seeded().tick(ELECTION_TICKS))
    assert {each.seed_sha256 for each in asked} == {DIGEST}
    healed = CoreDriver(terms=TERMS[:2], term=4, joining=True, seed=SEED, new_group=True)
    asked = of_type(JoinRequest, healed.tick(ELECTION_TICKS))
    assert {each.seed_sha256 for each in asked} == {""}


@pytest.mark.parametrize("digest", [OTHER_DIGEST, ""])
def test_a_seeded_member_takes_no_entries_of_a_group_that_began_otherwise(digest: str) -> None:
    """The archive was compacted again in its place after the others had copied it."""
    driver = seeded(
        answer("n1", 5, 6, joining=False, leading=True, seed_sha256=digest),
        answer("n2", 5, 4, joining=False, seed_sha256=digest),
    )
    driver.receive(compare(5, 3, 4))
    driver.receive(append(5, (3, 4), 5))
    driver.flush()

    assert driver.raft.ledger_end_index == 3
    assert driver.raft.joining.startswith(
        f"waits for a leader that began with the same archive, {DIGEST}: n1 does not say so"
    )


@pytest.mark.parametrize("voter_count", [1, 3, 7])
@pytest.mark.parametrize("new_group", [False, True])
def test_empty_members_begin_no_group_that_is_to_begin_with_an_archive(
    voter_count: int, *, new_group: bool
) -> None:
    driver = CoreDriver(joining=True, needs_seed=True, voter_count=voter_count, new_group=new_group)
    for number in range(1, voter_count):
        driver.receive(answer(f"n{number}", 0, -1, seed_sha256=""))
    driver.tick(10 * ELECTION_TICKS)

    assert driver.raft.role is Role.FOLLOWER
    assert driver.hard_state == HardState(term=0, vote_for=None, joining=True)
    words = "waits for a leader, or for the archive that the group is to begin with"
    assert driver.raft.joining == words


def test_the_only_member_of_a_group_begins_with_its_archive() -> None:
    driver = CoreDriver(
        terms=TERMS, committed_index=3, joining=True, seed=SEED, voter_count=1, needs_seed=True
    )
    driver.tick(2 * ELECTION_TICKS + 1)

    assert driver.raft.role is Role.LEADER


def test_an_empty_member_joins_a_group_that_has_begun_with_an_archive() -> None:
    driver = CoreDriver(joining=True, needs_seed=True)
    driver.receive(answer("n1", 5, 1, joining=False, leading=True, seed_sha256=""))
    driver.receive(answer("n2", 5, 1, joining=False, seed_sha256=""))
    driver.receive(compare(5, -1, -1))
    driver.receive(append(5, (-1, -1), 1))
    driver.flush()

    assert not driver.raft.joining
