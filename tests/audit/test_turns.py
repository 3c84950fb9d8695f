"""The order in which members are read."""

from hypothesis import given
from hypothesis import strategies as st

from pyspark_dledger.turns import in_turns

members = st.dictionaries(
    st.sampled_from(["n0", "n1", "n2", "n3"]), st.lists(st.integers(), max_size=5)
)


def test_followers_take_turns_and_the_leader_comes_last() -> None:
    tasks = {"n0": ["a0", "a1"], "n1": ["b0", "b1", "b2"], "n2": ["c0"]}

    assert in_turns(tasks, frozenset({"n1"})) == ["a0", "c0", "a1", "b0", "b1", "b2"]


@given(members, st.frozensets(st.sampled_from(["n0", "n1", "n2"])))
def test_each_task_is_there_once_whoever_leads(
    tasks: dict[str, list[int]], leaders: frozenset[str]
) -> None:
    ordered = in_turns(tasks, leaders)

    assert sorted(ordered) == sorted(task for each in tasks.values() for task in each)
