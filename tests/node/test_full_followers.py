"""A leader with room whose followers are full says DISK_FULL, at once, and loses nothing."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_formats.protocol.codes import DLedgerResponseCode as Code
from dledger_formats.protocol.codes import RequestCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.requests import AppendEntryRequest, AppendEntryResponse
from dledger_group.mounts import volume_of_8_mib
from dledger_group.wire import ask
from dledger_store_files.root import AS_ROOT
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.storage


@pytest.fixture
def group(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members with volumes of 8 MiB."""
    with contextlib.ExitStack() as undo:
        for member in ("n0", "n1", "n2"):
            undo.enter_context(volume_of_8_mib(tmp_path / f"dledger-{member}"))
        yield undo.enter_context(NodeGroup(tmp_path))


class Appender:
    """Appends distinct bodies to a leader, one at a time, and keeps what it was answered."""

    def __init__(self, group: NodeGroup, leader: str) -> None:
        self._group = group
        self._leader = leader
        self.bodies: dict[Code, list[bytes]] = {}
        self.took_s = 0.0
        """How long the last answer took."""

    def append(self, size: int) -> Code:
        """Append a body of this size; return the answer's code."""
        number = sum(map(len, self.bodies.values()))
        body = b"%08d" % number + bytes(size - 8)
        request = AppendEntryRequest(group="g", remote_id=self._leader, body=body)
        command = RemotingCommand(code=RequestCode.APPEND, opaque=1, body=request.to_json())
        began_s = time.monotonic()
        answer = AppendEntryResponse.from_json(ask(self._group, self._leader, command).body)
        self.took_s = time.monotonic() - began_s
        code = Code(answer.code)
        self.bodies.setdefault(code, []).append(body)
        return code

    def until(self, wanted: Code, size: int) -> None:
        """Append until an answer has this code."""
        wait_for(lambda: self.append(size) is wanted, f"an append is answered {wanted.name}")


@AS_ROOT
async def test_appends_are_refused_as_long_as_no_majority_has_room(group: NodeGroup) -> None:
    leader = group.master()
    followers = sorted(set(group.running()) - {leader})
    appender = Appender(group, leader)
    for member in followers:
        folder = group.store_folder(member)
        with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    appender.until(Code.DISK_FULL, 10_000)
    end_index = group.status(leader).ledger_end_index
    refused_s = []
    for _ in range(5):
        assert appender.append(8) is Code.DISK_FULL
        refused_s.append(appender.took_s)
    # A timeout makes all five long, a busy machine only some.
    assert min(refused_s) < 1.0, "it is refused before it is written, not after a timeout"

    leading = group.status(leader)
    assert leading.ledger_end_index == end_index
    assert (leading.master, leading.ready) == (True, True), "it serves reads"
    assert [peer.full for peer in leading.followers] == [True, True]
    metrics = group.get(leader, "/metrics")[1]
    assert f'dledger_node_peer_full{{peer="{followers[0]}"}} 1.0'.encode() in metrics
    (group.store_folder(followers[0]) / "filler").unlink()
    appender.until(Code.SUCCESS, 8)

    assert [peer.full for peer in group.status(leader).followers] == [False, True]
    async with DLedgerClient(group.servers, "g") as client:
        bounds = await client.bounds()
        held = {entry.body async for entry in client.get_range(0, bounds.end_index)}
    bodies = appender.bodies
    # Between the news of the room and the next committed entry the cause is not known.
    refused = {Code.DISK_FULL, Code.LEADER_NOT_READY}
    assert set(bodies) <= {Code.SUCCESS, Code.WAIT_QUORUM_ACK_TIMEOUT, *refused}
    assert held.issuperset(bodies[Code.SUCCESS]), "what was acknowledged is there"
    for code in refused & bodies.keys():
        assert held.isdisjoint(bodies[code]), "what was refused never comes back"
