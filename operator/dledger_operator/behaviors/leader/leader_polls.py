"""One long poll per pod, which reports at once when a member sees another leader."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Final, Protocol

from dledger_formats.http.status import LeaderView
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.loops import Wake, backoff_s
from dledger_operator.clients.errors import MemberSilentError
from dledger_operator.observed_state import Leader, Observation, Victory

logger = logging.getLogger(__name__)

# Limits the request rate against a faulty member that answers every long poll at once.
ANSWER_GAP_S: Final = 0.01
SILENT_GAP_S_MIN: Final = 0.05
SILENT_GAP_S_MAX: Final = 1.0
REPORTED_MS_MAX: Final = 100 * 365 * 24 * 3_600_000
"""A century in milliseconds. A longer time, of which no date could be made, is rejected."""


class LeaderPollClient(Protocol):
    """The member request of this behavior."""

    async def leader(self, ip: str, since: str) -> LeaderView:
        """Wait until the leader is no longer `since`. Raises MemberSilentError on a timeout."""


class LeaderPolls:
    """The polls of one group's pods; `stop` ends them."""

    def __init__(
        self,
        client: LeaderPollClient,
        random: Random,
        on_change: Callable[[], None],
        is_stranger: Callable[[LeaderView], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an empty set; `on_change` is called when a pod's answer differs from its last. An
        answer for which `is_stranger` returns True counts as silence. `clock` returns monotonic
        seconds.
        """
        self._client = client
        self._random = random
        self._on_change = on_change
        self._is_stranger = is_stranger
        self._clock = clock
        self._polls: dict[tuple[str, str], _Poll] = {}

    def sync(self, pods: Sequence[PodView]) -> None:
        """Start and stop polls so that exactly these pods are polled at their current addresses."""
        wanted = {(pod.uid, pod.ip): pod for pod in pods if pod.ip}
        for key in self._polls.keys() - wanted.keys():
            self._polls.pop(key).task.cancel()
        for key in wanted.keys() - self._polls.keys():
            self._polls[key] = _Poll(
                self._client,
                wanted[key],
                self._random,
                self._on_change,
                self._is_stranger,
                self._clock,
            )

    def observations(self) -> list[Observation]:
        """Return the latest observation of every pod that has one."""
        return [poll.observation for poll in self._polls.values() if poll.observation is not None]

    def strangers(self) -> dict[str, str]:
        """Return the other groups that answer in place of pods, by the pods' uids: the name and
        the identity of each.
        """
        return {uid: poll.stranger for (uid, _), poll in self._polls.items() if poll.stranger}

    def victory_of(self, leader: Leader) -> Victory | None:
        """Return how this leader won; None if it has not reported that."""
        return next((each.victory for each in self.observations() if each.leads(leader)), None)

    def retry_now(self) -> None:
        """Ask silent members again now, without waiting for their backoff."""
        for poll in self._polls.values():
            poll.retry.set()

    def ask_again(self, pod_uids: Collection[str]) -> None:
        """Ask these members again now, because they did not answer another request.

        Otherwise a process that hangs would be noticed only when its long poll is over.
        """
        for (uid, _), poll in self._polls.items():
            if uid in pod_uids:
                poll.ask_again()

    async def stop(self) -> None:
        """Cancel all polls and wait until they have ended."""
        tasks = [poll.task for poll in self._polls.values()]
        self._polls.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Poll:
    """The poll of one pod at one address."""

    def __init__(
        self,
        client: LeaderPollClient,
        pod: PodView,
        random: Random,
        on_change: Callable[[], None],
        is_stranger: Callable[[LeaderView], bool],
        clock: Callable[[], float],
    ) -> None:
        self.observation: Observation | None = None
        self.stranger = ""
        """Name and identity of the other group that answered last; empty if none did, or once
        the pod does not answer.
        """
        self.retry = Wake()
        self._client = client
        self._pod = pod
        self._random = random
        self._on_change = on_change
        self._is_stranger = is_stranger
        self._clock = clock
        self._logged: set[type[Exception]] = set()
        self.task = self._start()

    def ask_again(self) -> None:
        """End a long poll and ask without waiting; a silent member is being asked already."""
        if self.observation is not None and self.observation.answers:
            self.task.cancel()
            self.task = self._start()

    def _start(self) -> asyncio.Task[None]:
        where = f"{self._pod.namespace}/{self._pod.name}"
        return asyncio.create_task(self._run(), name=f"poll {where}")

    async def _run(self) -> None:
        since, failures = "", 0
        while True:
            try:
                view = await self._ask(since)
                self._record_answer(view)
            except Exception as error:
                failures += 1
                since = ""
                self._log(error, is_first=failures == 1)
                self._record_silence()
                gap_s = backoff_s(failures, SILENT_GAP_S_MIN, SILENT_GAP_S_MAX, self._random)
                await self.retry.wait(gap_s)
            else:
                since, failures = view.token, 0
            await asyncio.sleep(ANSWER_GAP_S)

    async def _ask(self, since: str) -> LeaderView:
        try:
            view = await self._client.leader(self._pod.ip, since)
        finally:  # a stranger that has fallen silent no longer answers
            self.stranger = ""
        if self._is_stranger(view):
            self.stranger = f"{view.group} {view.group_identity}".strip()
            raise MemberSilentError(
                f"{self._pod.ip} answers as a member of another group: {self.stranger}"
            )
        if view.self_id != self._pod.member_id:
            raise MemberSilentError(f"{self._pod.ip} answers as member {view.self_id}")
        return view

    def _log(self, error: Exception, *, is_first: bool) -> None:
        """Log the first silence of several. Any other exception is a bug, and is logged once per
        type, since the member may cause it again and again.
        """
        where = f"{self._pod.namespace}/{self._pod.name}"
        if isinstance(error, MemberSilentError):
            if is_first:
                logger.info("%s: %s", where, error)
        elif type(error) not in self._logged:
            self._logged.add(type(error))
            logger.error("%s: its long poll failed unexpectedly", where, exc_info=error)

    def _record_answer(self, view: LeaderView) -> None:
        self._record(
            Observation(
                pod_uid=self._pod.uid,
                member_id=self._pod.member_id,
                answers=True,
                term=view.term,
                leader_id=view.leader_id,
                master=view.master,
                victory=_victory(view, self._clock()),
            )
        )

    def _record_silence(self) -> None:
        last = self.observation
        self._record(
            Observation(
                pod_uid=self._pod.uid,
                member_id=self._pod.member_id,
                answers=False,
                term=last.term if last else -1,
                leader_id=last.leader_id if last else None,
                master=last.master if last else False,
                victory=last.victory if last else None,
            )
        )

    def _record(self, observation: Observation) -> None:
        if observation != self.observation:
            self.observation = observation
            try:
                self._on_change()
            except Exception as error:  # it must not end the poll: nobody would notice that
                self._log(error, is_first=False)


def _victory(view: LeaderView, now_s: float) -> Victory | None:
    """Return how a master won; None if it does not report that, as in an earlier release, or
    reports impossible times.
    """
    reported_ms = (view.silent_ms, view.election_ms, view.leading_ms)
    if not view.master or not all(0 <= each <= REPORTED_MS_MAX for each in reported_ms):
        return None
    return Victory(
        stood_because=view.stood_because,
        former_leader_id=view.former_leader_id,
        silent_s=view.silent_ms / 1000,
        election_s=view.election_ms / 1000,
        proved_s=now_s - view.leading_ms / 1000,
    )
