"""The page of a segment: what it answers if the file is listed, and cannot be read."""

import logging

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from dledger_formats.http.status import DAMAGE_HEADER, Manifest, StorageState
from dledger_formats.settings import NodeSettings
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.http import pages
from dledger_node.http.outage import Outage
from dledger_node.limited_log import LINES_MAX

NAME = "0" * 20
PATH = f"/segments/data/{NAME}"
SETTINGS = NodeSettings.from_environment(
    {
        "DLEDGER_GROUP": "g",
        "DLEDGER_SELF_ID": "n0",
        "DLEDGER_PEERS": "n0-127.0.0.1:1",
        "DLEDGER_STORE_BASE_DIR": "/nowhere",
    }
)


class Listing(Outage):
    """A member that lists one file, whose bytes from `broken_at` on it cannot read."""

    def __init__(self, error: Exception, *, readable_bytes: int, broken_at: int) -> None:
        super().__init__(SETTINGS, "1", state=StorageState.SOUND, reason="")
        self.error = error
        self.broken_at = broken_at
        self.is_listed = True
        self.readable = readable_bytes

    async def manifest(self) -> Manifest:
        raise AssertionError("a request for a part of one file looks at all of them")

    async def readable_bytes(self, folder: pages.Folder, name: str) -> int | None:
        is_this = (folder, name) == ("data", NAME)
        return self.readable if self.is_listed and is_this else None

    def read_file(self, folder: pages.Folder, name: str, start: int, end: int) -> bytes:
        if end > self.broken_at:
            raise self.error
        return bytes(end - start)


DAMAGED = StoreDamagedError("the file was cut short", Damage.UNREADABLE)
BAD_SECTOR = OSError(5, "Input/output error")


async def answer(
    member: Listing, range_: str | None = "bytes=0-99"
) -> tuple[int, str | None, bytes]:
    app = pages.application(member, CollectorRegistry())
    async with TestClient(TestServer(app)) as client:
        headers = {"Range": range_} if range_ else {}
        async with client.get(PATH, headers=headers) as response:
            return response.status, response.headers.get(DAMAGE_HEADER), await response.read()


@pytest.mark.parametrize(
    ("error", "reason"),
    [(DAMAGED, b"cut short"), (BAD_SECTOR, b"Input/output"), (FileNotFoundError("gone"), b"gone")],
)
async def test_a_listed_file_that_cannot_be_read_is_named_as_damage_with_the_reason(
    error: Exception, reason: bytes
) -> None:
    status, damage, body = await answer(Listing(error, readable_bytes=1000, broken_at=0))

    assert (status, damage) == (500, "unreadable")
    assert reason in body


async def test_a_file_that_is_removed_while_it_is_asked_for_is_not_found() -> None:
    class Removing(Listing):
        def read_file(self, folder: pages.Folder, name: str, start: int, end: int) -> bytes:
            self.is_listed = False
            return super().read_file(folder, name, start, end)

    member = Removing(FileNotFoundError("gone"), readable_bytes=1000, broken_at=0)

    assert (await answer(member))[:2] == (404, None)


async def test_who_asks_for_damaged_bytes_again_and_again_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    member = Listing(BAD_SECTOR, readable_bytes=1000, broken_at=0)
    with caplog.at_level(logging.INFO, "dledger_node"):
        for _ in range(3 * LINES_MAX):
            assert (await answer(member))[0] == 500

    assert len([line for line in caplog.messages if "cannot be sent" in line]) <= LINES_MAX


async def test_bytes_before_the_damage_are_served() -> None:
    member = Listing(BAD_SECTOR, readable_bytes=1000, broken_at=100)

    assert await answer(member) == (206, None, bytes(100))


@pytest.mark.parametrize("range_", ["bytes=0-7", "bytes=0-", "bytes=5-9"])
async def test_a_range_of_an_empty_file_cannot_be_satisfied(range_: str) -> None:
    member = Listing(BAD_SECTOR, readable_bytes=0, broken_at=0)

    assert (await answer(member, range_))[0] == 416


async def test_an_empty_file_is_served_as_a_whole() -> None:
    member = Listing(BAD_SECTOR, readable_bytes=0, broken_at=0)

    assert await answer(member, None) == (200, None, b"")
