"""Holds a Lease, or waits for it: renews it in time, takes it when it is free, gives it up."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from dledger_operator.api_objects import LeaseView
from dledger_operator.behaviors.leases.lease_turn import LeaseStep, LeaseTerms, LeaseWatch
from dledger_operator.clients.errors import ConflictError, KubeError, asked_pause_s

logger = logging.getLogger(__name__)


class LeaseApi(Protocol):
    """The API requests of this behavior."""

    async def get(self, namespace: str, name: str) -> LeaseView | None:
        """Get a Lease; None if it does not exist."""

    async def create(
        self, namespace: str, name: str, *, holder: str, duration_s: int, now: datetime
    ) -> LeaseView:
        """Create a Lease. Raises ConflictError if it exists by now."""

    async def renew(
        self, lease: LeaseView, *, holder: str, duration_s: int, now: datetime
    ) -> LeaseView:
        """Write that `holder` holds a Lease. Raises ConflictError if it has changed."""


class LeaseKeeper:
    """Holds one Lease for this process as often and as long as it can."""

    def __init__(
        self,
        api: LeaseApi,
        *,
        namespace: str,
        name: str,
        holder: str,
        terms: LeaseTerms,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        on_change: Callable[[], None],
    ) -> None:
        """Create a keeper; `on_change` is called when `held`, `other` or `epoch` has changed."""
        self._api = api
        self._namespace = namespace
        self._name = name
        self._holder = holder
        self._terms = terms
        self._clock = clock
        self._now = now
        self._on_change = on_change
        self._watch = LeaseWatch(holder)
        self._lease: LeaseView | None = None
        """The Lease as it was written last; None if it must be read again."""
        self._held_until_s: float | None = None
        self._failing = False
        self.other = ""
        """The other holder of the Lease when it was read last; empty if there was none."""
        self.epoch: int | None = None
        """A number that changes with the holder of the Lease; None before it was held once."""

    @property
    def held(self) -> bool:
        """Whether this process holds the Lease now."""
        return self._held_until_s is not None and self._clock() < self._held_until_s

    async def run(self) -> None:
        """Hold the Lease or wait for it, until cancelled."""
        while True:
            pause_s = await self.turn()
            if self._held_until_s is not None:
                await asyncio.sleep(min(pause_s, max(0.0, self._held_until_s - self._clock())))
                self._notice_lapse()
            else:
                await asyncio.sleep(pause_s)

    async def give_up(self) -> None:
        """Let another process take the Lease at once."""
        lease, held = self._lease, self.held
        self._held_until_s = None
        if lease is None or not held:
            return
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(self._terms.request_s_max):
                await self._api.renew(
                    lease, holder="", duration_s=self._terms.duration_s, now=self._now()
                )

    async def turn(self) -> float:
        """Read the Lease if necessary, renew or take it. Return the pause until the next turn."""
        began_s, left_s = self._clock(), self._terms.request_s_max
        if self._held_until_s is not None:
            left_s = min(left_s, max(0.0, self._held_until_s - began_s))
        try:
            async with asyncio.timeout(left_s):
                pause_s = await self._look(began_s)
            self._failing = False
        except ConflictError:
            self._lease = None  # another process was faster
            pause_s = 0.0 if self.held else self._terms.look_s
        except Exception as error:
            # Whatever the error is, the Lease must lapse here before another process may take it.
            self._lease, pause_s = None, self._failed_pause_s(began_s, error)
            self._watch.missed()
            self._log_failure(error)
        self._notice_lapse()
        return pause_s

    async def _look(self, began_s: float) -> float:
        lease = self._lease or await self._api.get(self._namespace, self._name)
        # A holder counts from before its request, and others count from after theirs: the renewal
        # that a GET returns may have begun while the GET was on its way.
        step, duration_s = self._watch.step(lease, self._clock()), self._terms.duration_s
        if lease is None or step is LeaseStep.CREATE:
            lease = await self._api.create(
                self._namespace,
                self._name,
                holder=self._holder,
                duration_s=duration_s,
                now=self._now(),
            )
        elif step is LeaseStep.WAIT:
            self._lost_to(lease)
            free_in_s = self._watch.free_at_s(lease) - self._clock()
            return max(0.0, min(self._terms.look_s, free_in_s))
        else:
            lease = await self._api.renew(
                lease, holder=self._holder, duration_s=duration_s, now=self._now()
            )
        self._got(lease, began_s)
        return self._pause_s(began_s, self._terms.renew_s)

    def _pause_s(self, began_s: float, interval_s: float) -> float:
        """Return how long to wait for a turn that begins `interval_s` after the last one began."""
        return max(0.0, began_s + interval_s - self._clock())

    def _failed_pause_s(self, began_s: float, error: Exception) -> float:
        """Return how long to wait after a failure: as long as the server asks for.

        A holder waits no longer than half of the time that is left to it, so it tries again a few
        times before it lapses: the server may be busy for a moment only.
        """
        asked_s = asked_pause_s(error)
        if self._held_until_s is not None:
            asked_s = min(asked_s, (self._held_until_s - self._clock()) / 2)
        return max(self._pause_s(began_s, self._terms.look_s), asked_s)

    def _got(self, lease: LeaseView, began_s: float) -> None:
        before = (self._held_until_s is not None, self.other, self.epoch)
        self._lease, self._held_until_s = lease, began_s + self._terms.hold_s
        self.other, self.epoch = "", lease.transitions
        if before != (True, "", self.epoch):
            logger.info("holds Lease %s/%s as %s", self._namespace, self._name, self._holder)
            self._on_change()

    def _lost_to(self, lease: LeaseView) -> None:
        before = (self._held_until_s is not None, self.other)
        self._lease, self._held_until_s, self.other = None, None, lease.holder
        if before != (False, self.other):
            logger.info("Lease %s/%s is held by %s", self._namespace, self._name, self.other)
            self._on_change()

    def _notice_lapse(self) -> None:
        if self._held_until_s is not None and not self.held:
            self._held_until_s = None
            logger.warning(
                "could not renew Lease %s/%s for %g s and gives it up until that succeeds",
                self._namespace, self._name, self._terms.hold_s,
            )  # fmt: skip
            self._on_change()

    def _log_failure(self, error: Exception) -> None:
        """Log the first failure of a series: an outage lasts for many turns."""
        if not self._failing:
            what = str(error) or f"no answer within {self._terms.request_s_max:g} s"
            if not isinstance(error, KubeError | TimeoutError):
                what = f"{type(error).__name__}: {error}"
            logger.warning("Lease %s/%s: %s; will retry", self._namespace, self._name, what)
        self._failing = True
