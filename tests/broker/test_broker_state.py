"""The state of a broker: what follows from a log, whatever the batches and the snapshots."""

import io
import json
from typing import Any

import pytest
from hypothesis import given

from dledger_broker.errors import NotABrokerLogError
from dledger_broker.state import consumer_offsets, groups, topics
from dledger_broker.state.broker_state import BrokerState
from dledger_broker_log.logs import (
    CHANGES,
    CUTS,
    STEPS,
    STORED_AT_MS,
    Delayed,
    Delivered,
    Log,
    OwnEntry,
    Send,
    Step,
    batches,
)
from dledger_broker_log.states import applied, dumped, group_set, joined, offsets, topic_set
from dledger_formats.rocketmq import message_record, properties
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.state_records import (
    AnyStateRecord,
    ClientLeft,
    GroupDeleted,
    GroupSet,
    QueuesLocked,
    QueuesUnlocked,
    TopicDeleted,
    TopicSet,
)
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topic_names import SCHEDULE_TOPIC, STATE_TOPIC
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.state_machine.machine import CommittedEntry, StateMachine

# Any log.


@given(STEPS, CUTS)
def test_the_state_does_not_depend_on_the_batches(steps: list[Step], cuts: list[int]) -> None:
    log = Log().extend(steps)
    whole, parts = BrokerState(), BrokerState()
    whole.apply(log.batch(0, len(log.entries)))
    for first, end in batches(log, cuts):
        parts.apply(log.batch(first, end))

    assert dumped(parts) == dumped(whole)


@given(STEPS, CUTS)
def test_a_state_that_was_dumped_and_loaded_goes_on_as_the_original(
    steps: list[Step], cuts: list[int]
) -> None:
    log = Log().extend(steps)
    original, loaded = BrokerState(), BrokerState()
    for first, end in batches(log, cuts):
        for state in (original, loaded):
            state.apply(log.batch(first, end))
        again = BrokerState()
        again.load(io.BytesIO(dumped(loaded)))
        loaded = again
        assert dumped(loaded) == dumped(original)
    assert counts(loaded) == counts(original)


def counts(state: BrokerState) -> list[int]:
    tables = state.tables
    return [
        tables.topics.queues, tables.offsets.count, tables.groups.clients_count,
        tables.groups.clients_bytes,
    ]  # fmt: skip


@given(STEPS)
def test_the_counted_sizes_are_those_of_the_tables(steps: list[Step]) -> None:
    tables = applied(*steps).tables
    members = [one for each in tables.groups.clients.values() for one in each.values()]

    assert counts(applied(*steps)) == [
        sum(len(topic.next_offsets) for topic in tables.topics.by_name.values()),
        sum(map(len, tables.offsets.by_pair.values())),
        len(members),
        sum(len(member.to_json()) for member in members),
    ]


@given(STEPS, STEPS)
def test_a_copy_does_not_change_with_the_original(steps: list[Step], more: list[Step]) -> None:
    log = Log().extend(steps)
    state = BrokerState()
    state.apply(log.batch(0, len(log.entries)))
    copy, before = state.copy(), dumped(state)
    end = len(log.entries)
    log.extend(more)
    state.apply(log.batch(end, len(log.entries)))

    assert dumped(copy) == before
    copy.apply(log.batch(end, len(log.entries)))
    assert dumped(copy) == dumped(state)


@given(STEPS)
def test_every_queue_and_delay_level_is_where_the_model_is(steps: list[Step]) -> None:
    log = Log().extend(steps)
    state = BrokerState()
    state.apply(log.batch(0, len(log.entries)))

    for (topic, queue_id), units in log.units.items():
        assert state.next_offset(topic, queue_id) == len(units)
    assert [state.delay_position(level) for level in log.delivered] == list(log.delivered.values())


