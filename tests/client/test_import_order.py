"""`dledger import` keeps the order, whatever the group refuses and whoever leads meanwhile."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dledger_client.cli import main
from dledger_client.cluster.connection import Connection
from dledger_client.errors import RefusedError
from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from dledger_formats.protocol.producers import APPEND_IDEMPOTENT, APPEND_IDEMPOTENT_BATCH
from tests.client.written_exports import entry, write_export
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group
COMMAND = [
    sys.executable, "-c", "import sys; from dledger_client.cli import main; sys.exit(main())",
]  # fmt: skip
BODIES = [b"body %d" % n for n in range(1000)]


def exported(path: Path, bodies: list[bytes]) -> Path:
    return write_export(path, [entry(index, body) for index, body in enumerate(bodies)])


def bodies_of(group: NodeGroup) -> list[bytes]:
    with BlockingClient(",".join(group.peers.values()), "g") as client:
        return [entry.body for entry in client.get_range(0) if entry.magic == disk.NORMAL]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def transfer(group: NodeGroup, client: BlockingClient) -> None:
    wait_for(lambda: has_transferred(group, client), "another member takes over")


def has_transferred(group: NodeGroup, client: BlockingClient) -> bool:
    """Return whether the leadership was transferred: a member may be too far behind to take it."""
    try:
        client.transfer(next(member for member in group.running() if member != group.master()))
    except RefusedError:
        return False
    return True


def kill(group: NodeGroup, _: BlockingClient) -> None:
    master = group.master()
    group.kill(master)
    group.start(master)
    group.wait_until_up(master)


def imported(tmp_path: Path) -> int:
    """Return how many entries the record of the import has."""
    path = tmp_path / "state" / "dledger" / "producers" / "g" / "import.json"
    return int(json.loads(path.read_bytes())["acknowledged"]) if path.exists() else 0


MOVES = (transfer, kill, transfer, kill)


@pytest.mark.parametrize("limit", ["pending_requests_max", "client_pending_appends_max"])
@pytest.mark.parametrize("entries", [10, 100])
def test_an_import_keeps_the_order_in_a_group_that_lets_few_appends_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, entries: int
) -> None:
    """It sends one body per request only until it knows how many may share one."""
    path = exported(tmp_path / "export", BODIES)
    requests: list[int] = []
    send = Connection.send

    def counted(connection: Connection, code: int, *arguments: Any) -> None:
        requests.append(code)
        send(connection, code, *arguments)

    monkeypatch.setattr(Connection, "send", counted)
    with NodeGroup(tmp_path, 1, **{limit: entries}) as group:
        group.master()

        assert main(["import", f"--servers={','.join(group.peers.values())}", "--group=g",
                     str(path)]) == 0  # fmt: skip

        assert bodies_of(group) == BODIES
        singles, batches = map(requests.count, (APPEND_IDEMPOTENT, APPEND_IDEMPOTENT_BATCH))
        assert (len(BODIES) - singles) / batches > entries / 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("count", "settings"),
    [(50_000, {}), (5_000, {"pending_requests_max": 100})],
    ids=["batches", "single appends"],
)
def test_an_import_keeps_the_order_while_the_leadership_moves_again_and_again(
    tmp_path: Path, count: int, settings: dict[str, int]
) -> None:
    """The export comes in pieces, so that the import cannot end before the last move."""
    bodies = [b"body %d" % n for n in range(count)]
    raw = exported(tmp_path / "export", bodies).read_bytes()
    piece_bytes = len(raw) // (len(MOVES) + 1)
    with NodeGroup(tmp_path, **settings) as group:
        servers = ",".join(group.peers.values())
        group.master()
        command = [*COMMAND, "import", f"--servers={servers}", "--group=g", "-"]
        with (
            subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0) as process,
            BlockingClient(servers, "g") as client,
        ):
            assert process.stdin is not None
            for number, move in enumerate(MOVES):
                before = imported(tmp_path)
                process.stdin.write(raw[number * piece_bytes : (number + 1) * piece_bytes])
                wait_for(lambda before=before: imported(tmp_path) > before, "it goes on")
                move(group, client)
            process.stdin.write(raw[len(MOVES) * piece_bytes :])
            process.stdin.close()
            assert process.wait(timeout=120) == 0

        assert group.status(group.master()).term > len(MOVES)
        assert bodies_of(group) == bodies
