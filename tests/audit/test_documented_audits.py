"""The commands for audits and archives in README and docs run as they stand, on a group here."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.sync import BlockingClient
from tests.client.documented_blocks import RUN_WITH_SPARK, run_by_tests
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.spark
BLOCKS = run_by_tests(RUN_WITH_SPARK)
INSTALLS = re.compile(r"^.*\bpip install .*$", re.MULTILINE)
AUDIT = re.compile(r"(\.venv/bin/)?dledger-audit\b")
PLACE = re.compile(r"http://(?:orders-n([012]):40912|127\.0\.0\.1:4091([246]))")
SAID = {
    "README.md": ["Sound"],
    "audit.md": ["Sound"],
    "compaction.md": ["compacted up to", "the archive is right"],
}


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    """Members with two segments each, so that there is something to compact."""
    with NodeGroup(tmp_path_factory.mktemp("group")) as group:
        with BlockingClient(",".join(group.peers.values()), "g") as client:
            bodies = [b"key%d=" % (number % 50) + b"x" * 1000 for number in range(1500)]
            outcomes = client.append_batch(bodies, deadline_s=60)
            last = max(each.index for each in outcomes if isinstance(each, Acknowledged))
        for member in group.peers:
            wait_for(
                lambda member=member: group.status(member).committed_index >= last,
                f"{member} knows that all is committed",
            )
        yield group


def here(block: str, group: NodeGroup, folder: Path) -> str:
    """Return a block with the programs, addresses and folders of the test."""

    def place(found: re.Match[str]) -> str:
        number = int(found[1] or int(found[2]) // 2 - 1)
        return f"http://127.0.0.1:{group.http_ports[f'n{number}']}"

    block = PLACE.sub(place, INSTALLS.sub("", block))
    block = block.replace("python -m", f"{sys.executable} -m")
    block = AUDIT.sub(f"{sys.executable} -m dledger_audit", block)
    block = re.sub(r"--group (local|orders)", "--group g", block)
    return re.sub(" /(archives|audits)/", rf" {folder}/\1/", block)


@pytest.mark.parametrize("page", BLOCKS)
def test_documented_audits_run_as_they_stand(page: str, group: NodeGroup, tmp_path: Path) -> None:
    for name in ("archives", "audits"):
        (tmp_path / name).mkdir()
    script = here(BLOCKS[page], group, tmp_path)

    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=400,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in SAID[page]), done.stdout
