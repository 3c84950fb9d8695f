"""Memberships: the value, its entries in the log, and how a leader pushes them."""

import random

import pytest

from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.membership import (
    MEMBERS_MAX,
    AddLearner,
    Change,
    Demote,
    Membership,
    MembershipEntry,
    Promote,
    Remove,
    changed,
)
from dledger_node.raft.messages import (
    AppendRequest,
    InstallSnapshotRequest,
)
from dledger_node.raft.ready import WritePushed, WriteSnapshot
from dledger_sim.stage.driver import (
    CoreDriver,
    append,
    of_type,
)

THREE = Membership(("n0", "n1", "n2"))
WITH_LEARNER = Membership(("n0", "n1", "n2"), ("n3",))
FOUR = Membership(("n0", "n1", "n2", "n3"))
WITHOUT_N0 = Membership(("n1", "n2"))


# -- the value -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("voters", "learners"),
    [
        pytest.param((), ("n0",), id="nobody votes"),
        pytest.param(("n1", "n0"), (), id="not sorted"),
        pytest.param(("n0", "n0"), (), id="one voter twice"),
        pytest.param(("n0",), ("n2", "n1"), id="learners not sorted"),
        pytest.param(("n0", "n1"), ("n1",), id="a voter that is a learner"),
        pytest.param(tuple(f"n{at:02}" for at in range(MEMBERS_MAX + 1)), (), id="too many"),
    ],
)
def test_a_contradictory_membership_raises_an_error(
    voters: tuple[str, ...], learners: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Membership(voters, learners)


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (AddLearner("n3"), WITH_LEARNER),
        (Remove("n0"), WITHOUT_N0),
        (Demote("n1"), Membership(("n0", "n2"), ("n1",))),
    ],
)
def test_a_change_concerns_one_member(change: Change, after: Membership) -> None:
    assert changed(THREE, change) == after


def test_a_promoted_learner_is_a_voter() -> None:
    assert changed(WITH_LEARNER, Promote("n3")) == FOUR


# -- entries in the log ----------------------------------------------------------------------------


def two_changes() -> LogMemberships:
    return LogMemberships(THREE, [MembershipEntry(4, WITH_LEARNER), MembershipEntry(7, FOUR)])


def test_a_truncation_restores_the_membership_before() -> None:
    log = two_changes()
    log.truncate(8)
    assert (log.current, log.last_index) == (FOUR, 7)
    log.truncate(7)
    assert (log.current, log.last_index) == (WITH_LEARNER, 4)
    log.truncate(0)
    assert (log.current, log.last_index) == (THREE, -1)


def test_the_membership_before_an_uncommitted_change_is_still_possible() -> None:
    log = two_changes()

    assert log.possible(6) == (WITH_LEARNER, FOUR)
    assert log.possible(7) == (FOUR,)
    assert LogMemberships(THREE).possible(-1) == (THREE,)


def test_a_membership_stays_in_effect_after_its_entry_is_removed() -> None:
    log = two_changes()
    log.remove_before(6)
    assert (log.base, log.current) == (WITH_LEARNER, FOUR)
    log.remove_before(9)
    assert (log.base, log.current, log.last_index) == (FOUR, FOUR, -1)
    assert log.possible(20) == (FOUR,)


def test_between_returns_the_membership_entries_of_any_range() -> None:
    log = two_changes()

    assert log.between(0, 3) == ()
    assert log.between(4, 4) == (MembershipEntry(4, WITH_LEARNER),)
    assert [entry.index for entry in log.between(0, 9)] == [4, 7]
    assert (log.before(4), log.before(5), log.before(99)) == (None, WITH_LEARNER, FOUR)


def test_a_membership_entry_needs_a_higher_index_than_the_last() -> None:
    with pytest.raises(InvariantError):
        two_changes().append(MembershipEntry(7, THREE))


