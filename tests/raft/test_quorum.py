"""Majority arithmetic, checked against its definition."""

from hypothesis import given
from hypothesis import strategies as st

from dledger_node.raft import quorum

VALUES = st.lists(st.integers(-1, 9), min_size=1, max_size=7)


@given(VALUES)
def test_reached_by_majority_agrees_with_its_definition(values: list[int]) -> None:
    def reached(value: int) -> bool:
        return 2 * sum(one >= value for one in values) > len(values)

    value = quorum.reached_by_majority(values)

    assert reached(value)
    assert not reached(value + 1)


def test_half_is_not_a_majority() -> None:
    assert not quorum.is_majority(2, 4)
    assert quorum.is_majority(3, 4)


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9))
def test_two_majorities_share_a_voter(voters: int, one: int, other: int) -> None:
    if quorum.is_majority(one, voters) and quorum.is_majority(other, voters):
        assert one + other > voters
