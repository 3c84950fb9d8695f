"""Answers that no server should give."""

import asyncio

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.errors import OutcomeUnknownError
from dledger_fake_server.group import Group
from dledger_formats.protocol.codes import SystemCode
from dledger_formats.protocol.frames import RemotingCommand

TEST_S = 10
SUCCESS = SystemCode.SUCCESS
DEEP = b'{"code":200,"other":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def answer(body: bytes) -> RemotingCommand:
    return RemotingCommand(code=SUCCESS, opaque=0, body=body)


@pytest.mark.parametrize(
    "body",
    [
        DEEP, b"", b"{}", b"[]", b'{"code":200}', b'{"code":200,"index":-1,"term":1}',
        b'{"code":200,"index":"7"}', b'{"code":1e400}', b'{"code":[]}', b'{"code":200,"index":5',
        b'{"code":99999999999999999999999999}', b'{"code":200,"index":99999999999999999999}',
        b'{"code":200,"leaderId":"\xff"}', b"\0" * 1000,
    ],
    ids=lambda body: body[:40],
)  # fmt: skip
async def test_an_append_without_a_sound_answer_is_unknown(group: Group, body: bytes) -> None:
    async with asyncio.timeout(TEST_S), DLedgerClient(group.servers, "g0") as client:
        await client.bounds()
        group["n0"].script.append(answer(body))
        with pytest.raises(OutcomeUnknownError):
            await client.append(b"x")


async def test_a_batch_without_a_sound_answer_is_unknown(group: Group) -> None:
    group.enable_batches()
    async with asyncio.timeout(TEST_S), DLedgerClient(group.servers, "g0") as client:
        await client.bounds()
        group["n0"].script.append(answer(b"{}"))
        outcomes = await client.append_batch([b"x", b"y"])

    assert {type(outcome).__name__ for outcome in outcomes} == {"Unknown"}


async def test_a_registration_without_a_producer_is_asked_again(group: Group) -> None:
    group["n0"].registrations.append(answer(b'{"code":200}'))
    async with (
        asyncio.timeout(TEST_S),
        DLedgerClient(group.servers, "g0", idempotent=True) as client,
    ):
        await client.append(b"x")

    assert group.log == [b"x"]
