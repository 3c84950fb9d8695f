"""The broker's metrics, read from its counters at each scrape."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from dledger_node.histogram import Histogram
from dledger_node.http import families

_COUNTERS: Final = {
    "messages_stored": "Messages that were acknowledged to producers.",
    "bytes_stored": "Bytes of the records of these messages.",
    "messages_pulled": "Messages that were handed to consumers.",
    "bytes_pulled": "Bytes of the records of these messages.",
    "cached_pulls": "Pulls that the event loop has answered from the page cache.",
    "requests_passed_on": "Requests that were sent to the leader, each counted once.",
    "requests_resent": "Further copies of such requests, to the same leader or to the next one.",
    "units_refused": "Units of consume queues that contradicted the log, or that a queue lacked.",
    "queue_rebuilds": "How often all consume queues were deleted, to be built from the log.",
}
_GAUGES: Final = {
    "held_pulls": "Pulls that wait for a message.",
    "requests_waiting": "Requests that wait for the leader, or for its answer.",
    "pending_messages": "Messages and changes of the state that wait for a quorum.",
    "built_index": "Index up to which the consume queues have all messages; -1 before the first.",
    "unbuilt_entries": "Entries that are applied, and whose messages are in no consume queue yet.",
    "queue_file_bytes": "Bytes on disk of the files of the consume queues, at the last look.",
    "topics": "Topics, those of the system and of retries included.",
    "queues": "Queues of all topics.",
    "consumer_groups": "Consumer groups with settings.",
    "consumer_offsets": "Offsets at which consumer groups continue.",
    "group_clients": "Clients of consumer groups; a client of two groups counts twice.",
    "locked_queues": "Queues that ordered consumers hold.",
    "delayed_messages": "Messages that wait for the time of their delivery.",
}
_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)


class AnswerTimes:
    """The times from the arrivals of requests to their answers.

    Those that arrived in one turn of the event loop and are answered in one are counted at once.
    """

    def __init__(self) -> None:
        self.seconds = Histogram(_BOUNDS_S)
        self.arrivals_s: list[float] = []
        """When each request arrived that is answered in this turn."""

    def answered(self, now_s: float) -> None:
        """Count the requests of this turn."""
        for arrived_s, count in Counter(self.arrivals_s).items():
            self.seconds.observe(now_s - arrived_s, count)
        self.arrivals_s.clear()


class BrokerCounters:
    """The broker's counts since the start of its process."""

    def __init__(self) -> None:
        self.values: Counter[str] = Counter()
        """The counters and gauges without labels, by name."""
        self.sends = AnswerTimes()
        self.pull_s = Histogram(_BOUNDS_S)
        """The times of pulls that were not held and found messages."""
        self.requests: Counter[tuple[int, int]] = Counter()
        """Answered requests by request code, 0 for unknown requests, and code of the answer."""
        self.group_lags: dict[str, int] = {}
        """The messages after the offsets of each group, for the groups that lag most."""
        self.registered: dict[str, bool] = {}
        """Whether the last registration at each name server, by address, has succeeded."""
        self.registration_problems: dict[str, str] = {}
        """Why the last registration at a name server, by address, has failed, in words."""


class BrokerCollector(Collector):
    """Turns the counters into metric families."""

    def __init__(self, counters: BrokerCounters) -> None:
        self._counters = counters

    def collect(self) -> Iterable[Metric]:
        """Yield every family."""
        values = self._counters.values
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"dledger_broker_{name}", text, value=values[name])
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"dledger_broker_{name}", text, value=values[name])
        yield families.histogram(
            "send_seconds",
            "Time from the arrival of an acknowledged send, at the client's member, to its answer.",
            self._counters.sends.seconds,
            prefix="dledger_broker",
        )
        yield families.histogram(
            "pull_seconds",
            "Time from the arrival of a pull that finds messages at once to its answer.",
            self._counters.pull_s,
            prefix="dledger_broker",
        )
        requests = CounterMetricFamily(
            "dledger_broker_requests",
            "Answered requests, by the request's code and the answer's; 0 for unknown requests.",
            labels=["code", "answer"],
        )
        for (code, answer), count in list(self._counters.requests.items()):
            requests.add_metric([str(code), str(answer)], count)
        yield requests
        lags = GaugeMetricFamily(
            "dledger_broker_group_lag",
            "Messages after the offsets of a consumer group; only the 200 groups that lag most.",
            labels=["group"],
        )
        for group, lag in self._counters.group_lags.items():
            lags.add_metric([group], lag)
        yield lags
        registered = GaugeMetricFamily(
            "dledger_broker_registered",
            "1 while this member is registered at the name server, else 0.",
            labels=["name_server"],
        )
        for address, is_registered in self._counters.registered.items():
            registered.add_metric([address], is_registered)
        yield registered
