"""One long poll per pod."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from dledger_formats.http.status import LeaderView
from dledger_kube.fake_members import members
from dledger_kube.objects import NOW, leader_view, pod
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.behaviors.leader.leader_polls import LeaderPolls
from dledger_operator.clients.errors import MemberSilentError
from dledger_operator.observed_state import Leader, LeaderChange, Observation

WAIT_S = 10.0


def has_term(term: int, seen: dict[str, Observation]) -> bool:
    return "n0" in seen and seen["n0"].term == term


class Polled:
    """Polls of some pods, and a way to wait for their observations."""

    def __init__(self) -> None:
        self.changes = 0
        self._changed = asyncio.Event()
        self.polls: LeaderPolls

    def on_change(self) -> None:
        self.changes += 1
        self._changed.set()

    async def until(self, wanted: Callable[[dict[str, Observation]], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not wanted({each.member_id: each for each in self.polls.observations()}):
                self._changed.clear()
                await self._changed.wait()


async def test_a_changed_answer_is_reported_and_a_repeated_one_is_not() -> None:
    async with members(1) as ([node], client):
        polled = Polled()
        polled.polls = LeaderPolls(client, Random(1), polled.on_change)
        polled.polls.sync([pod(0, ip=node.ip)])

        await node.say(7, "n0")
        await polled.until(partial(has_term, 7))
        changes = polled.changes
        await node.say(7, "n0")
        await node.say(8, None)
        await polled.until(partial(has_term, 8))

        assert polled.changes == changes + 1
        await polled.polls.stop()


async def test_a_silent_member_keeps_its_last_term_and_leader() -> None:
    async with members(1) as ([node], client):
        polled = Polled()
        polled.polls = LeaderPolls(client, Random(1), polled.on_change)
        await node.say(7, "n0")
        polled.polls.sync([pod(0, ip=node.ip)])
        await polled.until(lambda seen: "n0" in seen and seen["n0"].answers)

        await node.fall_silent()
        await polled.until(lambda seen: not seen["n0"].answers)

        (kept,) = polled.polls.observations()
        assert (kept.term, kept.leader_id) == (7, "n0")
        await polled.polls.stop()


async def test_a_member_that_answers_again_is_observed_again() -> None:
    async with members(1) as ([node], client):
        polled = Polled()
        polled.polls = LeaderPolls(client, Random(1), polled.on_change)
        polled.polls.sync([pod(0, ip=node.ip)])
        await polled.until(lambda seen: "n0" in seen and seen["n0"].answers)
        await node.fall_silent()
        await polled.until(lambda seen: not seen["n0"].answers)

        await node.answer()
        polled.polls.retry_now()

        await polled.until(lambda seen: seen["n0"].answers)
        await polled.polls.stop()


async def test_deleted_pods_are_no_longer_polled() -> None:
    async with members(2) as (nodes, client):
        polled = Polled()
        polled.polls = LeaderPolls(client, Random(1), polled.on_change)
        pods = [pod(ordinal, ip=node.ip) for ordinal, node in enumerate(nodes)]
        polled.polls.sync(pods)
        await polled.until(lambda seen: len(seen) == 2)

        polled.polls.sync(pods[:1])

        assert [each.member_id for each in polled.polls.observations()] == ["n0"]
        await polled.polls.stop()


async def test_a_pod_without_an_address_is_not_polled() -> None:
    async with members(1) as (_, client):
        polls = LeaderPolls(client, Random(1), lambda: None)

        polls.sync([pod(0, ip="")])

        assert polls.observations() == []
        await polls.stop()


async def test_each_change_costs_one_request() -> None:
    async with members(1) as ([node], client):
        polled = Polled()
        polled.polls = LeaderPolls(client, Random(1), polled.on_change)
        polled.polls.sync([pod(0, ip=node.ip)])
        for term in range(1, 6):
            await node.say(term, "n0")
            await polled.until(partial(has_term, term))

        assert node.polls <= 5 + 2
        await polled.polls.stop()


async def test_a_member_that_hangs_is_noticed_by_who_asks_it_again() -> None:
    """Its kernel still takes connections, so that its long poll would last until its end."""
    async with members(1) as ([node], client):
        polled = Polled()
        polled.polls = LeaderPolls(client, Random(1), polled.on_change)
        await node.say(7, "n0")
        polled.polls.sync([pod(0, ip=node.ip)])
        await polled.until(lambda seen: "n0" in seen and seen["n0"].answers)

        node.hang()
        polled.polls.ask_again({pod(0).uid})

        await polled.until(lambda seen: not seen["n0"].answers)
        node.go_on()
        polled.polls.retry_now()
        await polled.until(lambda seen: seen["n0"].answers)
        await polled.polls.stop()


async def test_only_those_that_were_not_silent_yet_are_asked_again() -> None:
    async with members(2) as ([first, second], client):
        polled = Polled()
        polled.polls = LeaderPolls(client, Random(1), polled.on_change)
        polled.polls.sync([pod(0, ip=first.ip), pod(1, ip=second.ip)])
        await polled.until(lambda seen: len(seen) == 2)
        await second.fall_silent()
        await polled.until(lambda seen: not seen["n1"].answers)
        tasks = {each.get_name(): each for each in asyncio.all_tasks()}

        polled.polls.ask_again({pod(0).uid, pod(1).uid})

        await asyncio.sleep(0)
        ended = {name.rpartition("-")[2] for name, each in tasks.items() if each.cancelling()}
        assert ended == {"0"}
        await polled.polls.stop()


async def test_a_member_that_answers_at_the_address_of_another_is_silence() -> None:
    """The address of a pod that has ended may be another's; its word would count twice."""
    async with members(2) as (nodes, client):
        polled = Polled()
        polled.polls = LeaderPolls(client, Random(1), polled.on_change)
        await nodes[1].say(7, "n1")
        polled.polls.sync([pod(0, ip=nodes[1].ip), pod(1, ip=nodes[1].ip)])

        await polled.until(lambda seen: len(seen) == 2)

        said = {each.member_id: each.answers for each in polled.polls.observations()}
        assert said == {"n0": False, "n1": True}
        await polled.polls.stop()


