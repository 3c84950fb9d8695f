"""`dledger health`, `dledger wait` and `dledger status --watch` on a real group."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.cli import main
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeGroup]:
    """Three members, found by the environment."""
    with NodeGroup(tmp_path, 3) as group:
        monkeypatch.setenv("DLEDGER_CLIENT_SERVERS", ",".join(group.peers.values()))
        monkeypatch.setenv("DLEDGER_CLIENT_GROUP", "g")
        pages = [f"127.0.0.1:{port}" for port in group.http_ports.values()]
        monkeypatch.setenv("DLEDGER_CLIENT_HTTP", ",".join(pages))
        yield group


def test_a_group_whose_leader_a_majority_follows_is_healthy(
    group: NodeGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = group.master()

    assert main(["wait", "--all-members", "--max-lag", "0"]) == 0
    assert main(["health", "-o", "json"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert json.loads(last)["leader"] == leader


def test_a_group_of_which_one_member_is_down_is_healthy_unless_all_are_required(
    group: NodeGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    follower = next(member for member in group.peers if member != group.master())
    group.kill(follower)

    assert main(["wait"]) == 0
    assert main(["health", "--all-members"]) == 1
    assert f"127.0.0.1:{group.http_ports[follower]}: Connection refused" in capsys.readouterr().err


def test_a_leader_without_a_majority_is_not_healthy(group: NodeGroup) -> None:
    leader = group.master()
    for member in group.peers:
        if member != leader:
            group.kill(member)

    assert main(["health", "--deadline", "2"]) == 5
    assert main(["wait", "--deadline", "1"]) == 5


def test_a_frozen_leader_is_named_once_another_member_leads(
    group: NodeGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = group.master()
    group.freeze(leader)

    assert main(["wait"]) == 0
    assert main(["health", "--all-members"]) == 1
    printed = capsys.readouterr()
    assert f"127.0.0.1:{group.http_ports[leader]}: no response within 2 s" in printed.err
    assert f"{leader} is the leader" not in printed.out


def test_a_learner_that_is_down_leaves_the_group_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with NodeGroup(tmp_path, 1, addable=1) as group:
        monkeypatch.setenv("DLEDGER_CLIENT_SERVERS", group.peers["n0"])
        monkeypatch.setenv("DLEDGER_CLIENT_GROUP", "g")
        pages = [f"{member}=127.0.0.1:{port}" for member, port in group.http_ports.items()]
        monkeypatch.setenv("DLEDGER_CLIENT_HTTP", ",".join(pages))
        assert main(["wait"]) == 0
        assert main(["member", "add", "n1"]) == 0

        assert main(["health", "--all-members", "--max-lag", "0"]) == 0


def test_a_watched_status_is_printed_again_until_ctrl_c(group: NodeGroup) -> None:
    group.master()
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from dledger_client.cli import main; sys.exit(main())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, "status", "--watch", "0.1"],
        stdout=subprocess.PIPE, text=True, env=dict(os.environ),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        titles = [line for line in process.stdout.readlines(4000) if line.startswith("MEMBER")]
        process.send_signal(signal.SIGINT)
        process.stdout.read()

    assert len(titles) > 1
    assert process.returncode == 130


def test_an_index_past_the_end_is_refused_with_what_the_log_holds(
    group: NodeGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    group.master()
    assert main(["append", "--body", "x"]) == 0
    capsys.readouterr()

    assert main(["get", "999"]) == 4
    assert re.search(r"the log holds the entries 0 to \d+\n", capsys.readouterr().err)
