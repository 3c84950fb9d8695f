"""Detecting double masters from watch events in any order."""

from random import Random

import pytest

from dledger_operator.behaviors.leader.double_master import DoubleMasterDetector

Event = tuple[str, int, bool]


def overlapping_pairs(events: list[Event]) -> int:
    """Count the pairs of overlapping master periods from the events in their real order."""
    masters: set[str] = set()
    pairs = 0
    for uid, _, master in events:
        if master and uid not in masters:
            pairs += len(masters)
            masters.add(uid)
        elif not master:
            masters.discard(uid)
    return pairs


def history(random: Random, *, clean: bool) -> list[Event]:
    events: list[Event] = []
    masters: list[str] = []
    for version in range(1, 60):
        uid = random.choice("abc")
        if uid in masters:
            masters.remove(uid)
            events.append((uid, version, False))
        elif not (clean and masters):
            masters.append(uid)
            events.append((uid, version, True))
        else:
            events.append((uid, version, False))
    events += [(uid, 100 + number, False) for number, uid in enumerate(masters)]
    return events


def shuffled_between_pods(events: list[Event], random: Random) -> list[Event]:
    """Shuffle the events, but keep each pod's own events in order."""
    queues = {uid: [event for event in events if event[0] == uid] for uid in "abc"}
    mixed = []
    while any(queues.values()):
        queue = queues[random.choice([uid for uid, left in sorted(queues.items()) if left])]
        mixed.append(queue.pop(0))
    return mixed


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("clean", [True, False])
def test_overlaps_are_counted_in_any_order_of_events(seed: int, clean: bool) -> None:
    random = Random(seed)
    events = history(random, clean=clean)
    detector = DoubleMasterDetector()

    found = sum(
        detector.observe(uid, version, master=master)
        for uid, version, master in shuffled_between_pods(events, random)
    )

    assert found == overlapping_pairs(events)
    assert (found == 0) is clean


def test_a_pod_from_a_list_has_no_earlier_period() -> None:
    detector = DoubleMasterDetector()
    detector.observe("a", 1, master=True)
    detector.observe_listed("a", 30, master=False)

    assert detector.observe("b", 20, master=True) == 0
    assert detector.observe("b", 40, master=False) == 0
