"""A group whose members run in this process: the node's own shell and store, on real sockets.

Many such groups run concurrently on one loop, since they mostly wait. An error that would end a
member's process is available as `Member.ended_by`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, Self
from unittest import mock

from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import ClientError
from dledger_formats.http.status import NodeStatus, StorageState
from dledger_formats.settings import GroupState, NodeSettings
from dledger_node import config, main
from dledger_node.healing.repair import StoreRepair
from dledger_node.shell import clock
from dledger_node.shell.lifecycle import Lifecycle
from dledger_node.shell.server import DLedgerServer
from dledger_node.volume import upkeep
from tools.groups.ports import free_ports

WAIT_S: Final = 120.0
"""Enough for a busy machine."""
TICK_MS: Final = 30
MARGIN_BYTES: Final = 1000
"""Durable bytes that a start verifies: so few that damage stays hidden from it."""
POLL_S: Final = 0.05
HOST: Final = ".".join(["127", *(str(SystemRandom().randint(1, 254)) for _ in range(3))])
"""A loopback address of this process only, so that no other process takes the port of a member that
restarts.
"""
_new_ports = free_ports()
_used_ports: list[int] = []
"""Ports of groups that have ended; thousands of groups would need more ports than exist."""


@contextlib.contextmanager
def in_a_hurry() -> Iterator[None]:
    """Shorten the intervals of upkeep and of retries after a fault, and tick less often."""
    with contextlib.ExitStack() as undo:
        for where, name, value in (
            (upkeep, "INTERVAL_S", 0.2),
            (config, "TICK_MS", TICK_MS),
            (clock, "TICK_S", TICK_MS / 1000),
        ):
            undo.enter_context(mock.patch.object(where, name, value))
        yield


class Member:
    """One member; it may be started and stopped repeatedly."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.folder = main.store_folder(settings)
        self.outage = ""
        """Why the member was last out of service."""
        self._server: DLedgerServer | None = None
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the member as the program does."""
        assert self._running is None
        self._stopping = asyncio.Event()
        repair = StoreRepair(self.settings, lambda: datetime.now(UTC)).repair

        async def heal(error: Any) -> str:
            obstacle = await repair(error)
            self.outage = f"{error}. {obstacle}"
            return obstacle

        self._running = asyncio.create_task(
            Lifecycle(
                self.settings,
                version="0",
                open_store=lambda verify_all: main.open_store(
                    self.settings, verify_all=verify_all, margin_bytes=MARGIN_BYTES
                ),
                build_server=lambda opened: main.build_server(self.settings, opened),
                serve=self._serve,
                heal=heal,
                stopping=self._stopping,
                retry_delay_min_s=0.05,
                retry_delay_max_s=0.4,
            ).run()
        )

    async def stop(self) -> None:
        """Stop the member cleanly; raise the error that ended it before, if any."""
        self._stopping.set()
        if self._running is not None:
            running, self._running = self._running, None
            await running

    @property
    def ended_by(self) -> BaseException | None:
        """The error that would have ended the member's process; None if it still runs."""
        running = self._running
        return running.exception() if running is not None and running.done() else None

    @property
    def status(self) -> NodeStatus | None:
        """The member's status; None while it is out of service."""
        return self._server.view.status() if self._server is not None else None

    @property
    def is_healed(self) -> bool:
        """Whether the member is ready, does not join, and has no damaged files."""
        view = self.status
        return (
            view is not None
            and view.ready
            and not view.joining
            and view.storage is StorageState.SOUND
            and not any(self.folder.glob("damaged-*"))
        )

    async def _serve(self, server: DLedgerServer) -> None:
        self._server = server
        try:
            await main.serve_member(self.settings, server, self._stopping)
        except Exception as error:
            self.outage = f"{error}"
            raise
        finally:
            self._server = None


class LocalMembers:
    """The group `g` of n0, n1 and n2; n3 may be added and is never started."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._ports = [_used_ports.pop() if _used_ports else next(_new_ports) for _ in range(7)]
        ports = iter(self._ports)
        addresses = {f"n{number}": f"{HOST}:{next(ports)}" for number in range(4)}
        addable = {"n3": addresses.pop("n3")}
        self.addresses = addresses
        http_ports = {self_id: next(ports) for self_id in addresses}
        http_peers = {self_id: f"{HOST}:{port}" for self_id, port in http_ports.items()}
        self.members = {
            self_id: Member(
                NodeSettings(
                    group="g",
                    self_id=self_id,
                    peers=addresses,
                    addable_peers=addable,
                    initial_group_state=GroupState.NEW,
                    store_base_dir=str(folder),
                    listen_host=HOST,
                    http_port=http_ports[self_id],
                    http_peers=http_peers,
                    heartbeat_interval_ms=60,
                    election_timeout_ms=300,
                    **settings,
                )
            )
            for self_id in addresses
        }

    async def __aenter__(self) -> Self:
        """Start no member yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all members."""
        await asyncio.gather(*(member.stop() for member in self.members.values()))
        _used_ports.extend(self._ports)

    def start(self, *self_ids: str) -> None:
        """Start these members."""
        for self_id in self_ids:
            self.members[self_id].start()

    @contextlib.asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[DLedgerClient]:
        """Open a client that retries until it succeeds."""
        servers = list(self.addresses.values())
        timing = Timing(deadline_s=WAIT_S)
        async with DLedgerClient(servers, "g", timing=timing, **options) as client:
            yield client

    async def wait_until(self, condition: Callable[[], bool], description: str) -> None:
        """Wait for a condition. Raises AssertionError, with the members' reasons, on a timeout."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not condition():  # noqa: ASYNC110 - members do not announce changes
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            message = f"not within {WAIT_S:g} s: {description} ({self._reasons()})"
            raise AssertionError(message) from None

    async def wait_until_healed(self, *self_ids: str) -> None:
        """Wait until these members are healed and hold the same log."""

        def healed_and_level() -> bool:
            views = [self.members[self_id].status for self_id in self_ids]
            ends = {(v.ledger_end_index, v.committed_index, v.durable_index) for v in views if v}
            return len(ends) == 1 and all(self.members[self_id].is_healed for self_id in self_ids)

        await self.wait_until(healed_and_level, f"{', '.join(self_ids)} are healed and level")

    async def let_lead(self, self_id: str) -> None:
        """Transfer the leadership to a member; retry until it leads."""

        def leads() -> bool:
            view = self.members[self_id].status
            return view is not None and view.master

        async with self.client() as client, asyncio.timeout(WAIT_S):
            while not leads():
                with contextlib.suppress(ClientError):
                    await client.transfer(self_id, deadline_s=2.0)
                await asyncio.sleep(POLL_S)

    def _reasons(self) -> str:
        reasons = []
        for self_id, member in self.members.items():
            view = member.status
            reason = f"out of service: {member.outage}" if view is None else view.reason or "ready"
            reasons.append(f"{self_id} {reason}")
        return "; ".join(reasons)
