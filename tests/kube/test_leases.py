"""Leases: at most one holder at any moment, whatever fails, and soon another one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest

from dledger_kube.lease_store import LeaseStore
from dledger_operator.behaviors.leases.duties import (
    NAMESPACE_TERMS,
    REPLICA_TERMS,
    Duties,
    Duty,
)
from dledger_operator.behaviors.leases.lease_keeper import LeaseKeeper
from dledger_operator.behaviors.leases.lease_turn import DURATION_S_MAX, LeaseTerms
from dledger_operator.clients.errors import UnavailableError
from dledger_operator.config import LeaseNames

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def no_delay() -> None:
    """Let a request, or its answer, arrive at once."""


class FaultyStore(LeaseStore):
    """Leases of which `fault` says what happens to the next request: `lost` before the server has
    it, `unanswered` after the server did it, `odd` for an answer that nobody expects. `delay` is
    awaited while a request is on its way to the server, and again for its answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fault: Callable[[], str] = lambda: ""
        self.delay: Callable[[], Awaitable[None]] = no_delay

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        fault = self.fault()
        if fault == "lost":
            raise UnavailableError("no answer")
        if fault == "odd":
            raise ValueError("no Lease is in this answer")
        await self.delay()
        yield
        await self.delay()
        if fault:
            raise UnavailableError("no answer")


class Replica:
    """A keeper with a clock of its own that a test moves."""

    def __init__(
        self, store: FaultyStore, holder: str, now_s: float, terms: LeaseTerms = REPLICA_TERMS
    ) -> None:
        self.now_s = now_s
        self.changes: list[bool] = []
        self.keeper = LeaseKeeper(
            store,
            namespace="system",
            name="operator",
            holder=holder,
            terms=terms,
            clock=lambda: self.now_s,
            now=lambda: NOW,
            on_change=lambda: self.changes.append(self.keeper.held),
        )


async def test_the_first_one_holds_and_the_second_waits() -> None:
    store = FaultyStore()
    first, second = Replica(store, "a", 0.0), Replica(store, "b", 1e6)

    await first.keeper.turn()
    await second.keeper.turn()

    assert (first.keeper.held, second.keeper.held) == (True, False)
    assert second.keeper.other == "a"


async def test_a_dead_holders_lease_is_taken_within_five_seconds() -> None:
    """The worst moment: the holder renews right after the other one has looked, and dies."""
    store = FaultyStore()
    first, second = Replica(store, "a", 0.0), Replica(store, "b", 0.0)
    await first.keeper.turn()
    pause_s = await second.keeper.turn()
    await first.keeper.turn()

    while not second.keeper.held:
        second.now_s += pause_s
        pause_s = await second.keeper.turn()

    assert second.now_s < 5.0
    first.now_s = second.now_s
    assert not first.keeper.held


async def test_a_lease_that_was_renewed_during_a_slow_get_is_not_taken_too_early() -> None:
    """The second one counted from the beginning of its GET, which was before the renewal's."""
    store = FaultyStore()
    first, second = Replica(store, "a", 0.0), Replica(store, "b", 0.0)
    await first.keeper.turn()

    async def renewal() -> None:
        store.delay = no_delay
        first.now_s = second.now_s = 1.5
        await first.keeper.turn()

    store.delay = renewal
    await second.keeper.turn()
    first.now_s = second.now_s = REPLICA_TERMS.duration_s
    await second.keeper.turn()

    assert (first.keeper.held, second.keeper.held) == (True, False)


async def test_a_holder_counts_from_before_a_slow_renewal() -> None:
    """Others may have seen the renewal long before the holder has its answer."""
    store = FaultyStore()
    first = Replica(store, "a", 0.0)
    await first.keeper.turn()

    async def slow() -> None:
        first.now_s += 0.7

    store.delay = slow
    await first.keeper.turn()
    assert first.keeper.held
    first.now_s = REPLICA_TERMS.hold_s

    assert not first.keeper.held


async def test_an_outage_of_the_server_does_not_count_as_silence_of_the_holder() -> None:
    """Nobody can renew a Lease meanwhile: a second release took a namespace from the first."""
    store = FaultyStore()
    first = Replica(store, "release-a", 0.0, NAMESPACE_TERMS)
    second = Replica(store, "release-b", 0.0, NAMESPACE_TERMS)
    await first.keeper.turn()
    await second.keeper.turn()
    store.fault = lambda: "lost"
    for _ in range(100):
        second.now_s += NAMESPACE_TERMS.look_s
        await second.keeper.turn()
    store.fault = lambda: ""

    assert second.now_s > NAMESPACE_TERMS.duration_s
    await second.keeper.turn()
    assert second.keeper.other == "release-a"
    while not second.keeper.held:
        second.now_s += NAMESPACE_TERMS.look_s
        await second.keeper.turn()
    answered_s = second.now_s - 100 * NAMESPACE_TERMS.look_s
    assert NAMESPACE_TERMS.duration_s <= answered_s <= 1.1 * NAMESPACE_TERMS.duration_s


