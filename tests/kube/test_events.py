"""Which Events are recorded, and how repetitions are counted."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dledger_formats.settings import GroupState
from dledger_kube.objects import NOW, group, group_body, member, observed_group
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviours.report.event_recorder import EventNote, EventRecorder
from dledger_operator.behaviours.report.group_events import (
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
