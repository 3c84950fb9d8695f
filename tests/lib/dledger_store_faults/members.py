"""A group whose members run in this process: the node's own shell and store, on real sockets.

Many such groups run side by side on one loop, since they wait more than they work. Only the process
is missing: what would end it is told as `Member.ended_by`.
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
from dledger_group.ports import free_ports
from dledger_node import config, main
from dledger_node.healing.repair import StoreRepair
from dledger_node.shell import lifecycle, server
from dledger_node.shell.lifecycle import Lifecycle
from dledger_node.shell.server import DLedgerServer
from dledger_node.volume import upkeep

WAIT_S: Final = 120.0
"""On a machine that is busy with other things too."""
TICK_MS: Final = 30
MARGIN_BYTES: Final = 1000
"""Durable bytes that a start verifies: so few that damage stays hidden from it."""
POLL_S: Final = 0.05
HOST: Final = ".".join(["127", *(str(SystemRandom().randint(1, 254)) for _ in range(3))])
"""Of this process alone: a port that a member leaves to start again, nobody else takes."""
_new_ports = free_ports()
_used_ports: list[int] = []
"""Of groups that have ended: thousands of them would need more than there are."""


@contextlib.contextmanager
def in_a_hurry() -> Iterator[None]:
    """Let members look after their store more often, and again soon after a fault, tick less often,
    and verify so little at a start that damage stays hidden.
    """
    with contextlib.ExitStack() as undo:
        for where, name, value in (
            (lifecycle, "RETRY_DELAY_MIN_S", 0.05),
            (lifecycle, "RETRY_DELAY_MAX_S", 0.4),
            (upkeep, "INTERVAL_S", 0.2),
            (config, "TICK_MS", TICK_MS),
            (server, "TICK_MS", TICK_MS),
        ):
            undo.enter_context(mock.patch.object(where, name, value))
        yield


class Member:
    """One member; it may be started and stopped again and again."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.folder = main.store_folder(settings)
        self.said = ""
        """Why it was last out of service."""
        self._server: DLedgerServer | None = None
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start it as the program does."""
        assert self._running is None
        self._stopping = asyncio.Event()
        heal = StoreRepair(self.settings, lambda: datetime.now(UTC)).repair

        async def healed(error: Any) -> str:
            obstacle = await heal(error)
            self.said = f"{error}. {obstacle}"
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
                heal=healed,
                stopping=self._stopping,
            ).run()
        )

    async def stop(self) -> None:
        """Stop it in order; what ended it before is raised."""
        self._stopping.set()
        if self._running is not None:
            running, self._running = self._running, None
            await running

    @property
    def ended_by(self) -> BaseException | None:
        """What would have ended its process by now."""
        running = self._running
        return running.exception() if running is not None and running.done() else None

    @property
    def status(self) -> NodeStatus | None:
        """Its view of the group; None while it is out of service."""
        return self._server.status() if self._server is not None else None

    @property
    def is_whole(self) -> bool:
        """Whether it takes part with all that it needs, and nothing is left of what was wrong."""
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
            self.said = f"{error}"
            raise
        finally:
            self._server = None


class LocalMembers:
    """The group `g` of n0, n1 and n2, with n3 that may be added and is never started."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._ports = [_used_ports.pop() if _used_ports else next(_new_ports) for _ in range(7)]
        ports = iter(self._ports)
        addresses = {f"n{number}": f"{HOST}:{next(ports)}" for number in range(4)}
        addable = {"n3": addresses.pop("n3")}
        self.addresses = addresses
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
                    http_port=next(ports),
                    heartbeat_interval_ms=60,
                    election_timeout_ms=300,
                    **settings,
                )
            )
            for self_id in addresses
        }

    async def __aenter__(self) -> Self:
        """Nothing is started yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all."""
        await asyncio.gather(*(member.stop() for member in self.members.values()))
        _used_ports.extend(self._ports)

    def start(self, *self_ids: str) -> None:
        """Start these."""
        for self_id in self_ids:
            self.members[self_id].start()

    @contextlib.asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[DLedgerClient]:
        """One that goes on until it succeeds, as far as the group ever does."""
        servers = list(self.addresses.values())
        timing = Timing(deadline_s=WAIT_S)
        async with DLedgerClient(servers, "g", timing=timing, **options) as client:
            yield client

    async def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """AssertionError with `what`, and with what the members say, when it never comes."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not condition():  # noqa: ASYNC110 - members are looked at, and do not tell
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(f"not within {WAIT_S:g} s: {what} ({self._words()})") from None

    async def wait_until_whole(self, *self_ids: str) -> None:
        """Wait until these are, and hold the same log."""

        def whole_and_level() -> bool:
            views = [self.members[self_id].status for self_id in self_ids]
            ends = {(v.ledger_end_index, v.committed_index, v.durable_index) for v in views if v}
            return len(ends) == 1 and all(self.members[self_id].is_whole for self_id in self_ids)

        await self.wait_until(whole_and_level, f"{', '.join(self_ids)} are whole and level")

    async def let_lead(self, self_id: str) -> None:
        """Hand the leadership over to a member, however often that must be asked for."""

        def leads() -> bool:
            view = self.members[self_id].status
            return view is not None and view.master

        async with self.client() as client, asyncio.timeout(WAIT_S):
            while not leads():
                with contextlib.suppress(ClientError):
                    await client.transfer(self_id, deadline_s=2.0)
                await asyncio.sleep(POLL_S)

    def _words(self) -> str:
        words = []
        for self_id, member in self.members.items():
            view = member.status
            said = f"out of service: {member.said}" if view is None else view.reason or "ready"
            words.append(f"{self_id} {said}")
        return "; ".join(words)
