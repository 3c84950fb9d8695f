"""The page of stored bytes: which failures of a member are final for the peer that asks."""

import asyncio
import errno
import os
from typing import Any, cast

import pytest
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry

from dledger_formats.http.status import DAMAGE_HEADER
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.healing.http_peer import HttpPeer
from dledger_node.http import file_answers, pages

NAME = "0" * 20


class Failing:
    """A member whose reads fail with one error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def stored(self, *_: object) -> bytes:
        raise self.error


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def damaged_by(cause: OSError) -> StoreDamagedError:
    error = StoreDamagedError(f"byte 0: 32 bytes cannot be read: {cause}", Damage.UNREADABLE)
    error.__cause__ = cause
    return error


async def told(error: Exception) -> Exception:
    """Return what a peer makes of the answer of a member whose read has failed."""
    source = cast("pages.Source", Failing(error))
    app = pages.application(source, CollectorRegistry())

    def ask(address: str) -> Exception:
        with pytest.raises((OSError, LookupError)) as failure:
            HttpPeer(address).stored(NAME, at=0, size=4)
        return failure.value

    async with TestServer(app) as server:
        return await asyncio.to_thread(ask, f"127.0.0.1:{server.port}")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_a_member_that_is_short_of_something_for_a_moment_is_asked_again(number: int) -> None:
    """A final refusal would make a member leave that no other peer can mend."""
    for error in (os_error(number), damaged_by(os_error(number))):
        failure: Any = await told(error)

        assert not isinstance(failure, LookupError)
        assert os.strerror(number) in str(failure)


@pytest.mark.parametrize(
    ("number", "status"),
    [(errno.EMFILE, 503), (errno.ENFILE, 503), (errno.ENOMEM, 503), (errno.EIO, 500)],
)
def test_an_auditor_is_not_told_of_damage_by_a_member_that_is_short_of_something(
    number: int, status: int
) -> None:
    for error in (os_error(number), damaged_by(os_error(number))):
        answer = file_answers.unreadable(error)

        assert answer.status == status
        assert (DAMAGE_HEADER in answer.headers) == (status == 500)


async def test_bytes_that_the_disk_cannot_read_are_asked_of_another_peer() -> None:
    for error in (os_error(errno.EIO), damaged_by(os_error(errno.EIO))):
        assert isinstance(await told(error), LookupError)
