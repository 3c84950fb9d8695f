"""Every limit of the wire: what exceeds it is cut off and counted, and all others go on."""

import gc
import logging
import weakref

import pytest

from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import RemotingCommand
from dledger_node.raft.messages import HeartBeatRequest
from dledger_node.remoting import native
from dledger_node.remoting.limits import SMALL_FRAME_BYTES, Limits
from dledger_wire.listener import (
    append_request,
    get_request,
    hello,
    listening,
    metadata_request,
    until,
)

KIB = 1024
HEARTBEAT = HeartBeatRequest(sender="n1", receiver="n0", term=1, committed_index=0, round=1)


def announced(frame_bytes: int) -> bytes:
    """The first 8 bytes of a frame of this size."""
    return (frame_bytes - 4).to_bytes(4, "big") + (100).to_bytes(4, "big")


# Time.


async def test_who_says_nothing_is_cut_off_after_the_first_frame_s_time() -> None:
    async with listening(first_frame_s=5) as listener:
        silent, talking = await listener.connect(), await listener.connect()
        assert await talking.is_served()

        listener.pass_time(5)

        assert await silent.is_cut()
        assert await talking.is_served()
        assert listener.closed == {"first_frame": 1}


async def test_a_byte_now_and_then_does_not_prolong_a_frame_s_time() -> None:
    async with listening(frame_s=30) as listener:
        slow, good = await listener.connect(), await listener.connect()
        assert await slow.is_served()
        await slow.say(announced(100 * KIB))
        for _ in range(3):
            held_bytes = listener.gate.received_bytes
            await slow.say(b"x")
            await until(lambda before=held_bytes: listener.gate.received_bytes > before)
            assert await good.is_served()
            listener.pass_time(10)

        assert await slow.is_cut()
        assert await good.is_served()
        assert listener.closed == {"frame": 1}


async def test_a_frame_s_time_begins_anew_with_every_frame() -> None:
    async with listening(first_frame_s=100, frame_s=30) as listener:
        steady = await listener.connect()
        request = metadata_request()
        await steady.say(request[:10])
        for _ in range(5):
            listener.pass_time(20)
            await steady.say(request[10:] + request[:10])
            assert (await steady.answer()).is_response

        assert not listener.closed


async def test_an_idle_client_is_closed_and_an_idle_member_is_not() -> None:
    async with listening(idle_s=120) as listener:
        client, member = await listener.connect(), await listener.connect()
        assert await client.is_served()
        await member.say(hello())
        await member.answer()

        listener.pass_time(120)

        assert await client.is_cut()
        assert await member.is_served()
        assert listener.closed == {"idle": 1}


async def test_a_member_that_was_held_up_blames_nobody_for_it() -> None:
    async with listening(first_frame_s=5) as listener:
        caller = await listener.connect()

        listener.clock.now_s += 60
        listener.gate.sweep()

        assert await caller.is_served()
        listener.clock.now_s += 1
        listener.gate.sweep()
        assert not listener.closed


# The end.


async def test_nobody_comes_in_once_the_member_stops() -> None:
    """A connection that was accepted just before would be heard by a member that is no more."""
    async with listening() as listener:
        early = await listener.connect()
        assert await early.is_served()

        listener.gate.close()
        late = await listener.connect()

        assert await early.is_cut()
        assert await late.is_cut()
        assert not listener.closed, "they did nothing wrong"


async def test_what_waits_to_be_answered_is_forgotten_once_the_member_stops() -> None:
    async with listening(unsent_bytes_high=KIB) as listener:
        listener.entry_bytes = 512 * KIB
        caller = await listener.connect()
        await caller.say(b"".join(get_request(number) for number in range(100)))
        await until(lambda: listener.gate.unsent_bytes > KIB)
        gets = listener.gets
        assert gets < 100

        listener.gate.close()
        while await caller.reader.read(1 << 20):
            pass

        assert listener.gets == gets


# Memory.


