"""The examples of README and docs run as they stand on a local group.

Every block of Python in docs/client.md is run, and in README.md and docs/ every block below a
comment `run …`. `test_documented_commands.py` checks the blocks that need more than that.
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
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group
ROOT = Path(__file__).parents[2]
FENCE = "^{before}```{language}\\n(.*?)^```"


def blocks(path: Path, language: str, before: str = "") -> list[str]:
    """Return the blocks of a language in a page, below the line `before` if there is one."""
    fence = FENCE.format(before=before, language=language)
    return re.findall(fence, path.read_text(), re.MULTILINE | re.DOTALL)


PYTHON = blocks(ROOT / "docs" / "client.md", "python")
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def marked(language: str, where: str) -> dict[str, str]:
    """Return by page the blocks below the comment that says where to run them, in order."""
    before = f"<!-- run {where} -->\n"
    found = {page.name: "".join(blocks(page, language, before)) for page in PAGES}
    return {name: block for name, block in found.items() if block}


SHELL = marked("sh", "on a local group")
STOPPED = marked("sh", "on a stopped member")
MOVING = marked("sh", "between two groups")
COROUTINES = marked("python", "in a coroutine")
PROGRAM = re.compile(r"(?<![\w./-])(\.venv/bin/)?dledger(?= )")
MEMBER_FOLDER = "/data/dledger-n0"


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


@pytest.mark.parametrize("example", PYTHON, ids=range(len(PYTHON)))
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
    example = STOPPED[page].replace(MEMBER_FOLDER, str(tmp_path / "group" / "dledger-n0"))

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
    program = (
        "import asyncio\n\nfrom dledger_client import DLedgerClient\n\n\n"
        "async def main(servers: str, group: str) -> None:\n"
        f"{textwrap.indent(COROUTINES[page], '    ')}    print(appended.index)\n\n\n"
        f"asyncio.run(main({','.join(group.peers.values())!r}, 'g'))\n"
    )

    assert int(run([sys.executable, "-c", program], group)) > 0


def test_there_are_examples() -> None:
    assert len(PYTHON) > 1
    assert all((SHELL, STOPPED, MOVING, COROUTINES))
