"""Fake members that give prepared answers over real HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from aiohttp import web

from dledger_formats.http.status import LeaderView, NodeStatus
from dledger_kube.objects import leader_view, node_status
from dledger_operator.clients.member_http import MemberHttpClient
from dledger_wire.accepting import close_accepting
from tools.groups.ports import free_ports


class FakeMember:
    """A member with an address of its own, which can stop answering and start again."""

    def __init__(self, member_id: str, ip: str, port: int) -> None:
        self.member_id = member_id
        self.ip = ip
        self.port = port
        self.polls = 0
        self.asked = 0
        """How often this member was asked for its status."""
        self.grows_by = 0
        """How many entries this member commits between two of its statuses."""
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._view = leader_view(member_id, 0)
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._connections: list[web.RequestHandler[web.Request]] = []
        """The connections that were accepted since the member began to listen."""
        self.status: NodeStatus = node_status(member_id)

    async def answer(self) -> None:
        """Start to listen."""
        application = web.Application()
        application.router.add_get("/leader", self._leader)
        application.router.add_get("/status", self._status)
        self._runner = web.AppRunner(application, shutdown_timeout=0.01, handler_cancellation=True)
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._accepted, self.ip, self.port, reuse_address=True
        )

    def _accepted(self) -> asyncio.BaseProtocol:
        assert self._runner is not None
        assert self._runner.server is not None
        self._connections.append(self._runner.server())
        return self._connections[-1]

    @property
    def answers(self) -> bool:
        """Whether the member listens."""
        return self._runner is not None

    async def fall_silent(self) -> None:
        """Stop listening and close all connections, as a killed process does."""
        if self._runner is not None and self._server is not None:
            await close_accepting(self._server)
            await self._runner.cleanup()
            self._runner = self._server = None
            # The runner does not wait until the sockets of its connections are closed.
            while open_ones := [each for each in self._connections if each.transport is not None]:
                for each in open_ones:
                    each.force_close()
                await asyncio.sleep(0)
            self._connections.clear()

    def hang(self) -> None:
        """Answer nothing from now on, but accept connections, as for a process that hangs."""
        self._goes_on.clear()

    def go_on(self) -> None:
        """Answer again, including the requests that arrived meanwhile."""
        self._goes_on.set()

    async def say(
        self, term: int, leader_id: str | None, identity: str = "", **fields: str | int
    ) -> None:
        """Change the term and the leader that this member reports, its group's identity, and other
        fields of `/leader`.
        """
        view = leader_view(self.member_id, term, leader_id)
        self._view = replace(view, group_identity=identity, **fields)  # type: ignore[arg-type]
        self.status = replace(self.status, group_identity=identity)
        async with self._changed:
            self._changed.notify_all()

    async def _leader(self, request: web.Request) -> web.Response:
        self.polls += 1
        since = request.query.get("since")
        wait_s = float(request.query.get("wait", "0s").removesuffix("s"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(lambda: self._view.token != since)
        await self._goes_on.wait()
        return _json(self._view)

    async def _status(self, _: web.Request) -> web.Response:
        self.asked += 1
        await self._goes_on.wait()
        index = self.status.committed_index + self.grows_by
        self.status = replace(self.status, committed_index=index, ledger_end_index=index)
        return _json(self.status)


def _json(value: LeaderView | NodeStatus) -> web.Response:
    return web.Response(body=value.to_json(), content_type="application/json")


@contextlib.asynccontextmanager
async def members(how_many: int) -> AsyncIterator[tuple[list[FakeMember], MemberHttpClient]]:
    """Start members n0, n1, and so on, which listen on one port of different loopback addresses.

    Yields the members and an HTTP client for them.
    """
    started: list[FakeMember] = []
    port = next(free_ports())
    try:
        for ordinal in range(how_many):
            member = FakeMember(f"n{ordinal}", f"127.0.0.{ordinal + 1}", port)
            await member.answer()
            started.append(member)
        client = MemberHttpClient.open(port=port)
        try:
            yield started, client
        finally:
            await client.close()
    finally:
        for member in started:
            await member.fall_silent()
