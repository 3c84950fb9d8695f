"""Which Events are recorded, and how repetitions are counted."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dledger_formats.settings import GroupState
from dledger_kube.objects import NOW, group, group_body, member, observed_group
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.report import event_recorder
from dledger_operator.behaviors.report.event_recorder import (
    COMBINED,
    OWN_EVENT_EVERY_S,
    OWN_EVENTS_MAX,
    EventNote,
    EventRecorder,
)
from dledger_operator.behaviors.report.group_events import (
    EndpointEvents,
    leader_change_event,
    seed_unused_events,
)
from dledger_operator.clients.errors import UnavailableError
from dledger_operator.conditions import of_group
from dledger_operator.observed_state import LeaderChange, ObservedEndpoints, ObservedGroup
from dledger_operator.spec.shape import Shape

WRONG = ObservedEndpoints(synced=False, reason="WrongEndpoints", message="ready endpoints: n0")


def conditions(of: ObservedGroup, age_s: float = 0.0) -> list[Manifest]:
    """The conditions of a group whose state is `age_s` old."""
    return of_group.build(of, previous=[], now=NOW - timedelta(seconds=age_s), generation=1)


def reasons(events: EndpointEvents, conditions: list[Manifest]) -> list[str]:
    return [each.reason for each in events.on_report(conditions, NOW)]


def test_a_lasting_endpoint_mismatch_yields_one_event() -> None:
    events = EndpointEvents()
    wrong = observed_group(endpoints=WRONG)

    assert reasons(events, conditions(wrong, age_s=1.0)) == []
    assert reasons(events, conditions(wrong, age_s=6.0)) == ["EndpointsMismatch"]
    assert reasons(events, conditions(wrong, age_s=7.0)) == []


def test_a_second_endpoint_mismatch_yields_a_second_event() -> None:
    events = EndpointEvents()
    wrong = conditions(observed_group(endpoints=WRONG), age_s=6.0)
    reasons(events, wrong)
    reasons(events, conditions(observed_group()))

    assert reasons(events, wrong) == ["EndpointsMismatch"]


def test_a_group_that_falls_asleep_yields_no_warning() -> None:
    events = EndpointEvents()
    leaving = [member(k, ready=False, leaving=True, reason="terminating") for k in range(3)]
    asleep = observed_group(hibernate=True, members=tuple(leaving), endpoints=WRONG)

    assert reasons(events, conditions(asleep, age_s=60.0)) == []


def test_the_event_of_a_leader_change_names_the_previous_leader() -> None:
    change = LeaderChange(from_member="n0", to_member="n1", term=7, reason="LeaderLost", at=NOW)

    assert leader_change_event(change).message == (
        "n1 leads term 7 (LeaderLost); the previous leader was n0"
    )


@pytest.mark.parametrize(
    ("with_seed", "state", "told"),
    [
        (True, GroupState.EXISTING, True), (True, GroupState.NEW, False),
        (False, GroupState.EXISTING, False),
    ],
    ids=["an earlier group's log", "the archive", "no archive"],
)  # fmt: skip
def test_a_seed_that_is_not_used_is_told(*, with_seed: bool, state: GroupState, told: bool) -> None:
    seed = {"seed": {"persistentVolumeClaim": {"claimName": "archives"}}} if with_seed else {}
    notes = seed_unused_events(group(**seed), replace(Shape.of_new(3), state=state))

    assert [(note.reason, note.severity) for note in notes] == [("SeedUnused", "Warning")] * told
    assert not told or "hold the log of an earlier group" in notes[0].message


class EventStore:
    """An API that keeps Events by name, as the real one does."""

    def __init__(self) -> None:
        self.events: dict[str, Manifest] = {}
        self.down = False

    async def apply(self, manifest: Manifest) -> None:
        if self.down:
            raise UnavailableError("no answer")
        self.events[manifest["metadata"]["name"]] = manifest


async def record(recorder: EventRecorder, message: str = "gone", **metadata: Any) -> None:
    body = group_body()
    body["metadata"] |= metadata
    await recorder.record(
        "DLedgerGroup", body, EventNote(severity="Warning", reason="R", message=message)
    )


async def test_a_repeated_event_is_counted() -> None:
    api = EventStore()
    recorder = EventRecorder(api, now=lambda: NOW)
    await record(recorder)
    await record(recorder)
    await record(recorder, "something else")

    assert sorted(event["count"] for event in api.events.values()) == [1, 2]


async def test_an_event_names_its_object_and_its_source() -> None:
    api = EventStore()
    await record(EventRecorder(api, now=lambda: NOW))
    (event,) = api.events.values()

    assert event["involvedObject"]["uid"] == "group-uid"
    assert event["source"] == {"component": "dledger-operator"}
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("name", ["a" * 253, "move-" + "-" * 247 + "b", "x" * 235 + ".y", "move"])
async def test_an_event_has_a_valid_name_however_long_its_objects_name_is(name: str) -> None:
    """The API server would refuse the Event, so nobody would see why a switchover failed."""
    api = EventStore()
    await record(EventRecorder(api, now=lambda: NOW), name=name)
    (made,) = api.events

    assert len(made) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", made)
    assert api.events[made]["involvedObject"]["name"] == name


async def test_events_of_a_new_object_with_the_same_name_are_counted_separately() -> None:
    api = EventStore()
    recorder = EventRecorder(api, now=lambda: NOW)
    await record(recorder, uid="first")
    await record(recorder, uid="second")

    assert [event["count"] for event in api.events.values()] == [1, 1]


async def test_a_failure_to_record_an_event_is_tolerated_and_not_counted() -> None:
    api = EventStore()
    api.down = True
    recorder = EventRecorder(api, now=lambda: NOW)
    await record(recorder)
    api.down = False
    await record(recorder)

    assert [event["count"] for event in api.events.values()] == [1]


class Flapping:
    """A recorder of a group that elects a leader once a second, and its clock."""

    def __init__(self) -> None:
        self.api, self.now = EventStore(), NOW
        self.recorder = EventRecorder(self.api, now=lambda: self.now)
        self.term = 0

    async def elect(self, count: int, **metadata: Any) -> None:
        """Record leader changes, a second apart."""
        for _ in range(count):
            self.term += 1
            await record(self.recorder, f"n1 leads term {self.term}", **metadata)
            self.now += timedelta(seconds=1)

    def told(self, uid: str = "group-uid") -> list[str]:
        """The messages of the Events of an object."""
        events = self.api.events.values()
        return [each["message"] for each in events if each["involvedObject"]["uid"] == uid]


async def test_a_flapping_group_gets_few_events_and_the_last_one_names_the_latest_leader() -> None:
    flapping = Flapping()
    await flapping.elect(OWN_EVENTS_MAX)
    assert len(flapping.told()) == OWN_EVENTS_MAX, "a storm of the usual length is told in full"

    await flapping.elect(600)

    combined = [each for each in flapping.told() if each.startswith(COMBINED)]
    assert len(flapping.told()) <= OWN_EVENTS_MAX + 600 / OWN_EVENT_EVERY_S + 1
    assert len(combined) == 1
    assert f"n1 leads term {flapping.term}" in flapping.told()[-1] + combined[0]
    counts = [each["count"] for each in flapping.api.events.values()]
    assert sum(counts) == flapping.term, "every Event is counted"


async def test_a_flapping_group_takes_no_events_from_others() -> None:
    flapping = Flapping()
    await flapping.elect(100)

    await flapping.elect(1, uid="other")
    await flapping.recorder.record(
        "DLedgerGroup", group_body(), EventNote(severity="Normal", reason="S", message="scaled")
    )

    assert flapping.told("other") == [f"n1 leads term {flapping.term}"]
    assert "scaled" in flapping.told()


async def test_a_group_that_is_calm_again_gets_events_of_their_own() -> None:
    flapping = Flapping()
    await flapping.elect(100)
    flapping.now += timedelta(hours=1)

    await flapping.elect(OWN_EVENTS_MAX)

    assert flapping.told()[-1] == f"n1 leads term {flapping.term}"


async def test_an_event_that_is_repeated_in_a_storm_is_counted_where_it_was_told() -> None:
    flapping = Flapping()
    await flapping.elect(100)
    await record(flapping.recorder, "n1 leads term 1")

    told = {each["message"]: each["count"] for each in flapping.api.events.values()}
    assert told["n1 leads term 1"] == 2


async def test_what_is_remembered_of_events_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "REMEMBERED_MAX", 5)
    flapping = Flapping()
    for uid in range(20):
        await flapping.elect(1, uid=f"uid-{uid}")

    assert len(flapping.recorder._recorded) == len(flapping.recorder._allowances) == 5