@given(STEPS, CHANGES)
def test_a_refused_record_changes_nothing_but_the_queue_of_the_state(
    steps: list[Step], change: AnyStateRecord
) -> None:
    state = applied(*steps)
    after = applied(*steps, change)
    if state.refusal(change) is None:
        return

    assert lines_without_state_topic(after) == lines_without_state_topic(state)


def lines_without_state_topic(state: BrokerState) -> list[bytes]:
    """Return a dump without what every message changes: its queue, and the offset in the head."""
    middle = dumped(state).splitlines()[1:-1]
    versions = [str(state.tables.topics_version), str(state.tables.groups_version)]
    return [line for line in middle if json.loads(line)[1] != STATE_TOPIC] + [
        version.encode() for version in versions
    ]


# What each record changes.


def test_the_version_of_the_topics_has_the_time_of_the_record() -> None:
    state = applied(topic_set("T"), OwnEntry(), topic_set("U"), TopicDeleted(topic="T"))

    assert state.tables.topics_version == (3, STORED_AT_MS + 3)
    assert state.tables.groups_version == (0, 0)


def test_a_topic_that_shrinks_keeps_its_queues() -> None:
    state = applied(topic_set("T", 4), Send("T", 3), topic_set("T", 2))

    assert state.next_offset("T", 3) == 1
    assert state.tables.topics.queues == 5


def test_a_deleted_topic_starts_again_at_offset_zero() -> None:
    state = applied(
        group_set("g"), topic_set("T"), Send("T", 0), offsets("g", "T", (0, 1)),
        QueuesLocked(client_id="c", group="g", queues=[("T", 0)]), TopicDeleted(topic="T"),
    )  # fmt: skip

    assert state.next_offset("T", 0) == 0
    assert state.consumer_offset("g", "T", 0) is None
    assert state.holder("g", "T", 0) is None
    assert "T" not in state.tables.topics.by_name


@pytest.mark.parametrize("name", [SCHEDULE_TOPIC, STATE_TOPIC, "TBW102"])
def test_a_topic_of_the_system_cannot_be_set_or_deleted(name: str) -> None:
    state = applied(Delayed(1))

    assert "system" in str(state.refusal(topic_set(name)))
    assert "system" in str(state.refusal(TopicDeleted(topic=name)))
    assert applied(Delayed(1), TopicDeleted(topic=name)).next_offset(SCHEDULE_TOPIC, 0) == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_deleted_group_loses_its_offsets_if_that_is_wanted(clean: bool) -> None:
    state = applied(
        group_set("g"), group_set("h"), topic_set("T"), offsets("g", "T", (0, 5)),
        offsets("h", "T", (1, 6)), GroupDeleted(group="g", clean_offset=clean),
    )  # fmt: skip

    assert state.consumer_offset("g", "T", 0) == (None if clean else 5)
    assert state.consumer_offset("h", "T", 1) == 6
    assert "g" not in state.tables.groups.configs


def test_a_group_may_go_back_and_only_in_queues_that_exist() -> None:
    state = applied(
        group_set("g"), topic_set("T", 2), offsets("g", "T", (0, 9), (1, 4), (2, 7)),
        offsets("g", "U", (0, 1)), offsets("h", "T", (0, 1)), offsets("g", "T", (0, 3)),
    )  # fmt: skip

    assert [state.consumer_offset("g", "T", queue) for queue in range(3)] == [3, 4, None]
    assert state.consumer_offset("g", "U", 0) is None
    assert state.consumer_offset("h", "T", 0) is None


def test_a_client_is_listed_once_however_often_it_joins() -> None:
    state = applied(group_set("g"), joined("b", "g"), joined("a", "g"), joined("b", "g"))

    assert state.client_ids("g") == ["a", "b"]
    assert state.client_ids("h") == []


def test_a_client_that_left_is_not_listed() -> None:
    state = applied(group_set("g"), joined("a", "g"), ClientLeft(client_id="a", group="g"))

    assert state.client_ids("g") == []
    assert state.consumer("g", "a") is None


