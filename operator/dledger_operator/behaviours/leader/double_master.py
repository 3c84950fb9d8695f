"""Watches the watchman: were two pods of a group ever labelled master at once?

Watch events of different pods may be handled in another order than they happened in. Their
resourceVersions tell the real order (the API promises that those of one resource type compare as
numbers), so a pod's time as master is an interval of versions, and two intervals that overlap are a
double master.
"""

from dataclasses import dataclass
from typing import Final

REIGNS_MAX: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reign:
    """A pod carried the master's label from one version up to another."""

    pod_uid: str
    begin: int
    end: int


class DoubleMasterWatch:
    """The reigns of one group's pods; give it every watch event."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._closed: list[_Reign] = []

    def saw(self, uid: str, version: int, *, master: bool) -> int:
        """Take one event, also of a deletion (then `master` is False).

        Returns how many double masters came to light: reigns that began within another. That other
        one must have ended; while it is open, the event that ends it may be on its way.
        """
        if master and uid not in self._open:
            self._open[uid] = version
            return sum(
                reign.begin < version < reign.end for reign in self._closed if reign.pod_uid != uid
            )
        if not master and version > self._open.get(uid, version):
            ended = _Reign(pod_uid=uid, begin=self._open.pop(uid), end=version)
            begins = [*self._open.values()]
            begins += [reign.begin for reign in self._closed if reign.pod_uid != uid]
            self._closed = [*self._closed, ended][-REIGNS_MAX:]
            return sum(ended.begin < begin < ended.end for begin in begins)
        return 0

    def saw_listed(self, uid: str, version: int, *, master: bool) -> None:
        """Take a pod from a list instead: what happened to it in between cannot be judged."""
        self._open.pop(uid, None)
        if master:
            self._open[uid] = version
