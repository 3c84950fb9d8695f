"""Connections of a member that stops: clients get every answer that was written."""

import asyncio
import contextlib
import itertools
import socket
import struct

import pytest

from dledger_formats.protocol import frames, requests
from dledger_formats.protocol.codes import RequestCode
from dledger_formats.protocol.go_away import GO_AWAY, TAKES_GO_AWAY_FLAG
from dledger_node.remoting import lingering
from dledger_node.slices import PER_TURN
from dledger_wire.listener import HOST, Caller, Listener, hello, listening, metadata_request, until

FIRST = frames.encode_requests(
    RequestCode.METADATA,
    [(1, requests.MetadataRequest(group="g", remote_id="n0").to_json())],
    TAKES_GO_AWAY_FLAG,
)
"""The request of a client that understands GO_AWAY."""
MORE = b"".join(metadata_request(opaque) for opaque in range(1000))


async def ended_with_unread_input(listener: Listener, caller: Caller) -> None:
    """Answer a request, and end the connection while more of the client's bytes lie unread."""
    [connection] = listener.gate.everyone()
    connection.send(frames.encode_responses([(7, b"{}")]))  # type: ignore[attr-defined]
    caller.writer.write(MORE)  # the kernel has it at once, and the member reads it in a later turn
    listener.gate.close()


async def test_an_answer_arrives_although_the_member_has_not_read_all_requests() -> None:
    async with listening() as listener:
        caller = await listener.connect()
        await ended_with_unread_input(listener, caller)
        await caller.say(MORE)

        assert (await caller.answer()).opaque == 7
        assert await caller.reader.read() == b"", "no reset, and nothing is answered after the end"


async def test_the_last_frame_says_that_nothing_more_was_read() -> None:
    async with listening() as listener:
        caller = await listener.connect()
        await caller.say(FIRST)
        assert (await caller.answer()).opaque == 1
        await ended_with_unread_input(listener, caller)

        assert (await caller.answer()).opaque == 7
        last = await caller.answer()
        assert (last.code, last.is_response, last.is_oneway) == (GO_AWAY, False, True)
        assert await caller.reader.read() == b""


async def test_a_client_of_an_earlier_release_gets_no_frame_that_it_does_not_know() -> None:
    async with listening() as listener:
        caller = await listener.connect()
        assert await caller.is_served()
        listener.gate.close()

        assert await caller.reader.read() == b""


async def test_a_member_that_drains_reads_only_from_clients_of_earlier_releases() -> None:
    async with listening() as listener:
        early, late = await listener.connect(), await listener.connect()
        assert await early.is_served()
        await late.say(FIRST)
        await late.answer()
        await listener.gate.take_no_more()
        await late.say(MORE)
        assert await early.is_served()
        listener.gate.close()

        assert (await late.answer()).code == GO_AWAY


async def test_a_member_ends_its_connections_a_part_at_a_time_and_handles_nothing_meanwhile() -> (
    None
):
    async with listening(connections_max=10_000, connections_per_address_max=10_000) as listener:
        callers = [await listener.connect() for _ in range(3 * PER_TURN)]
        guests = listener.gate.everyone()
        listener.gate.close()
        ended = [0]
        while ended[-1] < len(guests):
            ended.append(sum(guest._is_ended for guest in guests))  # type: ignore[attr-defined]
            await callers[-1].say(metadata_request(len(ended)))
            await asyncio.sleep(0)

        assert max(after - before for before, after in itertools.pairwise(ended)) == PER_TURN
        assert await callers[-1].reader.read() == b"", "it has sent requests before its end"


async def test_connections_that_their_clients_leave_open_are_cut_a_part_at_a_time() -> None:
    async with listening(connections_max=10_000, connections_per_address_max=10_000) as listener:
        for _ in range(3 * PER_TURN):
            await listener.connect()
        listener.gate.close()
        waiting = asyncio.ensure_future(listener.gate.ended(0.05))
        cut = [0]
        while not waiting.done():
            cut.append(listener.closed.get("stopped", 0))
            await asyncio.sleep(0)

        assert max(after - before for before, after in itertools.pairwise(cut)) == PER_TURN
        assert listener.closed == {"stopped": 3 * PER_TURN}


async def test_the_wait_ends_as_soon_as_all_clients_have_closed() -> None:
    async with listening() as listener:
        callers = [await listener.connect() for _ in range(3)]
        listener.gate.close()
        waiting = asyncio.ensure_future(listener.gate.ended(60))
        for caller in callers:
            assert await caller.reader.read() == b""
            assert not waiting.done()
            caller.writer.close()
        await asyncio.wait_for(waiting, 10)

        assert not listener.closed
    assert listener.gate.connections == 0


async def test_without_connections_there_is_no_wait() -> None:
    async with listening() as listener:
        listener.gate.close()
        await asyncio.wait_for(listener.gate.ended(60), 10)


async def test_a_link_of_a_peer_is_closed_at_once() -> None:
    async with listening() as listener:
        peer = await listener.connect()
        await peer.say(hello())
        await peer.answer()
        listener.gate.close()
        await asyncio.wait_for(listener.gate.ended(60), 10)

        assert await peer.is_cut()


async def test_the_wait_notices_a_connection_that_is_gone_in_the_next_turn() -> None:
    async with listening() as listener:
        peer = await listener.connect()
        await peer.say(hello())
        await peer.answer()
        async with asyncio.timeout(10):
            listener.gate.close()
            await listener.gate.ended(60)


async def test_a_client_that_never_closes_is_cut_after_a_time() -> None:
    async with listening() as listener:
        caller = await listener.connect()
        listener.gate.close()
        await asyncio.wait_for(listener.gate.ended(0.05), 10)

        assert listener.closed == {"stopped": 1}
        await until(lambda: listener.gate.connections == 0)
        assert await caller.is_cut()


async def test_a_client_that_does_not_read_its_answers_is_cut_after_a_time() -> None:
    async with listening() as listener:
        caller = await listener.connect()
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
        [connection] = listener.gate.everyone()
        connection.send(frames.encode_responses([(1, bytes(15 << 20))]))  # type: ignore[attr-defined]
        assert listener.gate.unsent_bytes
        listener.gate.close()
        await asyncio.wait_for(listener.gate.ended(0.05), 10)

        assert listener.closed == {"stopped": 1}
        await until(lambda: listener.gate.unsent_bytes == 0)


async def test_a_client_that_sends_without_end_is_cut_after_a_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lingering, "DISCARDED_BYTES_MAX", 1 << 20)
    async with listening() as listener:
        caller = await listener.connect()
        listener.gate.close()
        waiting = asyncio.ensure_future(listener.gate.ended(60))

        with contextlib.suppress(ConnectionError):
            while not waiting.done():
                await caller.say(MORE)
        await asyncio.wait_for(waiting, 10)


async def test_a_connection_that_is_accepted_after_the_end_is_ended_too() -> None:
    async with listening() as listener:
        listener.gate.close()
        caller = await listener.connect()

        assert await caller.reader.read() == b""


async def test_a_client_that_has_reset_its_connection_holds_up_no_other() -> None:
    async with listening() as listener:
        with socket.create_connection((HOST, listener.port)) as client:
            await until(lambda: listener.gate.connections == 1)
            later = await listener.connect()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        listener.gate.close()  # the member has not noticed the reset yet

        assert await later.reader.read() == b""
        await until(lambda: listener.gate.connections == 1)  # the later client may still close