def test_a_queue_is_unlocked_by_its_holder_only() -> None:
    def locks(client_id: str) -> Any:
        return {"client_id": client_id, "group": "g", "queues": [("T", 0)]}

    steps = (topic_set("T"), QueuesLocked(**locks("a")), QueuesLocked(**locks("b")))

    assert applied(*steps, QueuesUnlocked(**locks("a"))).holder("g", "T", 0) == "b"
    assert applied(*steps, QueuesUnlocked(**locks("b"))).holder("g", "T", 0) is None


@pytest.mark.parametrize(
    "freed",
    [
        QueuesUnlocked(client_id="a", group="g", queues=[("T", 0), ("T", 1)]),
        TopicDeleted(topic="T"),
    ],
    ids=["unlocked", "deleted"],
)
def test_a_group_has_locks_until_its_last_queue_is_free(freed: AnyStateRecord) -> None:
    locked = QueuesLocked(client_id="a", group="g", queues=[("T", 0), ("T", 0), ("T", 1)])
    state, free = applied(topic_set("T", 2), locked), applied(topic_set("T", 2), locked, freed)
    loaded = BrokerState()
    loaded.load(io.BytesIO(dumped(state)))

    has_locks = [each.tables.groups.has_locks("g") for each in (state, loaded, free)]
    assert has_locks == [True, True, False]


def test_the_position_of_a_delay_level_is_behind_the_last_delivered_message() -> None:
    state = applied(Delayed(2), Delayed(2), Delayed(3), Delivered(2))

    assert [state.delay_position(level) for level in (1, 2, 3)] == [0, 1, 0]


@pytest.mark.parametrize("value", ["2 7", "0 0", "19 0", "x 0", "2", "2 " + "0" * 40, "-1 0"])
def test_a_delivery_that_cannot_be_moves_no_position(value: str) -> None:
    log = Log().extend([Delayed(2)])
    log._append("T", 0, {properties.SCHEDULED: value})
    state = BrokerState()
    state.apply(log.batch(0, 2))

    assert {state.delay_position(level) for level in range(1, 19)} == {0}


# Bounds.


def test_topics_queues_and_groups_have_bounds() -> None:
    state = BrokerState()
    tables = state.tables
    for number in range(topics.TOPICS_MAX):
        tables.topics.set(topic_set(f"T{number}", 1).config, 0)
    tables.groups.configs = {
        f"g{number}": group_set(f"g{number}").config for number in range(groups.GROUPS_MAX)
    }

    assert "limit" in str(state.refusal(topic_set("T")))
    assert state.refusal(topic_set("T0", 90_001)) is None
    assert "100000 queues" in str(state.refusal(topic_set("T0", 90_002)))
    assert "limit" in str(state.refusal(group_set("g")))
    assert state.refusal(group_set("g0")) is None


def test_a_message_of_a_queue_beyond_the_bound_is_no_broker_s() -> None:
    log = Log()
    log._append("T", topics.QUEUES_MAX, {})

    with pytest.raises(NotABrokerLogError, match="queues"):
        BrokerState().apply(log.batch(0, 1))


def test_consumer_offsets_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_offsets, "OFFSETS_MAX", 3)
    state = applied(
        group_set("g"), topic_set("T", 4), topic_set("U", 4), offsets("g", "T", (1, 1)),
        offsets("g", "U", (2, 5), (0, 6)), offsets("g", "T", (1, 2)),
    )  # fmt: skip

    assert state.consumer_offset("g", "T", 1) == 2
    assert state.consumer_offset("g", "U", 2) is None
    assert state.consumer_offset("g", "U", 0) == 6


