"""The way in from Java DLedger: an export of a group that is written to, and a cut-over."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from tools.groups.java_group import JavaGroup
from tools.groups.node_group import NodeGroup

pytestmark = [pytest.mark.interop, pytest.mark.sampled(1, by="java_store")]

COMMAND = [
    sys.executable, "-c", "import sys; from dledger_client.cli import main; sys.exit(main())",
]  # fmt: skip
TIMING = Timing(deadline_s=90.0, request_timeout_s=10.0)
BODIES = 3000
KILL_AT = 1000


def options(group: JavaGroup | NodeGroup) -> list[str]:
    return [f"--servers={','.join(group.servers)}", "--group=g", "--deadline=90"]


async def write(java: JavaGroup) -> set[bytes]:
    """Append while the leader is killed; return the bodies that were acknowledged."""
    acknowledged: set[bytes] = set()
    bodies = [b"body %d" % n for n in range(BODIES)]
    async with DLedgerClient(java.servers, "g", timing=TIMING) as client:
        async for outcome in client.append_all(bodies, in_flight=16):
            if isinstance(outcome, Acknowledged):
                acknowledged.add(bodies[outcome.number])
            if outcome.number == KILL_AT:
                leader = java.leader()
                java.kill(leader)
                java.start(leader)
    return acknowledged


def client_of(group: JavaGroup | NodeGroup) -> BlockingClient:
    return BlockingClient(",".join(group.servers), "g", timing=TIMING)


def bodies_of(group: JavaGroup | NodeGroup) -> list[bytes]:
    with client_of(group) as client:
        return [entry.body for entry in client.get_range(0) if entry.magic == disk.NORMAL]


def test_a_cut_over_from_java_loses_nothing(
    java_store: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The export follows the group through the death of its leader, until the mark."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    with (
        JavaGroup(tmp_path_factory.mktemp("java"), java_store) as java,
        NodeGroup(tmp_path_factory.mktemp("python"), 1) as python,
    ):
        export = [*COMMAND, "export", "--follow", "--until=cut-over", *options(java), "-"]
        import_ = [*COMMAND, "import", *options(python), "-"]
        with (
            subprocess.Popen(export, stdout=subprocess.PIPE) as exporting,
            subprocess.Popen(import_, stdin=exporting.stdout) as importing,
        ):
            acknowledged = asyncio.run(write(java))
            mark = [*COMMAND, "append", "--at-least-once", "--body=cut-over", *options(java)]
            subprocess.run(mark, check=True, timeout=120)
            assert exporting.wait(timeout=120) == 0
            assert importing.wait(timeout=120) == 0
        left = bodies_of(java)
        found = bodies_of(python)

    assert len(acknowledged) > BODIES - KILL_AT
    assert found == left[: left.index(b"cut-over") + 1]
    assert acknowledged <= set(found)


def test_the_folder_of_a_stopped_java_member_continues_an_export(
    java_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "export"
    (tmp_path / "java").mkdir()
    with JavaGroup(tmp_path / "java", java_store) as java:
        with client_of(java) as client:
            for number in range(50):
                client.append(b"%d" % number)
            subprocess.run([*COMMAND, "export", *options(java), str(file)], check=True, timeout=120)
            for number in range(50, 100):
                client.append(b"%d" % number)
        left = bodies_of(java)
        leader = java.leader()
        for member in java.peers:
            java.stop(member)

    folder = tmp_path / "java" / f"dledger-{leader}"
    export = [*COMMAND, "export", "--folder", str(folder), "--group=g", str(file)]
    subprocess.run(export, check=True, timeout=120)
    with NodeGroup(tmp_path, 1) as python:
        import_ = [*COMMAND, "import", *options(python), str(file)]
        subprocess.run(import_, check=True, timeout=120)

        assert bodies_of(python) == left
