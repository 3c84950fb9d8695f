"""Blocks of docs that begin with `dledger group local` run as they stand, but for their ports."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_client.sync import BlockingClient
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.log import disk
from dledger_formats.protocol import register
from dledger_group.local_process import LocalGroupProcess
from dledger_logs.write import Entry, Shape, write_log
from tests.client.documented_blocks import RUN_AS_A_LOCAL_GROUP, run_by_tests
from tools.groups.ports import consecutive_ports

pytestmark = pytest.mark.local
BLOCKS = run_by_tests(RUN_AS_A_LOCAL_GROUP)
MEMBERS = 3
ARCHIVE = "/archives/orders"
TOKEN_FILE = "/run/secrets/flights"
VALUES = [(number * 7 % 20, number) for number in range(600)]


def registers_archive(folder: Path) -> Path:
    """Make the archive from which the page about compaction begins a group."""
    entries = [Entry(term=1, body=b"", magic=disk.NOOP)]
    entries += [Entry(term=2, body=register.SET.pack(key, value)) for key, value in VALUES]
    log = write_log(folder / "source", entries, Shape(segment_bytes=8192, index_segment_bytes=3200))
    archive = compacted(copies_of({"n0": log}), folder / "archive", "register")
    assert archive is not None
    return archive.path


def has_the_values(group: LocalGroupProcess) -> None:
    with BlockingClient(group.servers, "local") as client:
        assert {key: client.read_register(key) for key in dict(VALUES)} == dict(VALUES)


def has_removed_a_member(group: LocalGroupProcess) -> None:
    with BlockingClient(group.servers, "local") as client:
        assert client.membership().voters == ("n0", "n1")


def has_a_leader(group: LocalGroupProcess) -> None:
    with BlockingClient(group.servers, "local") as client:
        assert client.bounds().end_index >= 0


JUDGES: dict[str, Callable[[LocalGroupProcess], None]] = {
    "broker.md": has_a_leader,
    "compaction.md": has_the_values,
    "security.md": has_removed_a_member,
}


@pytest.mark.parametrize("page", BLOCKS)
def test_documented_local_groups_run_as_they_stand(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    start, _, rest = BLOCKS[page].partition("\n")
    program, *options = shlex.split(start, comments=True)
    options = [os.path.expanduser(option) for option in options]
    assert (program, options[:2]) == ("dledger", ["group", "local"])
    if ARCHIVE in options:
        options[options.index(ARCHIVE)] = str(registers_archive(tmp_path))
    if "--broker" in options:
        options.append(f"--broker-port={consecutive_ports(1 + MEMBERS)}")
    data = tmp_path / "data"

    with LocalGroupProcess(data, MEMBERS, 0, *options[2:]) as group:
        group.event("leader")
        rest = rest.replace(TOKEN_FILE, str(data / "admin-token"))
        done = subprocess.run(
            ["bash", "-euc", rest.replace("dledger ", f"{sys.executable} -m dledger_client ")],
            env=os.environ
            | {"DLEDGER_CLIENT_SERVERS": ",".join(group.servers), "DLEDGER_CLIENT_GROUP": "local"},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        JUDGES[page](group)
        assert group.stop(signal.SIGINT)[0] == 0
