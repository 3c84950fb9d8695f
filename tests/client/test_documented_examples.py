"""The examples of README and docs run as they stand on a local group.

Every block of Python in docs/client.md is run, and in README.md and docs/ every block below a
comment `run …`, here or in the other tests that import `documented_blocks`.
"""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.sync import BlockingClient
from tests.client.documented_blocks import (
    ROOT,
    RUN_BETWEEN_TWO_GROUPS,
    RUN_ON_A_LOCAL_GROUP,
    RUN_ON_A_STOPPED_MEMBER,
    RUN_ON_A_SURVIVOR,
    blocks,
    run_by_tests,
)
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group
PYTHON = [block.text for block in blocks("python") if block.page == "docs/client.md"]
SHELL = run_by_tests(RUN_ON_A_LOCAL_GROUP)
STOPPED = run_by_tests(RUN_ON_A_STOPPED_MEMBER)
SURVIVOR = run_by_tests(RUN_ON_A_SURVIVOR)
MOVING = run_by_tests(RUN_BETWEEN_TWO_GROUPS)
COROUTINES = run_by_tests("in a coroutine")
SPARK = [block.text for block in blocks("python") if block.page == "docs/spark.md"]
SPARK_NAMES = """from pyspark.sql import SparkSession

spark: SparkSession
members: str
checkpoint: str

"""
"""What the examples of docs/spark.md take for granted."""
PROGRAM = re.compile(r"(?<![\w./-])(\.venv/bin/)?dledger(?= )")
MEMBER_FOLDER = re.compile("/data/(store/)?dledger-n0")
NOBODY = "n0-127.0.0.1:1;n1-127.0.0.1:1;n2-127.0.0.1:1"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members and two that may be added, all of which run."""
    (tmp_path / "group").mkdir()
    with NodeGroup(tmp_path / "group", 3, addable=2) as group:
        for member in group.addable:
            group.start(member)
        group.master()
        yield group


def run(command: list[str], group: NodeGroup) -> str:
    pages = [f"127.0.0.1:{group.http_ports[member]}" for member in ("n0", "n1", "n2")]
    environment = dict(os.environ) | {
        "DLEDGER_CLIENT_SERVERS": ",".join(group.peers.values()),
        "DLEDGER_CLIENT_GROUP": "g",
        "DLEDGER_CLIENT_HTTP": ",".join(pages),
        "XDG_STATE_HOME": str(group.folder / "state"),
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def for_group(example: str, group: NodeGroup) -> str:
    """Return an example with the addresses and the name of a group of the test."""
    named = example.replace('"local"', '"g"')
    return named.replace("127.0.0.1:40911", ",".join(group.peers.values()))


@pytest.mark.parametrize("example", PYTHON, ids=range(len(PYTHON)))
def test_a_python_example_runs_as_it_stands(example: str, group: NodeGroup) -> None:
    assert run([sys.executable, "-c", for_group(example, group)], group)


def programs() -> dict[str, str]:
    """Return the examples in Python as programs, those of a page that build on each other as one.

    A part of a coroutine gets the coroutine around it.
    """
    return {
        **{f"client.md {number}": example for number, example in enumerate(PYTHON)},
        **{page: in_a_coroutine(page) for page in COROUTINES},
        "spark.md": SPARK_NAMES + "\n".join(SPARK),
    }


def in_a_coroutine(page: str) -> str:
    return (
        "import asyncio\nimport sys\n\nfrom dledger_client import DLedgerClient\n\n\n"
        "async def main(servers: str, group: str) -> None:\n"
        f"{textwrap.indent(COROUTINES[page], '    ')}    print(appended.index)\n\n\n"
        "asyncio.run(main(sys.argv[1], sys.argv[2]))\n"
    )


@pytest.mark.parametrize("example", programs().values(), ids=programs())
def test_a_python_example_passes_mypy_strict(example: str, tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(example)

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(path)],
        capture_output=True, text=True, cwd=ROOT, timeout=300, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout


def run_in_shell(example: str, group: NodeGroup, folder: Path) -> str:
    script = PROGRAM.sub(f"{sys.executable} -m dledger_client", example)
    script = script.replace("dledger-node ", f"{sys.executable} -m dledger_node ")
    return run(["bash", "-euo", "pipefail", "-c", f"cd {folder}\n{script}"], group)


@pytest.mark.parametrize("page", SHELL)
def test_shell_examples_run_as_they_stand(page: str, group: NodeGroup, tmp_path: Path) -> None:
    assert run_in_shell(SHELL[page], group, tmp_path)


@pytest.mark.parametrize("page", STOPPED)
def test_shell_examples_run_on_the_folder_of_a_stopped_member(
    page: str, group: NodeGroup, tmp_path: Path
) -> None:
    with BlockingClient(",".join(group.peers.values()), "g") as client:
        client.append_batch([b"entry"] * 200)
    group.stop("n0")
    example = MEMBER_FOLDER.sub(str(tmp_path / "group" / "dledger-n0"), STOPPED[page])

    assert "/data/" not in example
    assert run_in_shell(example, group, tmp_path)


@pytest.mark.parametrize("page", MOVING)
def test_shell_examples_move_entries_to_another_group(
    page: str, group: NodeGroup, tmp_path: Path
) -> None:
    with BlockingClient(",".join(group.peers.values()), "g") as client:
        client.append(b"moved")
    (tmp_path / "new").mkdir()
    with NodeGroup(tmp_path / "new", 1) as new:
        new.master()
        example = MOVING[page].replace("--group orders", "--group g")
        example = example.replace("n0=java-0:20911", group.peers["n0"])
        example = example.replace("orders-nodes:40911", new.peers["n0"])
        run_in_shell(example, group, tmp_path)
        with BlockingClient(new.peers["n0"], "g") as client:
            assert b"moved" in [entry.body for entry in client.get_range(0)]


@pytest.mark.parametrize("page", COROUTINES)
def test_a_part_of_a_coroutine_runs_as_it_stands(page: str, group: NodeGroup) -> None:
    servers = ",".join(group.peers.values())

    assert int(run([sys.executable, "-c", in_a_coroutine(page), servers, "g"], group)) > 0


@pytest.mark.parametrize("page", SURVIVOR)
def test_shell_examples_tell_what_may_be_lost_on_a_survivor(
    page: str, group: NodeGroup, tmp_path: Path
) -> None:
    for member in (*group.peers, *group.addable):
        group.stop(member)
    example = MEMBER_FOLDER.sub(str(tmp_path / "group" / "dledger-n0"), SURVIVOR[page])
    for member, written in (("n0", "n0-a"), ("n1", "n1-b"), ("n2", "n2-c")):
        example = example.replace(f"{written}:40911", f"{member}-{group.peers[member]}")
    example = example.replace("adopt", f"adopt --http-peers '{NOBODY}'")

    output = run_in_shell(f"{example.strip()} 2>&1 || echo exit $?", group, tmp_path)

    assert "What may be lost" in output
    assert "nothing was changed: pass --yes" in output
    assert output.endswith("\nexit 1\n")


def test_there_are_examples() -> None:
    assert len(PYTHON) > 1
    assert all((SHELL, STOPPED, SURVIVOR, MOVING, COROUTINES, SPARK))
