"""Pytest fixtures, for modules that set `pytest_plugins = ["api_server.fixtures"]`.

Do not import this module: pytest warns if a plugin was imported before its registration.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from api_server import programs, server
from api_server.client import ApiServer, Helm, run
from api_server.objects import wait_until_served

CRDS = Path(__file__).resolve().parents[3] / "crds"
FIXTURES = {"api_server", "empty_api_server", "helm"}


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker that `pytest_itemcollected` sets."""
    config.addinivalue_line("markers", "apiserver: needs the programs of the local cluster")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test that uses one of these fixtures, so that `-m apiserver` selects it."""
    if FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker("apiserver")


@pytest.fixture(scope="session")
def kubernetes_programs() -> Path:
    """Folder of kube-apiserver, kubectl, helm and etcd; skips the test if they are not built."""
    try:
        return programs.find()
    except programs.ProgramsMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def helm(kubernetes_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Runs helm without a cluster; raises CommandError if it fails."""
    home = tmp_path_factory.mktemp("helm")
    return lambda *arguments: run([kubernetes_programs / "helm", *arguments], home=home)


@pytest.fixture(scope="session")
def api_server(kubernetes_programs: Path) -> Iterator[ApiServer]:
    """An API server with the project's CRDs, shared by the whole run: use unique names."""
    with server.running(kubernetes_programs) as started:
        started.kubectl("apply", "--server-side", f"--filename={CRDS}")
        wait_until_served(started)
        yield started


@pytest.fixture(scope="module")
def empty_api_server(kubernetes_programs: Path) -> Iterator[ApiServer]:
    """An API server without the CRDs, shared by a module."""
    with server.running(kubernetes_programs) as started:
        yield started
