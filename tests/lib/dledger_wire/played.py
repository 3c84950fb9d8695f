"""A server in this process, whose peers and clients a test plays.

The server is n0 of the group g with n1 and n2. No port is opened.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from dledger_formats.protocol import frames, requests
from dledger_formats.settings import NodeSettings
from dledger_node.config import raft_config
from dledger_node.raft.core import Raft
from dledger_node.raft.log_terms import LogTerms
from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import (
    AppendRequest,
    PreVoteResponse,
    PushResponse,
    PushResult,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.ready import HardState
from dledger_node.shell.server import DLedgerServer
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.group_file import FolderOwner, GroupFile

SEGMENT_BYTES = 1 << 18


class Client:
    """A client's connection that keeps the answers."""

    def __init__(self) -> None:
        self.address = "198.18.0.1"
        self.answers: list[requests.AppendEntryResponse] = []
        self.writes = 0
        self.unread_since_s: float | None = None
        self.reads_waiting = 0

    def go_on(self) -> None:
        """Do nothing: no request was postponed."""

    def send(self, data: bytes) -> None:
        """Keep the answers."""
        self.writes += 1
        for command in frames.FrameDecoder().feed(data):
            self.answers.append(requests.AppendEntryResponse.from_json(command.body))


def open_store(folder: Path) -> LogStore:
    """Open a store with small segments."""
    return LogStore.open(
        folder, segment_size_bytes=SEGMENT_BYTES, index_segment_size_bytes=SEGMENT_BYTES
    )


def make_server(
    folder: Path,
    save_hard_state: Callable[[HardState], None] = lambda _: None,
    pending_requests_max: int = 1000,
) -> tuple[DLedgerServer, Raft]:
    """Build the server and its core."""
    peers = dict.fromkeys(("n0", "n1", "n2"), "127.0.0.1:1")
    settings = NodeSettings(
        group="g",
        self_id="n0",
        peers=peers,
        store_base_dir=str(folder),
        segment_size_bytes=SEGMENT_BYTES,
        index_segment_size_bytes=SEGMENT_BYTES,
        pending_requests_max=pending_requests_max,
    )
    core = Raft(
        raft_config(settings),
        HardState(term=0, vote_for=None),
        LogTerms(),
        committed_index=-1,
        incarnation=1,
        randint=lambda low, _: low,
    )
    server = DLedgerServer(
        settings,
        core,
        open_store(folder / "n0"),
        save_hard_state=save_hard_state,
        group_file=GroupFile(folder, FolderOwner(group="g")),
        version="test",
        uniform=lambda low, _: low,
    )
    return server, core


async def saved(server: DLedgerServer) -> None:
    """Wait until the work of the core does not wait for term and vote to be saved."""
    core_loop = server._core_loop
    while core_loop.saving is not None and not server.fatal.done():  # noqa: ASYNC110 - it polls a thread
        await asyncio.sleep(0.001)


async def elect(server: DLedgerServer, core: Raft) -> None:
    """Let n0 win the first election, with the vote of n1."""
    while core.role is Role.FOLLOWER:
        core.tick()
    promise = PreVoteResponse(
        sender="n1", receiver="n0", term=0, requested_term=0, result=VoteResult.ACCEPT
    )
    server.clients.peers.receive(promise)
    await saved(server)
    vote = VoteResponse(
        sender="n1", receiver="n0", term=1, requested_term=1, result=VoteResult.ACCEPT
    )
    server.clients.peers.receive(vote)
    assert core.leader_id == "n0"


def push_of_another_leader(folder: Path, bodies: Sequence[bytes]) -> AppendRequest:
    """Return a push of n1, the leader of term 2, with other entries, all committed."""
    other = open_store(folder / "n1")
    other.append_noop(2)
    _, last_index = other.append_bodies(bodies, 2)
    views, _ = other.read_range(0, last_index, 1 << 20)
    entries = memoryview(b"".join(views))
    other.close()
    return AppendRequest(
        sender="n1",
        receiver="n0",
        term=2,
        previous_index=-1,
        previous_term=-1,
        first_index=0,
        last_index=last_index,
        entries_term=2,
        committed_index=last_index,
        entries=entries,
    )


def confirmed(peer_id: str, match_index: int, *, probe: int | None = None) -> PushResponse:
    """Return a peer's confirmation that it holds the log of term 1 up to an index."""
    return PushResponse(
        sender=peer_id, receiver="n0", term=1, requested_term=1, result=PushResult.SUCCESS,
        match_index=match_index, ledger_end_index=match_index, probe=probe,
    )  # fmt: skip


async def become_master(server: DLedgerServer, core: Raft) -> None:
    """Win the first election and have the first entry of the term confirmed."""
    await elect(server, core)
    server.clients.peers.receive(confirmed("n1", -1, probe=1))
    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, 0))
    assert core.master
