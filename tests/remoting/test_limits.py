"""Limits on connections and bytes: what exceeds one is cut and counted, and all others go on."""

import gc
import logging
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.settings import NodeSettings
from dledger_node.limited_log import LINES_MAX, PERIOD_S
from dledger_node.raft.messages import HeartBeatRequest
from dledger_node.remoting import native
from dledger_node.remoting.held_bytes import SMALL_FRAME_BYTES
from dledger_node.remoting.limits import Limits
from dledger_wire.listener import (
    announced,
    append_request,
    get_request,
    hello,
    listening,
    metadata_request,
    until,
)

KIB = 1024


def settings_with(**fields: int) -> NodeSettings:
    return NodeSettings(
        group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir="/nowhere", **fields
    )  # type: ignore[arg-type]


HEARTBEAT = HeartBeatRequest(sender="n1", receiver="n0", term=1, committed_index=0, round=1)


# Memory.


async def test_a_cut_connection_is_freed_without_the_garbage_collector(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The garbage collector may not run as long as a flood lasts."""
    caplog.set_level(logging.ERROR)  # a record that is kept keeps the connection that it names
    gc.disable()
    try:
        async with listening(first_frame_s=5) as listener:
            caller = await listener.connect()
            await caller.say(announced(100 * KIB) + bytes(50 * KIB))
            await until(lambda: listener.gate.received_bytes > 50 * KIB)
            connection = weakref.ref(listener.gate.everyone()[0])

            listener.pass_time(5)

            assert await caller.is_cut()
            await until(lambda: connection() is None)
    finally:
        gc.enable()


# Numbers of connections.


async def test_one_address_cannot_take_all_connections() -> None:
    async with listening(connections_per_address_max=2) as listener:
        callers = [await listener.connect() for _ in range(3)]
        elsewhere = await listener.connect(local_addr=("127.0.0.2", 0))

        assert [await caller.is_served() for caller in callers] == [True, True, False]
        assert await elsewhere.is_served()
        assert listener.closed == {"connections_per_address": 1}


async def test_addresses_that_take_all_they_can_leave_places_to_others() -> None:
    """Each takes at most three quarters of what the others have left."""
    async with listening(connections_max=16, connections_per_address_max=1000) as listener:
        taken = []
        for host in (1, 2):
            at = (f"127.0.0.{host}", 0)
            callers = [await listener.connect(local_addr=at) for _ in range(16)]
            taken.append(sum([await caller.is_served() for caller in callers]))

        assert taken == [12, 3]
        assert listener.closed.keys() == {"connections_per_address"}
        assert await (await listener.connect(local_addr=("127.0.0.3", 0))).is_served()


async def test_an_address_takes_all_places_that_it_needs_while_most_are_free() -> None:
    async with listening(connections_max=16, connections_per_address_max=12) as listener:
        callers = [await listener.connect() for _ in range(12)]

        assert all([await caller.is_served() for caller in callers])


async def test_connections_above_the_limit_are_refused_until_one_closes() -> None:
    async with listening(connections_max=2) as listener:
        callers = [await listener.connect() for _ in range(3)]
        assert [await caller.is_served() for caller in callers] == [True, True, False]

        callers[0].writer.close()
        await until(lambda: listener.gate.connections == 1)

        assert await (await listener.connect()).is_served()
        assert listener.closed == {"connections": 1}


async def test_a_member_comes_in_when_all_places_are_taken() -> None:
    async with listening(connections_max=1, hello_places=2) as listener:
        await listener.connect()
        waiting = [await listener.connect() for _ in range(5)]
        member = await listener.connect()
        await member.say(hello())
        assert (await member.answer()).remark is None
        await member.say(b"".join(native.encode(HEARTBEAT)))

        await until(lambda: listener.messages == [HEARTBEAT])
        assert [await caller.is_cut() for caller in waiting[:4]] == [True] * 4
        assert listener.closed == {"connections": 4}


async def test_a_refused_hello_does_not_admit_its_sender() -> None:
    async with listening(connections_max=1) as listener:
        await listener.connect()
        stranger = await listener.connect()
        await stranger.say(hello("n9") + metadata_request(2))
        assert (await stranger.answer()).remark == "a stranger"

        assert await stranger.is_cut()


async def test_a_refused_sender_is_told_why_and_its_further_requests_are_dropped() -> None:
    async with listening() as listener:
        stranger = await listener.connect()
        await stranger.say(append_request(1, b"before") + hello("n9") + append_request(2, b"after"))

        answer = await stranger.answer()
        # The first append may be in a turn of its own, before that of the HELLO.
        if listener.appended:
            assert answer.opaque == 1
            answer = await stranger.answer()
        assert answer.remark == "a stranger"
        assert await stranger.is_cut()
        assert [call.body for call in listener.appended] in ([], [b"before"])


async def test_refused_senders_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(connections_per_address_max=1000) as listener:
        for _ in range(50):
            stranger = await listener.connect()
            await stranger.say(hello("n9\nERROR forged", group="g" * 255))
            assert await stranger.answer()
        refused = [record.getMessage() for record in caplog.records]

        assert len(refused) == LINES_MAX
        assert not any("\n" in line for line in refused)
        listener.clock.now_s += PERIOD_S
        await (await listener.connect()).say(hello("n9"))
        await until(lambda: len(caplog.records) > LINES_MAX)
        assert "40 lines of this kind were left out" in caplog.records[-1].getMessage()


async def test_a_new_link_of_a_member_replaces_its_oldest() -> None:
    async with listening(links_per_peer_max=2) as listener:
        links = [await listener.connect() for _ in range(3)]
        for link in links:
            await link.say(hello())
            await link.answer()

        assert await links[0].is_cut()
        assert [await link.is_served() for link in links[1:]] == [True, True]
        assert listener.closed == {"replaced": 1}


async def test_links_of_earlier_incarnations_are_cut() -> None:
    """The member may have confirmed entries that its disk has lost since (`raft.recalling`)."""
    async with listening() as listener:
        earlier, other, later = [await listener.connect() for _ in range(3)]
        for link, greeting in (
            (earlier, hello()),
            (other, hello("n2")),
            (later, hello(incarnation=2)),
        ):
            await link.say(greeting)
            await link.answer()

        assert await earlier.is_cut()
        assert [await link.is_served() for link in (other, later)] == [True, True]
        assert listener.closed == {"replaced": 1}


# What all connections hold.


async def test_the_default_budget_bounds_what_connections_hold() -> None:
    limits = Limits()

    assert limits.client_frame_bytes_max > SMALL_FRAME_BYTES
    assert limits.buffered_bytes_max < 400 * KIB * KIB


@given(memory=st.integers(0, 1 << 45))
def test_what_connections_hold_follows_the_limit_on_memory(memory: int) -> None:
    limits = Limits.of(settings_with(memory_limit_bytes=memory))
    of_all, of_less = (
        limits.unsent_bytes_total_max,
        Limits.of(settings_with(memory_limit_bytes=memory // 2)),
    )

    assert limits.received_bytes_max == of_all
    assert limits.client_frame_bytes_max < of_all <= Limits().unsent_bytes_total_max
    assert of_less.unsent_bytes_total_max <= of_all or memory < 2
    if memory >= 512 << 20:
        assert limits.buffered_bytes_max < memory // 2, "the rest is for all other uses"


# Unread answers.


async def test_a_client_that_reads_no_answers_is_not_served_and_then_cut() -> None:
    async with listening(unsent_bytes_high=64 * KIB, unread_s=30) as listener:
        listener.entry_bytes = 1024 * KIB
        lazy, good = await listener.connect(), await listener.connect()
        lazy.writer.write(b"".join(map(get_request, range(100))))
        await until(lambda: listener.gets > 0 and listener.gate.unsent_bytes > 64 * KIB)
        assert await good.is_served()
        served = listener.gets

        listener.pass_time(30)

        assert listener.gets == served < 50
        assert listener.closed == {"unread": 1}
        assert await good.is_served()
        await until(lambda: listener.gate.unsent_bytes == 0)


async def test_a_slow_reader_gets_every_answer_in_order() -> None:
    async with listening(unsent_bytes_high=64 * KIB) as listener:
        listener.entry_bytes = 512 * KIB
        slow = await listener.connect()
        slow.writer.write(b"".join(map(get_request, range(40))))
        await until(lambda: listener.gate.unsent_bytes > 64 * KIB)
        assert listener.gets < 40

        assert [(await slow.answer()).opaque for _ in range(40)] == list(range(40))
        assert not listener.closed


@pytest.mark.parametrize("limit", ["unsent_bytes_max", "unsent_bytes_total_max"])
async def test_answers_that_wait_are_bounded_for_one_and_for_all(limit: str) -> None:
    async with listening(unsent_bytes_high=KIB, **{limit: 512 * KIB}) as listener:
        listener.entry_bytes = 4096 * KIB
        lazy, good = await listener.connect(), await listener.connect()
        lazy.writer.write(get_request(1))

        await until(lambda: listener.closed == {"unread": 1})
        assert await good.is_served()


# Links.


async def test_a_member_speaks_for_the_id_of_its_hello_alone() -> None:
    async with listening() as listener:
        link = await listener.connect()
        await link.say(hello("n1"))
        await link.answer()
        await link.say(b"".join(native.encode(HEARTBEAT)))
        await until(lambda: len(listener.messages) == 1)

        await link.say(hello("n2"))

        assert await link.is_cut()
        assert [message.sender for message in listener.messages] == ["n1"]
        assert listener.closed == {"protocol": 1}


@pytest.mark.parametrize(
    "greeting",
    [b"[" * 100_000, b'{"group":"g","group":"g"}', b'{"senderId":1}', b"\xff"],
    ids=["depth", "key twice", "type", "bytes"],
)
async def test_an_invalid_hello_closes_the_connection(greeting: bytes) -> None:
    async with listening() as listener:
        caller = await listener.connect()
        frame = RemotingCommand(code=native.HELLO_CODE, opaque=1, body=greeting)
        await caller.say(frames.encode(frame))

        assert await caller.is_cut()
        assert listener.closed == {"protocol": 1}


async def test_requests_before_a_frame_that_is_none_cost_no_turn_more_than_its_slice() -> None:
    """They were all handled at once, 1800 in a turn of 19 ms."""
    async with listening() as listener:
        caller = await listener.connect()
        appends = b"".join(append_request(number, b"x") for number in range(300))
        await caller.say(appends + b"\x7f\xff\xff\xff")

        assert await caller.is_cut()
        assert (listener.appended, listener.closed) == ([], {"protocol": 1})
