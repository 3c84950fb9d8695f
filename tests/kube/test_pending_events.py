"""The Events of a group whose status cannot be written."""

import logging
from collections.abc import Mapping
from typing import Any, cast

import pytest

from dledger_kube.objects import NOW, group_body, observed_group
from dledger_kube.worker_context import unconnected
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.behaviors.report.event_recorder import EventNote, EventRecorder
from dledger_operator.behaviors.report.group_reporter import PENDING_EVENTS_MAX, GroupReporter
from dledger_operator.clients.errors import RefusedError
from dledger_operator.resources.event import NORMAL


class Server:
    """An API server whose webhook denies the status of groups for a while."""

    def __init__(self) -> None:
        self.denies = True
        self.messages: list[str] = []

    async def apply_status(self, *_: object) -> None:
        if self.denies:
            raise RefusedError("a webhook denied the request")

    async def apply(self, manifest: Manifest) -> None:
        self.messages.append(manifest["message"])


class Scene:
    """A reporter and its server."""

    def __init__(self) -> None:
        self.server = Server()
        context = cast("Any", unconnected(self.server))
        context.events = EventRecorder(self.server, now=lambda: NOW)
        self.reporter = GroupReporter(context, {}, lambda: None)

    def add(self, first: int, last: int) -> None:
        """Add an Event about each of these numbers, all with reasons of their own."""
        for number in range(first, last + 1):
            note = EventNote(severity=NORMAL, reason=f"Reason{number}", message=f"event {number}")
            self.reporter.add_event(note)

    async def report(self) -> None:
        body: Mapping[str, Any] = group_body()
        await self.reporter.report(body, observed_group(), LeaderHistory([]), 1)


async def test_events_wait_for_a_status_and_keep_their_order() -> None:
    scene = Scene()
    scene.add(1, 3)
    with pytest.raises(RefusedError):
        await scene.report()
    assert scene.server.messages == []

    scene.server.denies = False
    await scene.report()

    assert scene.server.messages == ["event 1", "event 2", "event 3"]


async def test_only_the_latest_events_wait_and_how_many_are_left_out_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.add(1, PENDING_EVENTS_MAX + 7)
    scene.server.denies = False

    with caplog.at_level(logging.WARNING):
        await scene.report()
        await scene.report()

    assert len(scene.server.messages) == PENDING_EVENTS_MAX
    assert scene.server.messages[0] == "event 8"
    assert [each for each in caplog.messages if "left out" in each] == [
        "air/flights: left out the first 7 Events, since the status could not be written"
    ]
