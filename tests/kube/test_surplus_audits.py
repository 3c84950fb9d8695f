"""Audits that are no longer kept are deleted, also if some of them may not be."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger_kube.objects import IMAGES, NOW, group_body, membership
from dledger_operator import names
from dledger_operator.behaviors.audits.group_audits import GroupAudits
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.clients.errors import ConflictError, KubeError, NotFoundError, RefusedError

ENDED = ("a", "b", "c", "d")
"""The audits that have ended, the oldest first."""


class Api:
    """An API server in which the deletion of some audits fails."""

    def __init__(self, fails: Mapping[str, KubeError]) -> None:
        self.fails = fails
        self.deleted: list[str] = []

    async def delete_custom_object(self, kind: str, body: Mapping[str, Any]) -> None:
        name = body["metadata"]["name"]
        if name in self.fails:
            raise self.fails[name]
        self.deleted.append(name)


class Scene:
    """A group that keeps one audit, and has four."""

    def __init__(self, **fails: KubeError) -> None:
        self.api, self.events = Api(fails), list[EventNote]()
        self.woken: list[str] = []
        spec = {"audit": {"afterFailover": True, "keep": 1}}
        self.snapshot = GroupSnapshot.of(group_body(spec), IMAGES)
        self.snapshot.membership = membership()
        self.snapshot.reconciled = cast("Any", SimpleNamespace(generation=1))
        self.snapshot.followed = cast("Any", SimpleNamespace(pods=[]))
        for number, name in enumerate(ENDED):
            self.snapshot.audits.take(_ended(name, number))
        context = cast("Any", SimpleNamespace(api=self.api, now=lambda: NOW))
        self.audits = GroupAudits(
            context, self.snapshot, self.events.append, lambda *loops: self.woken.extend(loops)
        )

    @property
    def left(self) -> list[str]:
        """The audits that the group still knows."""
        bodies = self.snapshot.audits.bodies.values()
        return sorted(str(body["metadata"]["name"]) for body in bodies)


def _ended(name: str, number: int) -> dict[str, Any]:
    at = f"2026-01-01T0{number}:00:00Z"
    return {
        "metadata": {
            "namespace": "air", "name": name, "uid": f"{name}-uid", "creationTimestamp": at,
            "labels": {names.AUDIT_CAUSE_LABEL: "Schedule"},
        },
        "spec": {"groupRef": {"name": "flights"}},
        "status": {"phase": "Failed", "finishedAt": at, "conditions": [{"message": "lost"}]},
    }  # fmt: skip


async def test_an_audit_that_may_not_be_deleted_keeps_no_later_one() -> None:
    scene = Scene(a=RefusedError("delete DLedgerAudit air/a: a webhook denied the request"))

    await scene.audits.run_once()
    await scene.audits.run_once()

    assert scene.api.deleted == ["b", "c"]
    assert scene.left == ["a", "d"]
    assert scene.woken == ["report", "scale"], "the plan is reported"
    (told,) = scene.events
    assert (told.severity, told.reason) == ("Warning", "AuditNotDeleted")
    assert told.message == (
        "an audit that is no longer kept stays: delete DLedgerAudit air/a: a webhook denied the "
        "request"
    )


async def test_an_audit_that_may_be_deleted_later_is() -> None:
    scene = Scene(a=RefusedError("denied"))
    await scene.audits.run_once()
    scene.api.fails = {}

    await scene.audits.run_once()

    assert scene.left == ["d"]


@pytest.mark.parametrize("error", [NotFoundError("gone"), ConflictError("another has its name")])
async def test_an_audit_that_is_gone_is_forgotten(error: KubeError) -> None:
    scene = Scene(b=error)

    await scene.audits.run_once()

    assert scene.left == ["d"]
    assert scene.events == []
