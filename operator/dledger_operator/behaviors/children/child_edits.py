"""Bounds how often the operator puts back a child that another client keeps changing. Pure.

Each edit wakes the operator, and a client that sees the operator's change and makes its own again
would keep both of them busy forever. So the operator puts back the first edits of a child at once.
After these it puts the child back only when it reconciles the group anyway, once a minute, until
the child has been left alone for a while.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from dledger_operator import names
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.resources.event import WARNING

CHILD_CONTESTED: Final = "ChildContested"
AT_ONCE_MAX: Final = 20
"""How many edits of a child are put back at once."""
QUIET_S_MIN: Final = 600.0
"""How long a child must be left alone until its edits are put back at once again."""
_STATUS: Final = "status"


@dataclass(frozen=True, slots=True)
class _Edits:
    """The edits of a child that followed each other closely."""

    count: int
    last_s: float


Clients: TypeAlias = dict[str, tuple[str, frozenset[str]]]
"""By client: when it last changed an object, and the fields of the object that it owns."""


class ChildEdits:
    """Counts the edits of a group's children by other clients."""

    def __init__(self) -> None:
        self._edits: dict[tuple[str, str], _Edits] = {}
        self._clients: dict[tuple[str, str], Clients] = {}
        """The clients of each child, as its last event showed them."""

    def take(self, kind: str | None, body: Mapping[str, Any], now_s: float) -> EventNote | None:
        """Count a watch event of a child that has changed or was deleted. Return the Event to
        record when its edits are no longer put back at once.
        """
        key = _key(body)
        before_it, clients = self._clients.get(key, {}), clients_of(body)
        self._clients[key] = clients
        editor = "somebody" if kind == "DELETED" else last_editor(clients)
        if not editor:
            return None
        if kind != "DELETED" and not _has_changed(editor, before_it, clients):
            return None  # the operator has put the child back, in the second of the last edit
        before = self._edits.get(key)
        if before is None or now_s - before.last_s >= QUIET_S_MIN:
            before = _Edits(0, now_s)
        after = self._edits[key] = replace(before, count=before.count + 1, last_s=now_s)
        if after.count != AT_ONCE_MAX + 1:
            return None
        message = (
            f"{editor} has changed {' '.join(key)} again and again, {after.count} times; the "
            "operator puts it back once a minute from now on, so let that client leave it alone"
        )
        return EventNote(severity=WARNING, reason=CHILD_CONTESTED, message=message)

    def is_contested(self, body: Mapping[str, Any]) -> bool:
        """Return whether the child is edited so often that it is no longer put back at once."""
        edits = self._edits.get(_key(body))
        return edits is not None and edits.count > AT_ONCE_MAX

    def next_may_wait(self, now_s: float) -> bool:
        """Return whether there is a child whose next edit is not put back at once, because it has
        not been left alone for a while. That edit wakes no loop, so it cannot shorten a wait.
        """
        return any(
            each.count >= AT_ONCE_MAX and now_s - each.last_s < QUIET_S_MIN
            for each in self._edits.values()
        )


def clients_of(body: Mapping[str, Any]) -> Clients:
    """Return the clients that own fields of an object outside its status."""
    clients: Clients = {}
    for each in body["metadata"].get("managedFields") or []:
        if each.get("subresource") != _STATUS:
            name, time = str(each.get("manager", "")), str(each.get("time", ""))
            before_time, before = clients.get(name, ("", frozenset()))
            clients[name] = max(time, before_time), before | {*_paths(each.get("fieldsV1") or {})}
    return clients


def last_editor(clients: Clients) -> str:
    """Return the client that has changed an object since the operator did; empty if none has.

    The API server records the times of changes in seconds. A change in the same second as the
    operator's counts: a client that watches the object changes it again at once.
    """
    own, _ = clients.get(names.FIELD_MANAGER, ("", None))
    others = [
        (time, name)
        for name, (time, _) in clients.items()
        if name != names.FIELD_MANAGER and time >= own
    ]
    return max(others, default=("", ""))[1]


def _paths(fields: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, inner in fields.items():
        yield f"{prefix}/{name}"
        yield from _paths(inner, f"{prefix}/{name}")


def _has_changed(editor: str, before: Clients, after: Clients) -> bool:
    """Return whether a client has written since the previous event.

    When the operator puts a child back, the other client loses fields but keeps its time.
    """
    time, fields = before.get(editor, ("", frozenset()))
    now, owned = after[editor]
    return now != time or not owned <= fields


def _key(body: Mapping[str, Any]) -> tuple[str, str]:
    return (str(body.get("kind", "")), str(body["metadata"]["name"]))