async def test_what_a_connection_held_is_free_as_soon_as_it_is_cut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not when the collector of cycles comes by: it may not, for as long as a flood lasts."""
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


# Numbers.


async def test_one_address_cannot_take_all_places() -> None:
    async with listening(connections_per_address_max=2) as listener:
        callers = [await listener.connect() for _ in range(3)]
        elsewhere = await listener.connect(local_addr=("127.0.0.2", 0))

        assert [await caller.is_served() for caller in callers] == [True, True, False]
        assert await elsewhere.is_served()
        assert listener.closed == {"connections_per_address": 1}


async def test_more_connections_than_all_places_are_refused_until_one_is_free() -> None:
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


async def test_a_stranger_who_says_hello_gets_no_place_by_it() -> None:
    async with listening(connections_max=1) as listener:
        await listener.connect()
        stranger = await listener.connect()
        await stranger.say(hello("n9") + metadata_request(2))
        assert (await stranger.answer()).remark == "a stranger"

        assert await stranger.is_cut()


async def test_a_member_s_newest_links_stay_and_the_oldest_goes() -> None:
    async with listening(links_per_peer_max=2) as listener:
        links = [await listener.connect() for _ in range(3)]
        for link in links:
            await link.say(hello())
            await link.answer()

        assert await links[0].is_cut()
        assert [await link.is_served() for link in links[1:]] == [True, True]
        assert listener.closed == {"replaced": 1}


async def test_nothing_of_a_member_s_earlier_life_is_heard_after_its_next_has_begun() -> None:
    """It may have confirmed what its disk has forgotten since (`raft.recalling`)."""
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


# Bytes that come.


async def test_a_client_s_frame_is_held_to_its_limit_and_a_member_s_to_a_larger_one() -> None:
    async with listening(
        client_frame_bytes_max=64 * KIB, peer_frame_bytes_max=128 * KIB
    ) as listener:
        client, member = await listener.connect(), await listener.connect()
        await member.say(hello())
        await member.answer()

        await client.say(announced(64 * KIB + 1))
        await member.say(append_request(7, bytes(80 * KIB)))

        assert await client.is_cut()
        assert (await member.answer()).opaque == 7
        await member.say(announced(128 * KIB + 1))
        assert await member.is_cut()
        assert listener.closed == {"protocol": 2}


async def test_unfinished_frames_share_a_budget_and_small_ones_never_wait() -> None:
    budget_bytes = 1024 * KIB
    async with listening(received_bytes_max=budget_bytes, frame_s=30) as listener:
        good = await listener.connect()
        greedy = [await listener.connect() for _ in range(8)]
        for caller in greedy:
            caller.writer.write(announced(4096 * KIB) + bytes(1024 * KIB))
        await until(lambda: listener.gate.received_bytes > budget_bytes)
        for _ in range(20):
            assert await good.is_served()

        read_ahead_bytes = 256 * KIB  # what one read takes, for each of them
        assert listener.gate.received_bytes <= budget_bytes + 8 * read_ahead_bytes
        listener.pass_time(30)
        assert [await caller.is_cut() for caller in greedy] == [True] * 8
        await until(lambda: listener.gate.received_bytes == 0)


async def test_a_large_frame_that_had_to_wait_for_room_is_read_in_the_end() -> None:
    async with listening(received_bytes_max=256 * KIB) as listener:
        greedy, patient = await listener.connect(), await listener.connect()
        await greedy.say(announced(4096 * KIB) + bytes(200 * KIB))
        await until(lambda: listener.gate.received_bytes >= 200 * KIB)
        patient.writer.write(append_request(7, bytes(600 * KIB)))
        await until(lambda: listener.gate.received_bytes > 256 * KIB)
        assert not listener.appended

        greedy.writer.close()

        assert (await patient.answer()).opaque == 7
        assert not listener.closed


async def test_the_default_budget_bounds_what_connections_hold() -> None:
    limits = Limits()

    assert limits.client_frame_bytes_max > SMALL_FRAME_BYTES
    assert limits.buffered_bytes_max < 2 << 30


# Bytes that go.


async def test_who_reads_nothing_is_served_no_further_and_cut_off_in_time() -> None:
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


# Who speaks.


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
async def test_a_hello_that_is_none_closes_the_connection(greeting: bytes) -> None:
    async with listening() as listener:
        caller = await listener.connect()
        frame = RemotingCommand(code=native.HELLO_CODE, opaque=1, body=greeting)
        await caller.say(frames.encode(frame))

        assert await caller.is_cut()
        assert listener.closed == {"protocol": 1}
