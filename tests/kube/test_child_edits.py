"""How often the operator puts back a child that another client keeps changing."""

from typing import Any

import pytest

from dledger_kube.objects import group
from dledger_operator.behaviors.children.child_edits import (
    AT_ONCE_MAX,
    QUIET_S_MIN,
    clients_of,
    last_editor,
)
from dledger_operator.behaviors.children.child_watch import ChildWatch
from dledger_operator.behaviors.children.next_look import UNSETTLED_S, next_look_s
from dledger_operator.behaviors.children.reconcile import ReconcileResult
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.names import FIELD_MANAGER
from dledger_operator.resources import children
from dledger_operator.spec.shape import Shape

BEFORE, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


def entry(manager: str, time: str, **fields: object) -> dict[str, object]:
    return {"manager": manager, "time": time, **fields}


NOTE = {"f:metadata": {"f:annotations": {"f:note": {}}}}
"""A field that the operator does not own; the other client keeps it."""


def child(
    generation: int,
    *entries: dict[str, object],
    kind: str = "StatefulSet",
    name: str = "flights",
) -> dict[str, Any]:
    metadata = {"name": name, "generation": generation, "managedFields": list(entries)}
    return {"kind": kind, "metadata": metadata}


class Watched:
    """The children of a group, and what their changes lead to."""

    def __init__(self) -> None:
        self.now_s, self.generation, self.events = 1000.0, 0, list[EventNote]()
        self.watch = ChildWatch("flights", lambda: self.now_s, self.events.append)

    def edit(self, by: str = "vpa", kind: str = "StatefulSet") -> bool:
        """Let a client change a child, and the operator put it back in the same second; return
        whether the operator was to do so at once.
        """
        changed = self._event(BEFORE, by, NOTE | {"f:spec": {"f:replicas": {}}}, kind)
        self._event(NOW, by, NOTE, kind)
        return changed

    def _event(self, operator_time: str, by: str, fields: dict[str, object], kind: str) -> bool:
        self.generation += 1
        entries = (entry(FIELD_MANAGER, operator_time), entry(by, NOW, fieldsV1=fields))
        changed = child(self.generation, *entries, kind=kind)
        return self.watch.calls_for_reconcile("MODIFIED", changed)


def test_a_stubborn_client_is_put_back_at_once_a_few_times_and_named_once() -> None:
    watched = Watched()

    at_once = [watched.edit() for _ in range(100)]

    assert at_once == [True] * AT_ONCE_MAX + [False] * (100 - AT_ONCE_MAX)
    (event,) = watched.events
    assert (event.severity, event.reason) == ("Warning", "ChildContested")
    assert "vpa has changed StatefulSet flights again and again" in event.message


def test_a_child_that_was_left_alone_is_put_back_at_once_again() -> None:
    watched = Watched()
    while watched.edit():
        pass

    watched.now_s += QUIET_S_MIN

    assert [watched.edit() for _ in range(AT_ONCE_MAX + 1)] == [True] * AT_ONCE_MAX + [False]
    assert len(watched.events) == 2


SETTLED = ReconcileResult(generation=1, group=group(), shape=Shape.of_new(3))


@pytest.mark.parametrize("gap_s", [1.0, 59.0, QUIET_S_MIN - 1, QUIET_S_MIN, QUIET_S_MIN + 1])
def test_an_edit_is_put_back_at_once_or_within_a_minute(gap_s: float) -> None:
    """Each edit that is put back at once ends in a look, which says when the next one is due; an
    edit that wakes nobody waits for that.
    """
    watched = Watched()
    looks_again_s: float | None = None

    for _ in range(3 * AT_ONCE_MAX):
        at_once = watched.edit()
        assert at_once or looks_again_s == UNSETTLED_S
        looks_again_s = next_look_s(SETTLED, led=True, contested=watched.watch.is_contested)
        watched.now_s += gap_s


def test_a_few_edits_shorten_no_wait() -> None:
    watched = Watched()

    assert [watched.edit() for _ in range(AT_ONCE_MAX - 1)] == [True] * (AT_ONCE_MAX - 1)

    assert not watched.watch.is_contested


def test_each_child_has_a_bound_of_its_own() -> None:
    watched = Watched()
    while watched.edit():
        pass

    assert watched.edit(kind="ConfigMap")


def test_objects_of_others_with_the_groups_label_cause_no_work_and_are_not_remembered() -> None:
    watched = Watched()
    others = [
        child(
            number, entry("kustomize", NOW, fieldsV1=NOTE), kind="ConfigMap", name=f"app-{number}"
        )
        for number in range(1, 31)
    ]

    for kind in ("ADDED", "DELETED"):
        assert not any(watched.watch.calls_for_reconcile(kind, each) for each in others)
    for number in range(1, AT_ONCE_MAX + 5):
        changed = child(number, entry("app", NOW), kind="ConfigMap", name="app-lock")
        watched.watch.calls_for_reconcile("MODIFIED", changed)

    assert not watched.events
    assert not watched.watch.is_contested
    assert not watched.watch._versions._seen
    assert not watched.watch._edits._clients
    for kind, name in children.identities(group(broker={})):
        assert watched.watch.calls_for_reconcile("MODIFIED", child(1, kind=kind, name=name))


def test_what_the_operator_itself_does_is_no_edit() -> None:
    watched = Watched()

    assert all(watched.edit(by=FIELD_MANAGER) for _ in range(100))
    assert not watched.events


def test_deletions_are_edits_whoever_wrote_last() -> None:
    watched = Watched()
    gone = child(1, entry(FIELD_MANAGER, NOW))

    put_back = [watched.watch.calls_for_reconcile("DELETED", gone) for _ in range(AT_ONCE_MAX + 1)]

    assert put_back == [True] * AT_ONCE_MAX + [False]
    assert watched.events[0].message.startswith("somebody has changed")


@pytest.mark.parametrize(
    ("entries", "editor"),
    [
        ([], ""),
        ([entry(FIELD_MANAGER, NOW)], ""),
        ([entry(FIELD_MANAGER, NOW), entry("kubectl-edit", BEFORE)], ""),
        ([entry(FIELD_MANAGER, BEFORE), entry("kubectl-edit", NOW)], "kubectl-edit"),
        ([entry(FIELD_MANAGER, NOW), entry("vpa", NOW)], "vpa"),
        ([entry(FIELD_MANAGER, BEFORE), entry("manager", NOW, subresource="status")], ""),
        ([entry(FIELD_MANAGER, BEFORE), entry("kubectl", NOW, subresource="scale")], "kubectl"),
        ([entry("vpa", BEFORE), entry("kubectl", NOW)], "kubectl"),
    ],
)
def test_the_last_editor_is_read_from_the_owners_of_the_fields(
    entries: list[dict[str, object]], editor: str
) -> None:
    assert last_editor(clients_of(child(1, *entries))) == editor


def test_a_client_that_updates_and_applies_is_one_client() -> None:
    both = child(
        1,
        entry("vpa", NOW, operation="Update", fieldsV1={"f:spec": {}}),
        entry("vpa", BEFORE, operation="Apply", fieldsV1=NOTE),
    )

    [(time, fields)] = clients_of(both).values()
    assert time == NOW
    assert {"/f:spec", "/f:metadata/f:annotations/f:note"} <= fields
