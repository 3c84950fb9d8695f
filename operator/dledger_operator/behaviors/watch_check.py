"""Checks that the watches of this project's own kinds report every change.

A watch can be silent although objects change: its connection hangs, or the server's cache does.
Bookmarks would show that, but kopf does not pass them on. So the operator lists the objects at
intervals, and compares their versions with those that the watch has reported. A LIST returns the
newest version. If the watch has reported another version of an object, or none, and nothing about
the object since the LIST began, the watch is behind until its next event of that object.

Only these kinds depend on their watch. Whatever is read from other kinds is read again at
intervals, or at each step.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any, Final, Protocol

from dledger_operator.behaviors.loops import Pace, Wake, repeat
from dledger_operator.clients.errors import KubeError, RefusedError

logger = logging.getLogger(__name__)

LOOK_S: Final = 20.0
"""Time between two comparisons."""
BEHIND_S_MAX: Final = 300.0
"""The liveness probe fails if a watch is behind for longer: a new process lists everything."""
FORGET_S: Final = 2 * LOOK_S
"""How long a deletion that the watch does not report counts as missed."""
PACE: Final = Pace(interval_s=LOOK_S, gap_s=1.0)


class ListApi(Protocol):
    """The API request of this behavior."""

    async def versions(self, kind: str, namespace: str | None) -> dict[str, str]:
        """List the resourceVersions of one of this project's kinds, by uid."""


class WatchBehindError(Exception):
    """A watch has missed a change for too long."""


class ReportedVersions:
    """The versions that the watch of one kind has reported, compared with LISTs. Pure."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}
        self._behind: dict[str, float] = {}
        """By uid: when a LIST first showed a version that was not reported."""
        self.behind_s = 0.0
        """For how long, at least, the watch was behind at the last comparison."""

    def take(self, event: Mapping[str, Any]) -> None:
        """Record an event of the watch."""
        metadata = event["object"]["metadata"]
        uid = metadata["uid"]
        self._behind.pop(uid, None)
        if event["type"] == "DELETED":
            self._reported.pop(uid, None)
        else:
            self._reported[uid] = metadata["resourceVersion"]

    def reported(self) -> dict[str, str]:
        """Return the versions reported so far, to be passed to `compare` after a LIST."""
        return dict(self._reported)

    def compare(self, before: Mapping[str, str], listed: Mapping[str, str], began_s: float) -> None:
        """Compare a LIST that began at `began_s` with what had been reported before it.

        The first LIST that shows a change proves nothing: the event may still arrive.
        """
        behind = {}
        for uid in before.keys() | listed.keys():
            reported = self._reported.get(uid)
            if reported != before.get(uid) or reported == listed.get(uid):
                continue  # something was reported during the LIST, or all is reported
            behind[uid] = self._behind.get(uid, began_s)
            if uid not in listed and began_s - behind[uid] >= FORGET_S:
                # kopf reports no deletion that it missed while it had no watch.
                del self._reported[uid], behind[uid]
        self._behind = behind
        self.behind_s = max((began_s - since_s for since_s in behind.values()), default=0.0)


class WatchCheck:
    """Compares the watches of all kinds with LISTs, at intervals."""

    def __init__(
        self,
        api: ListApi,
        kinds: Collection[str],
        namespaces: Collection[str],
        *,
        clock: Callable[[], float],
        random: Random,
        on_behind: Callable[[str, float], None],
    ) -> None:
        """Create; without `namespaces`, all are compared. `on_behind` is called after each
        comparison, with the kind and for how many seconds its watch is behind.
        """
        self._api = api
        self._namespaces: Collection[str | None] = namespaces or (None,)
        self._versions = {
            kind: {each: ReportedVersions() for each in self._namespaces} for kind in kinds
        }
        self._refused_since: dict[str | None, float] = {}
        """By namespace: when the first LISTs were refused if all have been refused since."""
        self._clock = clock
        self._random = random
        self._on_behind = on_behind

    def take(self, kind: str, event: Mapping[str, Any]) -> None:
        """Record an event of a watch."""
        versions = self._versions[kind]
        (versions.get(None) or versions[event["object"]["metadata"]["namespace"]]).take(event)

    def refused_for_s(self, namespace: str) -> float:
        """Return for how long the LISTs of all kinds in a namespace have been refused."""
        return self._clock() - self._refused_since.get(namespace, self._clock())

    async def run(self) -> None:
        """Compare until cancelled. A LIST that fails is repeated, and proves nothing."""
        await repeat(
            self.run_once,
            what="comparing the watches",
            wake=Wake(),
            pace=PACE,
            random=self._random,
            on_failure=lambda _: None,
        )

    async def run_once(self) -> None:
        """Compare each kind once. Raises the first error of a LIST after all others."""
        began_s, errors = self._clock(), list[KubeError]()
        refused = dict.fromkeys(self._namespaces, True)
        for kind, versions in self._versions.items():
            was_behind = _behind_s(versions) > 0
            for namespace in self._namespaces:
                try:
                    await self._compare(kind, namespace)
                except KubeError as error:
                    errors.append(error)
                    refused[namespace] &= isinstance(error, RefusedError)
                else:
                    refused[namespace] = False
            if _behind_s(versions) and not was_behind:
                logger.warning("the watch of %s has missed a change", kind)
            self._on_behind(kind, _behind_s(versions))
        self._refused_since = {
            each: self._refused_since.get(each, began_s)
            for each, all_are in refused.items()
            if all_are
        }
        if errors:
            raise errors[0]

    async def _compare(self, kind: str, namespace: str | None) -> None:
        versions = self._versions[kind][namespace]
        before, began_s = versions.reported(), self._clock()
        versions.compare(before, await self._api.versions(kind, namespace), began_s)

    def check(self) -> None:
        """Raise WatchBehindError if a watch is behind for too long."""
        for kind, versions in self._versions.items():
            behind_s = _behind_s(versions)
            if behind_s > BEHIND_S_MAX:
                raise WatchBehindError(
                    f"the watch of {kind} has missed a change for {behind_s:.0f} s"
                )


def _behind_s(versions: Mapping[str | None, ReportedVersions]) -> float:
    return max(each.behind_s for each in versions.values())
