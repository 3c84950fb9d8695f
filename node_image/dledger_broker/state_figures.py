"""Figures of the broker's state for its metrics: how much there is, and how far groups lag.

Lags are counted a part at each tick, because a broker may have a million consumer offsets: a tick
takes a millisecond or less, and all of them are counted within half a minute.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from dledger_broker.metrics import BrokerCounters
from dledger_broker.state.broker_state import BrokerState
from dledger_broker.state.consumer_offsets import UNSET
from dledger_broker.state.tables import Tables
from dledger_formats.rocketmq import topic_names

BEGIN_S: Final = 1.0
"""The shortest time between the beginnings of two counts."""
OFFSETS_PER_TICK: Final = 2000
GROUPS_SHOWN_MAX: Final = 200
"""The groups that lag most, so that a broker with 10,000 groups does not flood Prometheus."""


class StateFigures:
    """Keeps the figures of one member's state."""

    def __init__(
        self, state: Callable[[], BrokerState], counters: BrokerCounters, now_s: Callable[[], float]
    ) -> None:
        """`state` returns the state, which a thread may be changing."""
        self._state = state
        self._counters = counters
        self._now_s = now_s
        self._rest: Iterator[tuple[str, str]] | None = None
        """The pairs of group and topic that this count has not reached. They are not copied while
        none comes or goes: a copy of a million holds the event loop for 20 ms or more.
        """
        self._lags: Counter[str] = Counter()
        self._begin_s = now_s()

    @property
    def is_counting(self) -> bool:
        """Whether the next tick counts further lags."""
        return self._rest is not None

    def tick(self) -> None:
        """Take the simple figures, and count a part of the lags."""
        tables = self._state().tables
        self._count(tables)
        if self._rest is None:
            now_s = self._now_s()
            if now_s < self._begin_s:
                return
            self._begin_s = now_s + BEGIN_S
            self._rest = iter(tables.offsets.by_pair)
        budget = OFFSETS_PER_TICK
        while budget > 0:
            try:
                pair = next(self._rest, None)
            except RuntimeError:  # a pair has come or gone: begin again, with a copy
                self._lags, self._rest = Counter(), iter(list(tables.offsets.by_pair))
                return
            if pair is None:
                self._end()
                return
            budget -= 1 + self._add(tables, *pair)

    def _count(self, tables: Tables) -> None:
        values, topics, groups = self._counters.values, tables.topics, tables.groups
        values["topics"] = len(topics.by_name)
        values["queues"] = topics.queues
        values["consumer_groups"] = len(groups.configs)
        values["consumer_offsets"] = tables.offsets.count
        values["group_clients"] = groups.clients_count
        values["locked_queues"] = len(groups.holders)
        values["delayed_messages"] = sum(
            topics.next_offset(topic_names.SCHEDULE_TOPIC, queue_id) - position
            for queue_id, position in enumerate(tables.delay_positions)
        )

    def _add(self, tables: Tables, group: str, topic: str) -> int:
        """Add the lag of a group in one topic; return how many offsets were looked at."""
        if group not in tables.groups.configs:
            return 0  # it was deleted, and its offsets were kept
        offsets = tables.offsets.by_pair.get((group, topic), ())
        found = tables.topics.by_name.get(topic)
        if found is not None:
            self._lags[group] += sum(
                max(0, end - offset)
                for end, offset in zip(found.next_offsets, offsets, strict=False)
                if offset != UNSET
            )
        return len(offsets)

    def _end(self) -> None:
        """Show the lags that were counted."""
        largest = heapq.nlargest(GROUPS_SHOWN_MAX, self._lags.items(), key=lambda each: each[1])
        self._counters.group_lags = dict(largest)
        self._lags, self._rest = Counter(), None
