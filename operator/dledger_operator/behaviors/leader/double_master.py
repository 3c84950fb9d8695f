"""Detects double masters: two pods of a group that had the master label at the same time.

Watch events of different pods may arrive out of order. Their resourceVersions give the real order:
the API guarantees that versions of one resource type compare as numbers. So a pod's time as master
is an interval of versions, and two overlapping intervals are a double master.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dledger_operator.spec.group import Roles

MASTER_PERIODS_MAX: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _MasterPeriod:
    """A pod had the master label from version `begin` up to version `end`."""

    pod_uid: str
    begin: int
    end: int


class DoubleMasterDetector:
    """Tracks the master periods of one group's pods; it must receive every watch event."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._closed: list[_MasterPeriod] = []

    def observe_event(self, kind: str | None, body: Mapping[str, Any], roles: Roles) -> int:
        """Process a pod's watch event; `kind` is None for a pod from a LIST. Return the new double
        masters.
        """
        metadata = body["metadata"]
        labels = metadata.get("labels") or {}
        master = kind != "DELETED" and labels.get(roles.label) == roles.master
        uid, version = metadata["uid"], int(metadata["resourceVersion"])
        if kind is None:
            self.observe_listed(uid, version, master=master)
            return 0
        return self.observe(uid, version, master=master)

    def observe(self, uid: str, version: int, *, master: bool) -> int:
        """Process a watch event; `master` is False for a deletion. Return the new double masters.

        A double master is a period that began within another one. It is counted when the other
        period is known to have ended: while that is open, its end event may still be on its way.
        """
        if master and uid not in self._open:
            self._open[uid] = version
            return sum(
                period.begin < version < period.end
                for period in self._closed
                if period.pod_uid != uid
            )
        if not master and version > self._open.get(uid, version):
            ended = _MasterPeriod(pod_uid=uid, begin=self._open.pop(uid), end=version)
            begins = [*self._open.values()]
            begins += [period.begin for period in self._closed if period.pod_uid != uid]
            self._closed = [*self._closed, ended][-MASTER_PERIODS_MAX:]
            return sum(ended.begin < begin < ended.end for begin in begins)
        return 0

    def observe_listed(self, uid: str, version: int, *, master: bool) -> None:
        """Process a pod from a LIST. Earlier events are lost, so drop its open period."""
        self._open.pop(uid, None)
        if master:
            self._open[uid] = version
