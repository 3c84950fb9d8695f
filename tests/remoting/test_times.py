"""Time limits of a connection, and its end when the member stops."""

from dledger_wire.listener import (
    get_request,
    hello,
    listening,
    metadata_request,
    until,
)

KIB = 1024


def announced(frame_bytes: int) -> bytes:
    """Return the first 8 bytes of a frame of this size."""
    return (frame_bytes - 4).to_bytes(4, "big") + (100).to_bytes(4, "big")


# Time limits.


async def test_a_silent_connection_is_cut_after_the_time_for_the_first_frame() -> None:
    async with listening(first_frame_s=5) as listener:
        silent, talking = await listener.connect(), await listener.connect()
        assert await talking.is_served()

        listener.pass_time(5)

        assert await silent.is_cut()
        assert await talking.is_served()
        assert listener.closed == {"first_frame": 1}


async def test_more_bytes_do_not_prolong_the_time_of_a_frame() -> None:
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


async def test_every_frame_has_the_full_time() -> None:
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


async def test_a_stranger_that_does_not_read_its_refusal_is_cut() -> None:
    async with listening(unsent_bytes_high=12 * KIB * KIB, first_frame_s=5) as listener:
        listener.entry_bytes = 4096 * KIB
        stranger, good = await listener.connect(limit=KIB), await listener.connect()
        await stranger.say(get_request(1))
        await until(lambda: listener.gate.unsent_bytes > 0)
        await stranger.say(hello(group="another"))
        held = listener.gate.connections
        assert await good.is_served()

        listener.pass_time(5)

        await until(lambda: listener.gate.connections < held)
        assert await good.is_served()
        assert "link_refused" in listener.closed


async def test_a_member_that_was_held_up_cuts_no_connection_for_it() -> None:
    async with listening(first_frame_s=5) as listener:
        caller = await listener.connect()

        listener.clock.now_s += 60
        list(listener.gate.sweep())

        assert await caller.is_served()
        listener.clock.now_s += 1
        list(listener.gate.sweep())
        assert not listener.closed


# Stopping.


async def test_a_stopping_member_closes_old_and_new_connections() -> None:
    """A connection may be accepted just before the listener closes."""
    async with listening() as listener:
        early = await listener.connect()
        assert await early.is_served()

        listener.gate.close()
        late = await listener.connect()

        assert await early.is_cut()
        assert await late.is_cut()
        assert not listener.closed, "a stop is not a limit"


async def test_a_stopping_member_drops_requests_that_wait_for_an_answer() -> None:
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
