"""Pytest fixtures of a namespace and of the operator's client.

A module names this one in `pytest_plugins`, after `api_server.fixtures`.
"""

from collections.abc import AsyncIterator

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import Namespace
from dledger_operator.clients.kubernetes import KubeApi


@pytest.fixture
async def api(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubeApi]:
    """The operator's client of the API server."""
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    opened = KubeApi.open()
    yield opened
    await opened.close()


@pytest.fixture
def namespace(api_server: ApiServer) -> Namespace:
    """A new namespace."""
    return Namespace.make(api_server)
