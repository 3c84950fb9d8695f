"""`dledger import` keeps the order, whatever the group refuses and whoever leads meanwhile."""

from pathlib import Path

import pytest

from dledger_client.cli import main
from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from tests.client.written_exports import entry, write_export
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group
BODIES = [b"body %d" % n for n in range(1000)]


def exported(path: Path, bodies: list[bytes]) -> Path:
    return write_export(path, [entry(index, body) for index, body in enumerate(bodies)])


def bodies_of(group: NodeGroup) -> list[bytes]:
    with BlockingClient(",".join(group.peers.values()), "g") as client:
        return [entry.body for entry in client.get_range(0) if entry.magic == disk.NORMAL]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("limit", ["pending_requests_max", "client_pending_appends_max"])
@pytest.mark.parametrize("entries", [10, 100])
def test_an_import_keeps_the_order_in_a_group_that_lets_few_appends_wait(
    tmp_path: Path, limit: str, entries: int
) -> None:
    path = exported(tmp_path / "export", BODIES)
    with NodeGroup(tmp_path, 1, **{limit: entries}) as group:
        group.master()

        assert main(["import", f"--servers={','.join(group.peers.values())}", "--group=g",
                     str(path)]) == 0  # fmt: skip

        assert bodies_of(group) == BODIES
