"""A member that is out of service lists its files to auditors, and serves what it lists."""

from pathlib import Path
from typing import Any, BinaryIO

import pytest

from dledger_formats.http.status import StorageState
from dledger_formats.settings import NodeSettings
from dledger_node.errors import NotYetCommittedError
from dledger_node.http.outage import Listing, Outage

SETTINGS = NodeSettings.from_environment(
    {
        "DLEDGER_GROUP": "g",
        "DLEDGER_SELF_ID": "n0",
        "DLEDGER_PEERS": "n0-127.0.0.1:1",
        "DLEDGER_STORE_BASE_DIR": "/nowhere",
    }
)
LISTING = Listing(term=3, begin_index=0, committed_index=9, data=[], index=[], life="1")
NAME = "0" * 20


class Files:
    """The files of a log that is not open."""

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        return b"stored"[:size]

    def listing(self) -> Listing:
        return LISTING

    def readable_bytes(self, folder: Any, name: str) -> int | None:
        return 6

    def read_file(self, folder: Any, name: str, start: int, end: int) -> bytes:
        return b"stored"[start:end]

    def open_file(self, name: str) -> BinaryIO:
        return Path("/dev/null").open("rb")


async def served(state: StorageState) -> tuple[int, int | None]:
    """Return the committed index of the manifest, and the readable bytes of a segment."""
    outage = Outage(SETTINGS, "1", state=state, reason="it is out", closed=Files())
    listed = await outage.manifest()
    return listed.status.committed_index, await outage.readable_bytes("data", NAME)


@pytest.mark.parametrize("state", [StorageState.DAMAGED, StorageState.FAILED, StorageState.FULL])
async def test_what_is_listed_can_be_read(state: StorageState) -> None:
    assert await served(state) == (9, 6)


async def test_nothing_is_listed_or_read_of_a_log_that_is_being_opened() -> None:
    assert await served(StorageState.SOUND) == (-1, None)


def test_a_member_that_closes_its_store_gives_stored_bytes_later() -> None:
    """A final refusal would make a member leave that no other peer can mend."""
    closing = Outage(SETTINGS, "1", state=StorageState.STALLED, reason="its disk hangs")

    with pytest.raises(NotYetCommittedError, match="its disk hangs"):
        closing.stored(NAME, 0, 6)
