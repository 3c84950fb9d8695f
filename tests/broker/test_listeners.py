"""A member accepts clients from when it has bound its ports until it stops."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dledger_broker.door.connections.listeners import Listeners
from dledger_broker.settings import BrokerSettings
from dledger_formats.settings import NodeSettings
from tools.groups.ports import free_ports


@pytest.fixture
def listeners(tmp_path: Path) -> Listeners:
    """Listeners of a member that shares a port with others."""
    ports = free_ports()
    node = NodeSettings(
        group="g", self_id="n0", peers={"n0": f"127.0.0.1:{next(ports)}"},
        store_base_dir=str(tmp_path), listen_host="127.0.0.1",
    )  # fmt: skip
    settings = BrokerSettings(
        node=node, addresses={"n0": f"127.0.0.1:{next(ports)}"}, name="b",
        group_address=f"127.0.0.1:{next(ports)}", shares_port=True,
    )  # fmt: skip
    return Listeners(settings, asyncio.Protocol)


class SlowBinding:
    """Binds as the event loop does, and waits then until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.servers: list[asyncio.Server] = []
        self.has_bound, self.may_go_on = asyncio.Event(), asyncio.Event()
        self._create = loop.create_server
        monkeypatch.setattr(type(loop), "create_server", lambda _, *a, **k: self._bind(*a, **k))

    async def _bind(self, *args: Any, **options: Any) -> asyncio.Server:
        self.servers.append(await self._create(*args, **options))
        self.has_bound.set()
        await self.may_go_on.wait()
        return self.servers[-1]


async def test_listeners_are_open_only_once_every_port_is_bound(
    listeners: Listeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    binding = SlowBinding(monkeypatch)
    opening = asyncio.create_task(listeners.open())
    await binding.has_bound.wait()
    was_open = listeners.is_open
    binding.may_go_on.set()
    await opening

    assert (was_open, listeners.is_open) == (False, True)
    listeners.close()
    assert not listeners.is_open


async def test_listeners_that_close_while_they_bind_listen_nowhere(
    listeners: Listeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    binding = SlowBinding(monkeypatch)
    opening = asyncio.create_task(listeners.open())
    await binding.has_bound.wait()
    listeners.close()
    binding.may_go_on.set()
    await opening

    assert not any(server.is_serving() for server in binding.servers)
    assert not listeners.is_open


async def test_a_shared_port_is_not_opened_again_by_a_member_that_closes_meanwhile(
    listeners: Listeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    await listeners.open()
    await listeners.share(is_wanted=False)
    binding = SlowBinding(monkeypatch)
    sharing = asyncio.create_task(listeners.share(is_wanted=True))
    await binding.has_bound.wait()
    listeners.close()
    binding.may_go_on.set()
    await sharing

    assert [server.is_serving() for server in binding.servers] == [False]
