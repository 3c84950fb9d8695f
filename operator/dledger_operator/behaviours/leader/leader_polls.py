"""One long poll for each pod: who leads, as each member knows it, as soon as it changes."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Protocol

from dledger_formats.http.status import LeaderView
from dledger_operator.behaviours.loops import Wake, backoff_s
from dledger_operator.clients.errors import MemberSilentError
from dledger_operator.facts import Observation
from dledger_operator.views import PodView

logger = logging.getLogger(__name__)

# A member that answers its long poll at once, again and again, is out of order; this bounds what
# it can cost.
ANSWER_GAP_S: Final = 0.01
SILENT_GAP_S_MIN: Final = 0.05
SILENT_GAP_S_MAX: Final = 1.0


class LeaderPages(Protocol):
    """What is asked of members."""

    async def leader(self, ip: str, since: str) -> LeaderView:
        """Answer once the leader is no longer `since`; MemberSilentError in a known time."""


class LeaderPolls:
    """The polls of one group; `stop` ends them."""

    def __init__(self, pages: LeaderPages, random: Random, on_change: Callable[[], None]) -> None:
        """Take `on_change` for every answer that differs from the one before."""
        self._pages = pages
        self._random = random
        self._on_change = on_change
        self._polls: dict[tuple[str, str], _Poll] = {}

    def sync(self, pods: Sequence[PodView]) -> None:
        """Poll exactly these pods, at the addresses that they have now."""
        wanted = {(pod.uid, pod.ip): pod for pod in pods if pod.ip}
        for key in self._polls.keys() - wanted.keys():
            self._polls.pop(key).task.cancel()
        for key in wanted.keys() - self._polls.keys():
            self._polls[key] = _Poll(self._pages, wanted[key], self._random, self._on_change)

    def observations(self) -> list[Observation]:
        """What every pod said last; nothing of those that never answered."""
        return [poll.observation for poll in self._polls.values() if poll.observation is not None]

    def hurry(self) -> None:
        """Ask silent members again at once: something has happened to a pod."""
        for poll in self._polls.values():
            poll.hurry.set()

    async def stop(self) -> None:
        """End every poll."""
        tasks = [poll.task for poll in self._polls.values()]
        self._polls.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Poll:
    """The poll of one pod at one address."""

    def __init__(
        self, pages: LeaderPages, pod: PodView, random: Random, on_change: Callable[[], None]
    ) -> None:
        self.observation: Observation | None = None
        self.hurry = Wake()
        self._pages = pages
        self._pod = pod
        self._random = random
        self._on_change = on_change
        self.task = asyncio.create_task(self._run(), name=f"poll {pod.namespace}/{pod.name}")

    async def _run(self) -> None:
        since, failures = "", 0
        while True:
            try:
                view = await self._pages.leader(self._pod.ip, since)
            except MemberSilentError as error:
                failures += 1
                since = ""
                if failures == 1:
                    logger.info("%s/%s: %s", self._pod.namespace, self._pod.name, error)
                self._fell_silent()
                gap_s = backoff_s(failures, SILENT_GAP_S_MIN, SILENT_GAP_S_MAX, self._random)
                await self.hurry.wait(gap_s)
            else:
                since, failures = view.token, 0
                self._answered(view)
            await asyncio.sleep(ANSWER_GAP_S)

    def _answered(self, view: LeaderView) -> None:
        self._observe(
            Observation(
                pod_uid=self._pod.uid,
                member_id=self._pod.member_id,
                answers=True,
                term=view.term,
                leader_id=view.leader_id,
                master=view.master,
            )
        )

    def _fell_silent(self) -> None:
        last = self.observation
        self._observe(
            Observation(
                pod_uid=self._pod.uid,
                member_id=self._pod.member_id,
                answers=False,
                term=last.term if last else -1,
                leader_id=last.leader_id if last else None,
                master=last.master if last else False,
            )
        )

    def _observe(self, observation: Observation) -> None:
        if observation != self.observation:
            self.observation = observation
            self._on_change()
