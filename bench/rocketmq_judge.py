"""What became of the messages of stock clients: of one topic, from its producer to its consumer.

The events are those of `RocketmqScenario.java`. A consumer may get a message twice from one place
(queue and offset), if it had not committed the first delivery when the leader changed. A message
may be at a second place if its client has sent it again although an earlier try may be stored: such
tries are events, too. All else is a fault.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from dledger_formats.log.checksum import crc32
from dledger_formats.rocketmq import message_record, properties
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.message_record import MessageRecordError

Event: TypeAlias = Mapping[str, Any]
Place: TypeAlias = tuple[int, int]
"""Queue and offset."""

BODY_BYTES: Final = 100
"""The default of the scenarios."""
AGAIN_S_MAX: Final = 20.0
"""Within this time a message may be delivered again: consumers commit every 5 s, the commit may get
lost with the leader, and the next one follows 5 s after the failover.
"""
NO_ANSWER: Final = -1
IN_DOUBT: Final = (NO_ANSWER, int(ResponseCode.SYSTEM_ERROR))
"""The codes of tries that may be stored although they failed."""


def place_of(event: Event) -> Place:
    """Return the place of a message that was acknowledged or delivered."""
    return int(event["queue"]), int(event["offset"])


class Verdict(NamedTuple):
    """The account of all messages."""

    acknowledged: int
    delivered: int
    """Different messages that were delivered."""
    redelivered: int
    """Further deliveries from the same place."""
    repeated: int
    """Copies at a second place, which the client's own repeats explain."""
    faults: list[str]

    def __str__(self) -> str:
        return (
            f"{self.acknowledged:,} acknowledged, {self.delivered:,} delivered, "
            f"{self.redelivered} again from the same place, {self.repeated} copies that the client "
            f"sent itself, {len(self.faults)} faults"
        )


class MessageJudge:
    """Takes the events of a producer that sends one message after the other, of a consumer, and the
    log at the end. A message whose send has not ended may be stored or not.
    """

    def __init__(self, topic: str, body_bytes: int = BODY_BYTES) -> None:
        self._topic, self._body_bytes = topic, body_bytes
        self._acknowledged: dict[str, Place] = {}
        self._newest = -1
        """The number of the newest message whose send has ended."""
        self._doubts: Counter[str] = Counter()
        """How many tries of each message have failed and may be stored."""
        self._deliveries: dict[tuple[str, Place], list[float]] = {}
        """When each message was delivered from each place."""
        self._logged: dict[Place, str] | None = None
        """The key of the message at each place, as the log says."""
        self._faults: list[str] = []
        self.missing: set[tuple[str, Place]] = set()
        """Messages that were acknowledged and not yet delivered from their place."""

    def take(self, event: Event, at_s: float) -> None:
        """Take one event, which came at this time; other kinds of events are ignored."""
        match event["event"]:
            case "sent":
                self._newest = _number(event["key"])
                self._take_sent(event)
            case "failed":
                self._newest = _number(event["key"])
            case "tried" if int(event["code"]) in IN_DOUBT:
                self._doubts[event["key"]] += 1
            case "received":
                self._take_received(event, at_s)

    def take_log(self, bodies: Iterable[bytes]) -> int:
        """Take the bodies of all entries of the log; return how many messages the topic has."""
        count, self._logged = 0, {}
        for body in bodies:
            try:
                record = message_record.decode(body)
            except MessageRecordError as error:
                self._faults.append(f"the log has a body that is no message: {error}")
                continue
            if record.topic != self._topic:
                continue
            count += 1
            key = (properties.find(record.properties, b"KEYS") or b"").decode()
            place = record.queue_id, record.queue_offset
            if record.body != self._body(key):
                self._faults.append(f"the log has another body of {key} at {place}")
            if place in self._logged:
                self._faults.append(f"the log has {self._logged[place]} and {key} at {place}")
            self._logged[place] = key
        return count

    def verdict(self) -> Verdict:
        """Judge what was taken so far."""
        again = [times for times in self._deliveries.values() if len(times) > 1]
        repeated, strange = self._copies()
        faults = [*self._faults, *strange, *self._holders(), *self._log_faults()]
        faults += [f"{key} of {place} was acknowledged and not delivered" for key, place in
                   sorted(self.missing)]  # fmt: skip
        faults += [
            f"{key} was delivered again from {place} after {max(times) - min(times):.1f} s"
            for (key, place), times in self._deliveries.items()
            if max(times) - min(times) > AGAIN_S_MAX
        ]
        return Verdict(
            acknowledged=len(self._acknowledged),
            delivered=len({key for key, _ in self._deliveries}),
            redelivered=sum(len(times) - 1 for times in again),
            repeated=repeated,
            faults=faults,
        )

    def _take_sent(self, event: Event) -> None:
        key, place = event["key"], place_of(event)
        if event["status"] != "SEND_OK":
            self._faults.append(f"{key} was answered with {event['status']}")
        self._acknowledged[key] = place
        if (key, place) not in self._deliveries:
            self.missing.add((key, place))

    def _take_received(self, event: Event, at_s: float) -> None:
        key, place = event["key"], place_of(event)
        body = bytes.fromhex(event["body"])
        if body != self._body(key) or event["crc"] != crc32(body) & 0x7FFFFFFF:
            self._faults.append(f"{key} was delivered from {place} with another body or checksum")
        self._deliveries.setdefault((key, place), []).append(at_s)
        self.missing.discard((key, place))

    def _body(self, key: str) -> bytes:
        return key.encode().ljust(self._body_bytes, b".")

    def _copies(self) -> tuple[int, list[str]]:
        """Return how many copies the client's repeats explain, and the faults."""
        places: defaultdict[str, set[Place]] = defaultdict(set)
        for key, place in (*self._deliveries, *_swapped(self._logged)):
            places[key].add(place)
        repeated, faults = 0, []
        for key, found in places.items():
            if _number(key) > self._newest:
                continue
            copies = len(found - {self._acknowledged.get(key)})
            if copies > self._doubts[key]:
                faults.append(
                    f"{key} is at {sorted(found)}; {self._acknowledged.get(key)} was acknowledged, "
                    f"and {self._doubts[key]} failed tries may be stored"
                )
            elif key in self._acknowledged:
                repeated += copies
        return repeated, faults

    def _holders(self) -> list[str]:
        """Return the faults of places that belong to two messages."""
        holders: defaultdict[Place, set[str]] = defaultdict(set)
        for key, place in (*self._deliveries, *self._acknowledged.items()):
            holders[place].add(key)
        return [
            f"{place} was given to {sorted(keys)}"
            for place, keys in holders.items()
            if len(keys) > 1
        ]

    def _log_faults(self) -> list[str]:
        """Return the faults of what was acknowledged or delivered, and is not in the log."""
        logged = self._logged
        if logged is None:
            return []
        shown = {*self._acknowledged.items(), *self._deliveries}
        return [
            f"the log has {logged.get(place)} at {place}, where clients have seen {key}"
            for key, place in sorted(shown)
            if logged.get(place) != key
        ]


def _number(key: str) -> int:
    return int(key[1:])


def _swapped(logged: Mapping[Place, str] | None) -> list[tuple[str, Place]]:
    return [(key, place) for place, key in (logged or {}).items()]
