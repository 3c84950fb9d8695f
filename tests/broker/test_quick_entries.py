"""What the event loop applies takes it less than 5 ms, whatever clients send."""

import time
from pathlib import Path

import pytest

from dledger_broker.queues.queue_store import QueueStore
from dledger_broker_log.logs import Log, OwnEntry, Send, Step
from dledger_broker_log.states import applied, dumped, group_set, joined, offsets, topic_set
from dledger_formats.rocketmq.state_records import GroupDeleted, TopicDeleted
from dledger_node.state_machine.apply import LOOP_BYTES_MAX, LOOP_ENTRIES_MAX

LIMIT_S = 0.005
LONG = LOOP_BYTES_MAX // LOOP_ENTRIES_MAX - 400

LOADS: dict[str, list[Step]] = {
    "messages": [Send("T", number % 8, body=bytes(1000)) for number in range(LOOP_ENTRIES_MAX)],
    "long messages": [Send("T", number, body=bytes(LONG)) for number in range(LOOP_ENTRIES_MAX)],
    "tags": [Send("T", 0, tag=f"{number:0200}") for number in range(LOOP_ENTRIES_MAX)],
    "long tags": [Send("T", 0, tag=f"{number:01000}") for number in range(LOOP_ENTRIES_MAX)],
    "one long tag": [Send("T", 0, tag="a" * 30_000)],
    "groups": [group_set(f"g{number}") for number in range(LOOP_ENTRIES_MAX)],
    "few groups": [group_set(f"g{number}") for number in range(4)],
    "topics": [topic_set(f"T{number}") for number in range(LOOP_ENTRIES_MAX)],
    "offsets": [offsets("g", "T", *[(number, 5) for number in range(10_000)])],
    "few offsets": [offsets("g", "T", *[(number, 5) for number in range(100)])],
    "clients": [joined(f"10.0.0.1@{number}", "g") for number in range(LOOP_ENTRIES_MAX)],
    "deleted topics": [TopicDeleted(topic=f"T{number}") for number in range(LOOP_ENTRIES_MAX)],
    "deleted groups": [
        GroupDeleted(group=f"g{number}", clean_offset=True) for number in range(LOOP_ENTRIES_MAX)
    ],
    "entries of leaders": [OwnEntry()] * LOOP_ENTRIES_MAX,
}


@pytest.mark.parametrize("load", LOADS)
def test_the_event_loop_applies_nothing_that_takes_long(load: str, tmp_path: Path) -> None:
    log = Log().extend(LOADS[load])
    entries, mark = log.batch(0, len(log.entries)), log.mark(len(log.entries) - 1)
    assert mark is not None
    state = applied()
    if not state.is_quick(entries):
        return
    taken_s = []
    for number in range(5):
        copy = state.copy()
        store = QueueStore.open(tmp_path / str(number), begin_index=0, mark_of=log.mark)
        begun_s = time.thread_time()
        copy.apply(entries)
        store.keep(entries, mark)
        taken_s.append(time.thread_time() - begun_s)
        store.close()

    assert min(taken_s) < LIMIT_S, taken_s


@pytest.mark.parametrize("load", LOADS)
def test_what_is_quick_is_decided_in_no_time(load: str) -> None:
    log = Log().extend(LOADS[load])
    entries = log.batch(0, len(log.entries))
    state = applied()
    before = dumped(state)
    taken_s = []
    for _ in range(5):
        begun_s = time.thread_time()
        state.is_quick(entries)
        taken_s.append(time.thread_time() - begun_s)

    assert min(taken_s) < LIMIT_S / 10, taken_s
    assert dumped(state) == before
