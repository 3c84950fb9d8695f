"""Clients above the quota of their address are read more slowly; all others notice nothing."""

import asyncio

import pytest

from dledger_node.remoting.limits import Limits
from dledger_node.remoting.quotas import WAIT_S_MAX, Quotas
from dledger_wire.listener import Clock, hello, listening, metadata_request


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_one_second_s_worth_may_come_at_once(clock: Clock) -> None:
    quotas = Quotas(Limits(client_requests_per_s_max=10), clock)

    assert quotas.use("a", 10, 0) == 0
    assert quotas.use("a", 5, 0) == pytest.approx(0.5)
    assert quotas.use("b", 10, 0) == 0, "each address has its own"


def test_an_address_recovers_with_time(clock: Clock) -> None:
    quotas = Quotas(Limits(client_bytes_per_s_max=1000), clock)
    quotas.use("a", 1, 3000)

    clock.now_s += 2

    assert quotas.use("a", 1, 0) == 0
    assert quotas.use("a", 1, 500) == pytest.approx(0.5)


def test_addresses_with_their_whole_quota_are_forgotten(clock: Clock) -> None:
    quotas = Quotas(Limits(client_requests_per_s_max=10), clock)
    quotas.use("a", 30, 0)
    quotas.use("b", 5, 0)

    clock.now_s += 1
    quotas.forget_unused()

    assert quotas.use("a", 0, 0) == pytest.approx(1.0), "it still has two seconds to go"
    assert len(quotas._used) == 1


def test_no_address_waits_so_long_that_its_connections_are_idle(clock: Clock) -> None:
    quotas = Quotas(Limits(client_bytes_per_s_max=1), clock)

    assert quotas.use("a", 1, 1 << 30) == WAIT_S_MAX
    clock.now_s += WAIT_S_MAX
    assert quotas.use("a", 0, 0) == 0


def test_a_changed_quota_counts_what_was_used_before(clock: Clock) -> None:
    quotas = Quotas(Limits(client_requests_per_s_max=10), clock)
    quotas.use("a", 30, 0)

    quotas.take_limits(Limits(client_bytes_per_s_max=1000))

    assert quotas.use("a", 30, 500) == pytest.approx(2.5)
    quotas.take_limits(Limits())
    assert not quotas.active


async def test_a_new_quota_holds_for_connections_that_are_open() -> None:
    async with listening() as listener:
        caller = await listener.connect()
        await caller.say(metadata_request())
        await caller.answer()
        listener.gate.take_limits(Limits(client_requests_per_s_max=200))
        listener.gate.quotas._now_s = loop_time = asyncio.get_running_loop().time
        begun_s = loop_time()
        for opaque in range(300):
            await caller.say(metadata_request(opaque))
            assert (await caller.answer()).opaque == opaque

        assert loop_time() - begun_s >= 0.4


def test_without_a_setting_there_is_no_quota(clock: Clock) -> None:
    assert not Quotas(Limits(), clock).active


async def test_a_client_above_its_quota_is_answered_later_and_in_order() -> None:
    async with listening(client_requests_per_s_max=200) as listener:
        listener.gate.quotas._now_s = loop_time = asyncio.get_running_loop().time
        caller = await listener.connect()
        begun_s = loop_time()
        for opaque in range(300):
            await caller.say(metadata_request(opaque))
            assert (await caller.answer()).opaque == opaque

        assert loop_time() - begun_s >= 0.4


async def test_a_member_has_no_quota() -> None:
    async with listening(client_requests_per_s_max=1) as listener:
        link = await listener.connect()
        await link.say(hello())
        await link.answer()
        for opaque in range(20):
            await link.say(metadata_request(opaque))

            assert (await link.answer()).opaque == opaque
