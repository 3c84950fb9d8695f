"""Decides what this process does in a namespace, by two kinds of Leases.

The replicas of a release share a Lease in the release's namespace. All of them follow leaders: a
label is written on the version of the pod that was read and never for an older term, so two
replicas that do it agree. Everything else is done by the holder alone.

Each namespace with groups has a Lease that a release holds, no matter which of its replicas renews
it. A second release for the same namespace touches nothing there.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime
from enum import Enum
from typing import Any, Final

from dledger_operator import names
from dledger_operator.behaviors.leases.lease_keeper import LeaseApi, LeaseKeeper
from dledger_operator.behaviors.leases.lease_turn import LeaseTerms
from dledger_operator.behaviors.worker_pool import why_ended
from dledger_operator.config import LeaseNames

logger = logging.getLogger(__name__)

REPLICA_TERMS: Final = LeaseTerms(
    duration_s=4, hold_s=3.2, renew_s=1.2, look_s=0.8, request_s_max=1.6
)
"""Another replica acts at most 4.8 s after the holder has died: `look_s` plus the duration, and the
time that its requests take.

Renewals are a large part of what an idle operator costs, so they are rare. A renewal that the API
server does not answer times out 2.8 s after the last one began, which leaves 0.4 s for a GET and a
write. Taking the Lease needs both as well, so an API server may take 0.8 s for each request.
"""
NAMESPACE_TERMS: Final = LeaseTerms(
    duration_s=120, hold_s=100.0, renew_s=40.0, look_s=2.0, request_s_max=5.0
)


class Duty(Enum):
    """What this process does for the groups and audits of a namespace."""

    NOTHING = "nothing"
    FOLLOW = "follow"
    """Follow leaders, so that labels and Services are right."""
    ALL = "all"


class Duties:
    """What this process does, by namespace. Without Leases it does everything everywhere."""

    def __init__(
        self,
        api: LeaseApi,
        lease: LeaseNames | None,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._lease = lease
        self._clock = clock
        self._now = now
        self._on_change: Callable[[], None] = lambda: None
        self._replica: LeaseKeeper | None = None
        if lease is not None:
            self._replica = self._keeper(lease.namespace, lease.name, lease.replica, REPLICA_TERMS)
        self._namespaces: dict[str, LeaseKeeper] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._warned_of: dict[str, str] = {}
        self._is_stopped = False

    def start(self, on_change: Callable[[], None]) -> None:
        """Begin to take Leases; `on_change` is called when a duty may have changed."""
        self._on_change = on_change
        if self._replica:
            self._spawn("", self._replica.run())
        on_change()

    async def stop(self) -> None:
        """Give up the release's Lease, so that another replica takes over at once. No Lease is
        taken from now on.
        """
        self._is_stopped = True
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        if self._replica:
            await self._replica.give_up()

    def watch_namespaces(self, namespaces: set[str]) -> None:
        """Take the Leases of exactly these namespaces."""
        if self._lease is None or self._is_stopped:
            return
        for gone in self._namespaces.keys() - namespaces:
            del self._namespaces[gone]
            self._tasks.pop(gone).cancel()
        for each in namespaces - self._namespaces.keys():
            release = self._lease.release
            keeper = self._keeper(each, names.NAMESPACE_LEASE, release, NAMESPACE_TERMS)
            self._namespaces[each] = keeper
            self._spawn(each, keeper.run())

    def of(self, namespace: str) -> Duty:
        """Return what this process does in a namespace.

        In a namespace whose Lease could not be renewed, leaders are still followed, since no other
        release is known to have taken it.
        """
        if self._replica is None:
            return Duty.ALL
        keeper = self._namespaces.get(namespace)
        if keeper is None or keeper.other or keeper.epoch is None:
            return Duty.NOTHING
        return Duty.ALL if keeper.held and self._replica.held else Duty.FOLLOW

    def epoch(self, namespace: str) -> tuple[int | None, int | None]:
        """Return a value that changes when another process may have acted in a namespace."""
        keeper, replica = self._namespaces.get(namespace), self._replica
        return (replica.epoch if replica else None, keeper.epoch if keeper else None)

    @property
    def acts(self) -> bool:
        """Whether this process is the one of its release that does everything."""
        return self._replica is None or self._replica.held

    def of_others(self) -> dict[str, str]:
        """Return the namespaces that other releases hold, with the holder of each."""
        return {name: each.other for name, each in self._namespaces.items() if each.other}

    def failed(self) -> str:
        """Return why a task of a Lease has ended, which it never should; empty if none has."""
        return next(filter(None, map(why_ended, self._tasks.values())), "")

    def _keeper(self, namespace: str, name: str, holder: str, terms: LeaseTerms) -> LeaseKeeper:
        return LeaseKeeper(
            self._api,
            namespace=namespace,
            name=name,
            holder=holder,
            terms=terms,
            clock=self._clock,
            now=self._now,
            on_change=self._changed,
        )

    def _spawn(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[key] = asyncio.create_task(work, name=f"Lease of {key or 'the release'}")

    def _changed(self) -> None:
        others = self.of_others()
        for namespace, holder in others.items() - self._warned_of.items():
            logger.warning(
                "%s: another release (%s) manages the groups of this namespace; this one does "
                "nothing there. Uninstall one of them, or give them different namespaces "
                "(watchNamespaces)", namespace, holder,
            )  # fmt: skip
        self._warned_of = others
        self._on_change()
