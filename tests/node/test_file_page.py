"""The page of small files and snapshots, which auditors read."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from dledger_formats.http.served_files import SMALL_FILES, snapshot_file
from dledger_formats.http.status import DAMAGE_HEADER, Manifest, StorageState
from dledger_formats.settings import NodeSettings
from dledger_logs.fronts import retention, snapshots
from dledger_node.http import file_answers, pages
from dledger_node.http.outage import Outage
from dledger_node.store.small_files.served_files import open_served

SETTINGS = NodeSettings.from_environment(
    {
        "DLEDGER_GROUP": "g",
        "DLEDGER_SELF_ID": "n0",
        "DLEDGER_PEERS": "n0-127.0.0.1:1",
        "DLEDGER_STORE_BASE_DIR": "/nowhere",
    }
)
CONTENT = bytes(range(256)) * 4000
"""Almost four chunks."""


class Serving(Outage):
    """A member that serves the files of a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(SETTINGS, "1", state=StorageState.SOUND, reason="")
        self.folder = folder

    def open_file(self, name: str) -> BinaryIO:
        return open_served(self.folder, name)


class Listing(Serving):
    """A member that says that it has the snapshot of entry 7."""

    async def manifest(self) -> Manifest:
        told = replace(retention([]), snapshots=snapshots(7))
        return replace(await super().manifest(), retention=told)


class Removing(Serving):
    """A member that removes each file just after it was opened."""

    def open_file(self, name: str) -> BinaryIO:
        file = super().open_file(name)
        (self.folder / name).unlink()
        return file


class Slow(Serving):
    """A member whose disk opens a file only when it may."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.opens, self.may_open = threading.Event(), threading.Event()

    def open_file(self, name: str) -> BinaryIO:
        self.opens.set()
        self.may_open.wait()
        return super().open_file(name)


class Broken(Serving):
    """A member whose disk cannot open any file."""

    def open_file(self, name: str) -> BinaryIO:
        raise OSError(5, "Input/output error")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (*SMALL_FILES, *(snapshot_file(0, each) for each in ("data", "snapshot_meta"))):
        path = tmp_path / "store" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() + CONTENT)
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "store" / "group").write_bytes(b"group")
    return tmp_path / "store"


async def answer(
    member: Outage, name: str, range_: str | None = None
) -> tuple[int, str | None, bytes]:
    app = pages.application(member, CollectorRegistry())
    async with TestClient(TestServer(app)) as client:
        headers = {"Range": range_} if range_ else {}
        async with client.get(f"/files/{name}", headers=headers) as response:
            return response.status, response.headers.get(DAMAGE_HEADER), await response.read()


@pytest.mark.parametrize(
    "name", [*SMALL_FILES, "snapshot/snapshot_0/data", "snapshot/snapshot_0/snapshot_meta"]
)
async def test_a_file_is_served_as_it_is(folder: Path, name: str) -> None:
    assert await answer(Serving(folder), name) == (200, None, name.encode() + CONTENT)


@pytest.mark.parametrize(("first", "last"), [(0, 0), (17, 300_000), (262_143, 262_144)])
async def test_a_range_of_a_file_is_served(folder: Path, first: int, last: int) -> None:
    whole = b"currterm" + CONTENT

    found = await answer(Serving(folder), "currterm", f"bytes={first}-{last}")

    assert found == (206, None, whole[first : last + 1])


async def test_a_range_behind_the_end_cannot_be_satisfied(folder: Path) -> None:
    assert (await answer(Serving(folder), "currterm", "bytes=9000000-"))[0] == 416


@pytest.mark.parametrize(
    "name",
    [
        "snapshot/snapshot_7/data", "group", "../secret", "..%2Fsecret", "snapshot%2F..%2Fgroup",
        "snapshot/snapshot_0/../../group", "snapshot/snapshot_00/data", "currterm/", "",
        "snapshot/tmp/data",
    ],
)  # fmt: skip
async def test_other_files_are_not_found(folder: Path, name: str) -> None:
    assert (await answer(Serving(folder), name))[:2] == (404, None)


async def test_a_file_that_the_disk_cannot_read_is_damage_with_the_reason(folder: Path) -> None:
    status, damage, body = await answer(Broken(folder), "checkpoint")

    assert (status, damage) == (500, "unreadable")
    assert b"Input/output" in body


async def test_a_member_out_of_service_serves_no_file(folder: Path) -> None:
    outage = Outage(SETTINGS, "1", state=StorageState.DAMAGED, reason="its log is damaged")

    assert (await answer(outage, "checkpoint"))[0] == 404


async def test_a_snapshot_that_is_listed_and_not_on_the_disk_is_damage(folder: Path) -> None:
    for name in ("data", "snapshot_meta"):
        found = await answer(Listing(folder), snapshot_file(7, name))

        assert found[:2] == (500, "unreadable"), name
    assert (await answer(Listing(folder), snapshot_file(8, "data")))[:2] == (404, None)


async def test_a_file_that_is_removed_meanwhile_is_sent_to_its_end(folder: Path) -> None:
    assert await answer(Removing(folder), "currterm") == (200, None, b"currterm" + CONTENT)


async def test_a_removed_file_is_not_held_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_answers, "REMOVED_S_MAX", 0.0)

    with pytest.raises(aiohttp.ClientPayloadError):
        await answer(Removing(folder), "currterm")


@pytest.mark.parametrize("bound", ["FILES_MAX", "FILES_PER_ADDRESS_MAX"])
async def test_more_files_than_may_be_open_are_refused_until_one_is_sent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(pages, bound, 1)
    member = Slow(folder)
    app = pages.application(member, CollectorRegistry())
    async with TestClient(TestServer(app)) as client:
        first = asyncio.ensure_future(client.get("/files/currterm"))
        await asyncio.to_thread(member.opens.wait)
        async with client.get("/files/checkpoint") as refused:
            assert refused.status == 503
            assert (
                "1 requests for files are answered, 1 of them from 127.0.0.1"
                in await refused.text()
            )
        member.may_open.set()
        async with await first as sent:
            assert await sent.read() == b"currterm" + CONTENT
        async with client.get("/files/checkpoint") as later:
            assert later.status == 200


def test_an_open_file_stays_readable_when_it_is_replaced(folder: Path) -> None:
    with open_served(folder, "checkpoint") as file:
        (folder / "new").write_bytes(b"another")
        (folder / "new").replace(folder / "checkpoint")

        assert file.read() == b"checkpoint" + CONTENT
