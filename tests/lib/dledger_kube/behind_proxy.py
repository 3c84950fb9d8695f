"""Pytest fixtures of an operator that reaches a real API server through a faulty proxy.

A module names this one in `pytest_plugins`, after `api_server.fixtures`. Members are faked.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_server.client import ApiServer
from dledger_kube.faulty_proxy import FaultyProxy, faulty_proxy
from dledger_kube.operated import operated
from dledger_kube.played import Cluster


@pytest.fixture
async def proxy(api_server: ApiServer) -> AsyncIterator[FaultyProxy]:
    """The proxy; it passes on until a test injects a fault."""
    async with faulty_proxy(api_server) as started:
        yield started


@pytest.fixture
async def cluster(
    api_server: ApiServer, proxy: FaultyProxy, tmp_path: Path
) -> AsyncIterator[Cluster]:
    """A namespace with an operator behind the proxy, and three fake members."""
    async with operated(api_server, tmp_path, members=3, through=proxy) as parts:
        yield Cluster(*parts)