@pytest.mark.parametrize("seed", range(40))
def test_memberships_agree_with_a_model_that_keeps_every_entry(seed: int) -> None:
    """Both stay equal through random appends, truncations and removals."""
    rng = random.Random(seed)
    known = [THREE, WITH_LEARNER, FOUR, WITHOUT_N0]
    log, model, begin_index = LogMemberships(THREE), dict[int, Membership](), 0
    for _ in range(60):
        end_index = max(model, default=begin_index)
        index = rng.randint(begin_index, end_index + 3)
        match rng.choice(("append", "append", "truncate", "remove")):
            case "append" if index > max(model, default=-1):
                model[index] = rng.choice(known)
                log.append(MembershipEntry(index, model[index]))
            case "truncate":
                model = {at: one for at, one in model.items() if at < max(index, begin_index + 1)}
                log.truncate(max(index, begin_index + 1))
            case "remove":
                begin_index = index
                log.remove_before(index)
            case _:
                pass
        held = sorted((at, one) for at, one in model.items() if at >= begin_index)
        before = [model[at] for at in sorted(model) if at < begin_index]
        assert log.current == ([one for _, one in held] or before or [THREE])[-1]
        assert log.last_index == (held[-1][0] if held else -1)
        assert log.base == (before[-1] if before else None)
        first, last = sorted((rng.randint(0, end_index + 3), rng.randint(0, end_index + 3)))
        assert list(log.between(first, last)) == [one for one in held if first <= one[0] <= last]


# -- following -------------------------------------------------------------------------------------


def pushed(index: int, membership: Membership, *, term: int = 1) -> AppendRequest:
    """Return a push of one membership entry of term 1, after a log of that term."""
    request = append(term, (index - 1, 1), index, 1)
    return AppendRequest(
        sender="n1", receiver="n0", term=term, previous_index=index - 1, previous_term=1,
        first_index=index, last_index=index, entries_term=1, committed_index=-1,
        entries=request.entries, memberships=(MembershipEntry(index, membership),),
    )  # fmt: skip


def test_a_pushed_membership_is_in_effect_at_once_and_passed_to_the_shell() -> None:
    driver = CoreDriver(terms=[1])
    driver.receive(pushed(1, WITH_LEARNER))
    write = driver.writes[-1]
    assert driver.raft.membership == WITH_LEARNER
    assert isinstance(write, WritePushed)
    assert write.memberships == (MembershipEntry(1, WITH_LEARNER),)
    driver.receive(pushed(1, WITH_LEARNER))
    assert driver.raft.membership == WITH_LEARNER, "a repeated push is taken once"


def test_a_truncated_change_restores_the_membership_before() -> None:
    driver = CoreDriver(terms=[1])
    driver.receive(pushed(1, WITH_LEARNER))
    driver.receive(append(2, (0, 1), 1))
    assert driver.raft.membership == THREE


def test_an_install_brings_its_membership() -> None:
    driver = CoreDriver(terms=[1], addable_ids=("n7",))
    first = Membership(("n0", "n1"), ("n2",))
    entries = (MembershipEntry(6, Membership(("n0", "n1"), ("n7",))),)
    driver.receive(InstallSnapshotRequest(
        sender="n1", receiver="n0", term=3, first_index=5, last_index=6, entries_term=2,
        committed_index=6, entries="bytes", membership=first, memberships=entries,
    ))  # fmt: skip
    write = driver.writes[-1]
    assert isinstance(write, WriteSnapshot)
    assert (write.membership, write.memberships) == (first, entries)
    assert driver.raft.membership == entries[0].membership
    assert driver.raft.memberships.before(6) == first


def test_a_leader_pushes_old_memberships_with_their_entries() -> None:
    driver = CoreDriver(
        terms=[1, 1, 1], memberships=[MembershipEntry(1, WITH_LEARNER)], addable_ids=("n3",)
    )
    driver.become_leader()
    sent = driver.receive(driver.denial_from("n1", -1, probe=1))
    sent += driver.agree("n1", -1)
    push = of_type(AppendRequest, sent)[0]
    assert (push.first_index, push.last_index) == (0, 2)
    assert push.memberships == (MembershipEntry(1, WITH_LEARNER),)
    assert push.until(0).memberships == ()
    assert push.after(0).memberships == push.memberships


@pytest.mark.parametrize("index", [0, 3])
def test_a_push_with_a_membership_outside_its_range_raises_an_error(index: int) -> None:
    with pytest.raises(ValueError, match="are not in"):
        AppendRequest(
            sender="n1", receiver="n0", term=1, previous_index=0, previous_term=1, first_index=1,
            last_index=2, entries_term=1, committed_index=0,
            memberships=(MembershipEntry(index, THREE),),
        )  # fmt: skip