class Saying:
    """A member that first says what its poll cannot take, and then answers."""

    def __init__(self, *views: LeaderView | Exception) -> None:
        self._views = list(views)
        self._asked = asyncio.Semaphore(0)

    async def until_asked(self, count: int) -> None:
        """Wait until it has been asked so often."""
        async with asyncio.timeout(WAIT_S):
            for _ in range(count):
                await self._asked.acquire()

    async def leader(self, ip: str, since: str) -> LeaderView:
        self._asked.release()
        view = self._views.pop(0) if len(self._views) > 1 else self._views[0]
        if isinstance(view, Exception):
            raise view
        return view


async def test_a_member_of_another_group_is_silence_and_named_until_the_own_one_answers() -> None:
    polled, names = Polled(), ("other", "own")
    other, own = (replace(leader_view("n0", 7), group_identity=each) for each in names)
    client = Saying(other, own)
    polled.polls = LeaderPolls(
        client, Random(1), polled.on_change, lambda view: view.group_identity == "other"
    )
    polled.polls.sync([pod(0)])

    await polled.until(lambda seen: "n0" in seen and not seen["n0"].answers)
    named = polled.polls.strangers()
    polled.polls.retry_now()
    await polled.until(lambda seen: seen["n0"].answers)

    assert named == {"uid-0": "other"}
    assert polled.polls.strangers() == {}
    await polled.polls.stop()


async def test_a_member_of_another_group_is_no_longer_named_once_nobody_answers() -> None:
    polled = Polled()
    other, silence = replace(leader_view("n0", 7), group_identity="other"), MemberSilentError("cut")
    client = Saying(other, silence)
    polled.polls = LeaderPolls(
        client, Random(1), polled.on_change, lambda view: view.group_identity == "other"
    )
    polled.polls.sync([pod(0)])
    await polled.until(lambda seen: "n0" in seen)
    assert polled.polls.strangers() == {"uid-0": "other"}

    await client.until_asked(3)

    assert polled.polls.strangers() == {}
    await polled.polls.stop()


async def test_a_poll_that_fails_unexpectedly_counts_as_silence_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    polled, answer = Polled(), leader_view("n0", 7, "n0")
    client = Saying(answer, ZeroDivisionError("oops"), ZeroDivisionError("again"), answer)
    polled.polls = LeaderPolls(client, Random(1), polled.on_change)
    polled.polls.sync([pod(0, ip="10.0.0.1")])

    await polled.until(lambda seen: "n0" in seen and seen["n0"].answers)
    await polled.until(lambda seen: not seen["n0"].answers)
    await polled.until(lambda seen: seen["n0"].answers)

    assert [each.exc_info is not None for each in caplog.records if each.levelname == "ERROR"] == [
        True
    ], "one cause is logged once"
    await polled.polls.stop()


async def test_a_listener_that_fails_ends_no_poll() -> None:
    polled, failures = Polled(), [ZeroDivisionError("oops"), ZeroDivisionError("again")]
    client = Saying(leader_view("n0", 7, "n0"), MemberSilentError("gone"), leader_view("n0", 8))

    def on_change() -> None:
        polled.on_change()
        if failures:
            raise failures.pop()

    polled.polls = LeaderPolls(client, Random(1), on_change)
    polled.polls.sync([pod(0, ip="10.0.0.1")])

    await polled.until(partial(has_term, 8))
    await polled.polls.stop()


@pytest.mark.parametrize("key", ["silent_ms", "election_ms", "leading_ms"])
async def test_a_leader_that_tells_an_impossible_time_is_followed_without_its_times(
    key: str,
) -> None:
    times = {"silent_ms": 1, "election_ms": 1, "leading_ms": 1, "stood_because": "NO_HEARTBEAT"}
    told = replace(leader_view("n0", 7, "n0"), **times | {key: 10**16})
    polled = Polled()
    polled.polls = LeaderPolls(Saying(told), Random(1), polled.on_change)
    polled.polls.sync([pod(0, ip="10.0.0.1")])

    await polled.until(partial(has_term, 7))

    (seen,) = polled.polls.observations()
    assert (seen.answers, seen.master, seen.victory) == (True, True, None)
    history = LeaderHistory([LeaderChange(
        from_member="", to_member="n1", term=6, reason="FirstLeader", at=NOW
    )])  # fmt: skip
    history.proven(1.0, NOW, Leader(term=7, member_id="n0"), seen.victory)
    assert history.leader == Leader(term=7, member_id="n0")
    await polled.polls.stop()
