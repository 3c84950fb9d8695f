"""Connections: batched writes, the order of requests, backpressure and stalls."""

import asyncio

from dledger_client.cluster.addresses import ServerAddress
from dledger_client.cluster.connection import WRITE_BYTES, Connection
from dledger_client.errors import ConnectionLostError
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand, encode_responses
from dledger_formats.protocol.go_away import GO_AWAY_FRAME


class RecordingTransport(asyncio.Transport):
    """A transport that records each write."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[list[RemotingCommand]] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.requests.append(FrameDecoder().feed(data))

    def abort(self) -> None:
        pass


class IgnoringWatcher:
    """A watcher that ignores all events."""

    def connection_lost(self, connection: Connection) -> None:
        pass

    def connection_stalled(self, connection: Connection) -> None:
        pass


class RecordedReply:
    """A reply that records its results."""

    def __init__(self, expires_at_s: float = float("inf"), due_at_s: float = 0.0) -> None:
        self.expires_at_s = expires_at_s
        self.due_at_s = due_at_s
        self.results: list[RemotingCommand | ConnectionLostError] = []
        self.ended = asyncio.Event()

    def answered(self, command: RemotingCommand) -> None:
        self.results.append(command)
        self.ended.set()

    def lost(self, error: ConnectionLostError) -> None:
        self.results.append(error)
        self.ended.set()


def connected() -> tuple[Connection, RecordingTransport]:
    transport = RecordingTransport()
    connection = Connection(ServerAddress(host="h", port=1), IgnoringWatcher(), stall_s=60)
    connection.connection_made(transport)
    return connection, transport


async def test_requests_of_one_loop_turn_share_a_write() -> None:
    connection, transport = connected()
    for number in range(100):
        connection.send(50001, b"%d" % number, RecordedReply())
    assert transport.requests == []
    await asyncio.sleep(0)

    [written] = transport.requests
    assert [command.body for command in written] == [b"%d" % number for number in range(100)]
    connection.connection_lost(None)


async def test_a_full_write_does_not_wait_for_the_turn_to_end() -> None:
    connection, transport = connected()
    for _ in range(5):
        connection.send(50001, bytes(WRITE_BYTES // 2), RecordedReply())

    assert [len(written) for written in transport.requests] == [2, 2]
    connection.connection_lost(None)


async def test_requests_of_different_codes_keep_their_order() -> None:
    connection, transport = connected()
    for code in (50001, 50001, 50002, 50001):
        connection.send(code, b"", RecordedReply())
    await asyncio.sleep(0)

    codes = [command.code for written in transport.requests for command in written]
    assert codes == [50001, 50001, 50002, 50001]
    connection.connection_lost(None)


async def test_responses_in_any_order_are_matched_to_their_requests() -> None:
    connection, transport = connected()
    replies = [RecordedReply() for _ in range(3)]
    for reply in replies:
        connection.send(50001, b"", reply)
    await asyncio.sleep(0)
    opaques = [command.opaque for command in transport.requests[0]]
    answers = [(opaque, b"for %d" % number) for number, opaque in enumerate(opaques)]
    connection.data_received(encode_responses(reversed(answers)))

    bodies = [[answer.body for answer in reply.results if isinstance(answer, RemotingCommand)]
              for reply in replies]  # fmt: skip
    assert bodies == [[b"for 0"], [b"for 1"], [b"for 2"]]
    connection.connection_lost(None)


async def test_a_lost_connection_tells_written_requests_from_unwritten_ones() -> None:
    connection, _ = connected()
    written, kept = RecordedReply(), RecordedReply()
    connection.send(50001, b"", written)
    await asyncio.sleep(0)
    connection.pause_writing()
    connection.send(50001, b"", kept)
    await asyncio.sleep(0)
    connection.connection_lost(None)

    errors = [reply.results[0] for reply in (written, kept)]
    assert [isinstance(e, ConnectionLostError) and e.was_sent for e in errors] == [True, False]
    assert (len(written.results), len(kept.results)) == (1, 1)


async def test_held_requests_are_written_when_the_peer_accepts_data_again() -> None:
    connection, transport = connected()
    connection.pause_writing()
    connection.send(50001, b"kept", RecordedReply())
    await asyncio.sleep(0)
    assert transport.requests == []
    connection.resume_writing()

    assert [command.body for [command] in transport.requests] == [b"kept"]
    connection.connection_lost(None)


async def test_a_request_that_expires_before_it_is_written_counts_as_not_sent() -> None:
    connection, transport = connected()
    connection.pause_writing()
    reply = RecordedReply(expires_at_s=0.0)
    connection.send(50001, b"", reply)
    async with asyncio.timeout(20):
        await reply.ended.wait()
    connection.resume_writing()

    [error] = reply.results
    assert isinstance(error, ConnectionLostError)
    assert not error.was_sent
    assert transport.requests == []
    connection.connection_lost(None)


async def test_what_a_member_that_goes_away_has_not_answered_counts_as_not_sent() -> None:
    connection, transport = connected()
    answered, unread = RecordedReply(), RecordedReply()
    connection.send(50001, b"", answered)
    connection.send(50001, b"", unread)
    await asyncio.sleep(0)
    [first, _] = transport.requests[0]
    connection.data_received(encode_responses([(first.opaque, b"yes")]) + GO_AWAY_FRAME)
    connection.connection_lost(None)

    assert [type(result) for result in answered.results] == [RemotingCommand]
    [error] = unread.results
    assert isinstance(error, ConnectionLostError)
    assert not error.was_sent
