"""Figures of the broker's state, which its metrics show."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_broker.metrics import BrokerCounters
from dledger_broker.state import changes
from dledger_broker.state.broker_state import BrokerState
from dledger_broker.state.topics import Topic
from dledger_broker.state_figures import BEGIN_S, GROUPS_SHOWN_MAX, OFFSETS_PER_TICK, StateFigures
from dledger_broker_client.client import BrokerClient
from dledger_formats.rocketmq import topic_names
from dledger_formats.rocketmq.codes import RequestCode
from dledger_formats.rocketmq.state_records import GroupDeleted, QueuesLocked, TopicSet
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topics import TopicConfig
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for


def state_with(ends: Sequence[int]) -> BrokerState:
    """Return a state with the topic t, whose queues have so many messages."""
    state = BrokerState()
    count = len(ends)
    config = TopicConfig(topic_name="t", read_queue_nums=count, write_queue_nums=count, perm=6)
    changes.make(state.tables, TopicSet(config=config), 0, 1)
    state.tables.topics.by_name["t"].next_offsets[:] = ends
    return state


def commit(state: BrokerState, group: str, topic: str, queue_id: int, offset: int) -> None:
    state.tables.groups.configs.setdefault(group, SubscriptionGroup(group_name=group))
    state.tables.offsets.set(group, topic, queue_id, offset)


class Clock:
    """A clock that moves by more than the time between two counts at each call."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 2 * BEGIN_S
        return self.now_s


def figures_after(state: BrokerState, ticks: int) -> BrokerCounters:
    counters = BrokerCounters()
    figures = StateFigures(lambda: state, counters, Clock())
    for _ in range(ticks):
        figures.tick()
    return counters


@given(
    ends=st.lists(st.integers(0, 100), min_size=1, max_size=8),
    consumed=st.dictionaries(
        st.tuples(st.sampled_from("abc"), st.integers(0, 7)), st.integers(0, 120)
    ),
)
def test_a_group_lags_by_what_is_behind_its_offsets(
    ends: list[int], consumed: dict[tuple[str, int], int]
) -> None:
    state = state_with(ends)
    known = {key: offset for key, offset in consumed.items() if key[1] < len(ends)}
    for (group, queue_id), offset in known.items():
        commit(state, group, "t", queue_id, offset)

    lags = figures_after(state, 2).group_lags

    assert lags == {
        group: sum(
            max(0, ends[queue] - offset) for (g, queue), offset in known.items() if g == group
        )
        for group in {group for group, _ in known}
    }


def test_many_offsets_are_counted_in_parts() -> None:
    state = state_with([5] * 1000)
    for number in range(10):
        commit(state, f"g{number}", "t", 999, 0)
        for queue_id in range(999):
            commit(state, f"g{number}", "t", queue_id, 4)
    ticks = 10 * 1000 // OFFSETS_PER_TICK

    assert figures_after(state, ticks - 1).group_lags == {}
    lags = figures_after(state, ticks + 1).group_lags
    assert lags == {f"g{number}": 999 + 5 for number in range(10)}


class WatchedPairs(dict[tuple[str, str], list[int]]):
    """Pairs of group and topic; counts how many were looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for pair in super().__iter__():
            self.looked_at += 1
            yield pair


def with_many_pairs() -> tuple[BrokerState, WatchedPairs]:
    """Return a state in which more groups lag by 1 than a tick counts, and its pairs."""
    state = state_with([1])
    pairs = state.tables.offsets.by_pair = WatchedPairs()
    for number in range(OFFSETS_PER_TICK):
        commit(state, f"g{number}", "t", 0, 0)
    return state, pairs


def test_no_tick_looks_at_all_of_many_pairs() -> None:
    """A copy of a million pairs takes 20 ms or more."""
    state, pairs = with_many_pairs()

    figures_after(state, 1)

    assert pairs.looked_at <= OFFSETS_PER_TICK // 2


def test_a_pair_that_comes_or_goes_during_a_count_begins_it_again() -> None:
    state, _ = with_many_pairs()
    counters = BrokerCounters()
    figures = StateFigures(lambda: state, counters, Clock())
    figures.tick()
    del state.tables.offsets.by_pair["g0", "t"]
    for number in range(3):
        commit(state, f"new-{number}", "t", 0, -9)
        for _ in range(5):
            figures.tick()

    assert counters.group_lags.items() >= {f"new-{number}": 10 for number in range(2)}.items()
    assert {*counters.group_lags.values()} == {1, 10}
    assert "g0" not in counters.group_lags


def test_only_the_groups_that_lag_most_are_shown() -> None:
    state = state_with([10_000])
    groups = 2 * GROUPS_SHOWN_MAX
    for number in range(groups):
        commit(state, f"g{number}", "t", 0, number)

    lags = figures_after(state, 2).group_lags

    assert lags == {f"g{number}": 10_000 - number for number in range(GROUPS_SHOWN_MAX)}


def test_a_deleted_topic_adds_nothing_to_a_lag() -> None:
    state = state_with([10])
    commit(state, "g", "gone", 0, 3)
    commit(state, "g", "t", 0, 4)

    assert figures_after(state, 2).group_lags == {"g": 6}


def test_a_deleted_group_whose_offsets_were_kept_has_no_lag() -> None:
    state = state_with([10])
    for group in ("g", "deleted"):
        commit(state, group, "t", 0, 4)
    changes.make(state.tables, GroupDeleted(group="deleted", clean_offset=False), 1, 1)

    assert figures_after(state, 2).group_lags == {"g": 6}


def test_delayed_messages_are_those_that_are_not_delivered() -> None:
    state = BrokerState()
    state.tables.topics.by_name[topic_names.SCHEDULE_TOPIC] = Topic(None, 0, [7, 3])
    state.tables.delay_positions[0] = 5

    assert figures_after(state, 1).values["delayed_messages"] == (7 - 5) + 3


def test_what_a_state_has_is_counted() -> None:
    state = state_with([1, 2])
    record = QueuesLocked(client_id="c", group="g", queues=[("t", 0), ("t", 1)])
    changes.make(state.tables, record, 1, 1)
    state.tables.offsets.set("g", "t", 1, 0)

    values = figures_after(state, 1).values

    assert (values["topics"], values["queues"]) == (1, 2)
    assert (values["locked_queues"], values["consumer_offsets"]) == (2, 2)


@pytest.mark.group
def test_a_member_shows_how_far_a_group_lags(broker: BrokerGroup, client: BrokerClient) -> None:
    for _ in range(3):
        client.send("late")
    client.wait_until_visible("late", 3)
    ext = {"consumerGroup": "laggards", "topic": "late", "queueId": "0", "commitOffset": "1"}
    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)

    line = b'dledger_broker_group_lag{group="laggards"} 2.0'
    wait_for(lambda: line in broker.get("n0", "/metrics")[1], "the lag is shown")