async def test_a_dead_holders_lease_is_taken_although_some_reads_fail() -> None:
    """Only the time around them does not count: otherwise, nobody would ever take it."""
    store, random = FaultyStore(), Random(1)
    first, second = Replica(store, "a", 0.0), Replica(store, "b", 0.0)
    await first.keeper.turn()
    await second.keeper.turn()
    store.fault = lambda: "lost" if random.random() < 0.3 else ""
    while not second.keeper.held:
        second.now_s += REPLICA_TERMS.look_s
        await second.keeper.turn()

    assert second.now_s < 5 * REPLICA_TERMS.duration_s


async def test_a_lease_that_was_given_up_is_taken_at_once() -> None:
    store = FaultyStore()
    first, second = Replica(store, "a", 0.0), Replica(store, "b", 0.0)
    await first.keeper.turn()
    await second.keeper.turn()

    await first.keeper.give_up()
    await second.keeper.turn()

    assert (first.keeper.held, second.keeper.held) == (False, True)


async def test_a_holder_that_cannot_renew_stops_before_another_one_begins() -> None:
    store = FaultyStore()
    first = Replica(store, "a", 0.0)
    await first.keeper.turn()

    store.fault = lambda: "lost"
    first.now_s = REPLICA_TERMS.hold_s + 0.01
    await first.keeper.turn()

    assert first.changes == [True, False]
    assert REPLICA_TERMS.hold_s < REPLICA_TERMS.duration_s


async def test_a_holder_that_gets_odd_answers_stops_in_time_and_begins_again() -> None:
    """Its task ended, and the process acted on as if it held the Lease."""
    store = FaultyStore()
    first = Replica(store, "a", 0.0)
    await first.keeper.turn()

    store.fault = lambda: "odd"
    first.now_s = REPLICA_TERMS.hold_s + 0.01
    await first.keeper.turn()
    store.fault = lambda: ""
    await first.keeper.turn()

    assert first.changes == [True, False, True]


async def test_the_epoch_tells_whether_another_one_may_have_acted() -> None:
    store = FaultyStore()
    first, second = Replica(store, "a", 0.0), Replica(store, "b", 0.0)
    await first.keeper.turn()
    before = first.keeper.epoch

    first.now_s = 3.5
    await first.keeper.turn()
    assert first.keeper.epoch == before, "nobody took it meanwhile"

    await second.keeper.turn()
    second.now_s = 10.0
    await second.keeper.turn()
    await second.keeper.give_up()
    first.now_s = 11.0
    await first.keeper.turn()  # a conflict: it must be read again
    await first.keeper.turn()
    assert first.keeper.held
    assert first.keeper.epoch != before


async def test_an_absurd_duration_that_somebody_wrote_is_bounded() -> None:
    store = FaultyStore()
    stranger = Replica(store, "x", 0.0, replace(REPLICA_TERMS, duration_s=10**9))
    await stranger.keeper.turn()
    first = Replica(store, "a", 0.0)
    await first.keeper.turn()
    first.now_s = DURATION_S_MAX

    await first.keeper.turn()

    assert first.keeper.held


@pytest.mark.parametrize("seed", range(300))
async def test_never_two_hold_whatever_fails_is_slow_and_stands_still(seed: int) -> None:
    random, store = Random(seed), FaultyStore()
    replicas = [Replica(store, name, random.uniform(0, 1e6)) for name in "abc"]
    faults = random.uniform(0.0, 0.6)
    store.fault = lambda: random.choice(["lost", "unanswered"]) if random.random() < faults else ""
    slowness = random.uniform(0.0, 0.6)
    idle = [*replicas]
    holders: set[int] = set()
    """How many replicas held the Lease at once. A keeper would catch an assertion in its turn."""

    def pass_time() -> None:
        passed_s = random.choice([0.0, 0.1, 0.8, 3.0])
        for each in replicas:
            each.now_s += passed_s

    async def act() -> None:
        awake = idle.pop(random.randrange(len(idle)))
        if random.random() < 0.02:
            await awake.keeper.give_up()
        else:
            await awake.keeper.turn()
        idle.append(awake)
        holders.add(sum(each.keeper.held for each in replicas))

    async def delay() -> None:
        """Let time pass, and other replicas act, while a request or its answer is on its way."""
        while random.random() < slowness:
            pass_time()
            if idle:
                await act()

    store.delay = delay
    for _ in range(300):
        pass_time()
        await act()
    assert holders <= {0, 1}

    store.fault, store.delay = lambda: "", no_delay
    for _ in range(20):
        for each in replicas:
            each.now_s += 0.8
            await each.keeper.turn()
    assert sum(each.keeper.held for each in replicas) == 1


LEASE = LeaseNames(namespace="system", name="operator", replica="operator-1")


async def test_without_leases_this_process_does_everything() -> None:
    duties = Duties(FaultyStore(), None, clock=lambda: 0.0, now=lambda: NOW)

    assert duties.of("air") is Duty.ALL
    assert duties.acts


async def test_a_namespace_is_left_alone_until_its_lease_is_known() -> None:
    duties = Duties(FaultyStore(), LEASE, clock=lambda: 0.0, now=lambda: NOW)
    duties.watch_namespaces({"air"})

    assert duties.of("air") is Duty.NOTHING
    await duties.stop()
