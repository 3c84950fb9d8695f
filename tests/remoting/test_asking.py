"""METADATA requests to members without a link."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from dledger_formats.net.exchange import ANSWER_BYTES_MAX
from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.requests import MetadataRequest, MetadataResponse
from dledger_node.remoting.asking import ask_all

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ANSWER = MetadataResponse(group="g", local_id="n1", leader_id="n2", term=7, joining=True)
TIMEOUT_S = 20.0


@asynccontextmanager
async def listening(answer: bytes, asked: list[MetadataRequest]) -> AsyncIterator[tuple[str, int]]:
    """A member that answers every request with these bytes, and then closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = frames.FrameDecoder()
        while data := await reader.read(4096):
            for command in decoder.feed(data):
                asked.append(MetadataRequest.from_json(command.body))
                writer.write(answer)
                await writer.drain()
                writer.close()
                return

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()


def framed(answer: MetadataResponse) -> bytes:
    return frames.encode_responses([(1, answer.to_json())])


async def test_an_answer_says_who_leads_and_whether_its_sender_joins() -> None:
    asked: list[MetadataRequest] = []
    async with listening(framed(ANSWER), asked) as address:
        answers = await ask_all({"n1": address}, "g", TIMEOUT_S)

    assert answers == {"n1": ANSWER}
    assert (asked[0].group, asked[0].remote_id) == ("g", "n1")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        frames.encode_responses([(1, b"no json")]),
        frames.encode_responses([(1, b"")], code=1),
        frames.encode_responses([(1, bytes(ANSWER_BYTES_MAX))]),
        framed(MetadataResponse(code=DLedgerResponseCode.UNKNOWN_MEMBER)),
    ],
    ids=["nothing", "no frame", "no JSON", "a system error", "too much", "a refusal"],
)
async def test_a_member_with_a_useless_answer_is_left_out(answer: bytes) -> None:
    async with listening(answer, []) as bad, listening(framed(ANSWER), []) as good:
        answers = await ask_all({"n1": bad, "n2": good}, "g", TIMEOUT_S)

    assert answers == {"n2": ANSWER}


async def test_a_member_that_is_down_or_silent_is_left_out_after_the_timeout() -> None:
    async with listening(b"", []) as gone:
        pass

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        address = server.sockets[0].getsockname()
        assert await ask_all({"n1": gone, "n2": address}, "g", 0.05) == {}


def test_the_answer_of_a_voter_has_no_key_joining() -> None:
    voter = MetadataResponse(group="g", local_id="n1", leader_id="n2", term=7)

    assert b"joining" not in voter.to_json()
