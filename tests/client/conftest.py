"""Fake groups for the client."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future

import pytest

from dledger_fake_server.group import Group


@pytest.fixture(autouse=True)
def no_profiles(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the profiles of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))


@pytest.fixture
async def group() -> AsyncIterator[Group]:
    """Three members in the test's own event loop; n0 leads."""
    async with Group() as group:
        yield group


@pytest.fixture
def group_in_thread() -> Iterator[Group]:
    """The same in another thread's event loop, for blocking clients."""
    started: Future[tuple[Group, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        async with Group() as group:
            started.set_result((group, asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    group, loop, stop = started.result()
    yield group
    loop.call_soon_threadsafe(stop.set)
    thread.join()


@pytest.fixture
def group_in_environment(group_in_thread: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment so that `dledger` finds `group_in_thread` without options."""
    monkeypatch.setenv("DLEDGER_CLIENT_SERVERS", ",".join(group_in_thread.servers))
    monkeypatch.setenv("DLEDGER_CLIENT_GROUP", "g0")