def test_clients_and_their_subscriptions_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(joined("a", "g").consumer.to_json())
    monkeypatch.setattr(groups, "CLIENTS_BYTES_MAX", 2 * size)
    state = applied(group_set("g"), joined("a", "g"), joined("b", "g"), joined("c", "g"))

    assert state.client_ids("g") == ["a", "b"]
    assert "limits" in str(state.refusal(joined("c", "g")))
    assert state.refusal(joined("a", "g")) is None
    assert "no consumer group" in str(state.refusal(joined("a", "h")))


def test_settings_of_any_length_are_refused() -> None:
    long = {"k": "v" * topics.CONFIG_BYTES_MAX}
    topic = TopicConfig(
        topic_name="T", read_queue_nums=1, write_queue_nums=1, perm=6, attributes=long
    )
    group = SubscriptionGroup(group_name="g", attributes=long)

    assert "bytes" in str(BrokerState().refusal(TopicSet(config=topic)))
    assert "bytes" in str(BrokerState().refusal(GroupSet(config=group)))


# Entries that are no messages.

SOUND = MessageRecord("T", 0, 0, 48, b"")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "short"),
        (b"not a message" * 20, "size"),
        (message_record.encode(SOUND)[:-1], "size"),
        (message_record.encode(MessageRecord("../T", 0, 0, 48, b"")), "name"),
        (message_record.encode(MessageRecord("T", -1, 0, 48, b"")), "queue -1"),
        (message_record.encode(MessageRecord("T", 0, 1, 48, b"")), "0 is next"),
        (message_record.encode(MessageRecord("T", 0, -1, 48, b"")), "0 is next"),
        (message_record.encode(MessageRecord("T", 0, 0, -1, b"")), "physical offset"),
        (message_record.encode(MessageRecord(STATE_TOPIC, 0, 0, 48, b"{}")), "state record"),
        (
            message_record.encode(
                MessageRecord(STATE_TOPIC, 0, 0, 48, b'{"v":1,"kind":"later","topic":"T"}')
            ),
            "later",
        ),
    ],
)
def test_an_entry_that_no_broker_wrote_stops_the_state_before_it(
    body: bytes | bytearray, reason: str
) -> None:
    state = BrokerState()

    with pytest.raises(NotABrokerLogError, match=reason) as caught:
        state.apply([CommittedEntry(7, bytes(body))])

    assert caught.value.index == 7
    assert dumped(state) == dumped(BrokerState())


@pytest.mark.parametrize("offset", [0, 2])
def test_a_queue_offset_that_was_given_out_or_skipped_stops_the_state(offset: int) -> None:
    second = message_record.encode(MessageRecord("T", 0, offset, 999, b""))
    state = applied(Send("T", 0))
    before = dumped(state)

    with pytest.raises(NotABrokerLogError, match="1 is next"):
        state.apply([CommittedEntry(1, bytes(second))])
    assert dumped(state) == before


def test_a_broker_s_state_is_a_state_machine_of_the_node() -> None:
    machine: StateMachine = BrokerState()

    machine.apply([CommittedEntry(0, bytes(message_record.encode(SOUND)))])
    assert b"".join(machine.copy().dump()) == b"".join(machine.dump())


# What the event loop applies.


@pytest.mark.parametrize(
    ("steps", "is_quick"),
    [
        ([Send("T", 0)] * 32, True),
        ([Send("T", 0, body=b"rmq_sys_broker_state" * 10)], True),
        ([topic_set("T")], True),
        ([group_set("g")] * 3, True),
        ([group_set("g")] * 60, False),
        ([TopicDeleted(topic="T")], False),
        ([GroupDeleted(group="g", clean_offset=False)], False),
        ([offsets("g", "T", (0, 5), (1, 7))], True),
        ([offsets("g", "T", *[(number, 5) for number in range(1000)])], False),
    ],
)
def test_state_records_are_quick_if_they_are_short_and_delete_nothing(
    steps: list[Step], is_quick: bool
) -> None:
    log = Log().extend(steps)

    assert BrokerState().is_quick(log.batch(0, len(log.entries))) is is_quick
