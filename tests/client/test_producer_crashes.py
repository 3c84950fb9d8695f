"""`dledger append --producer` that crashes at each of its steps: each line is in the log once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from tests.client import crashing_producer
from tests.client.crashing_producer import KILL, POWER_CUT, POWER_CUT_AFTER_NAMES
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group
LINES = 24
IN_FLIGHT = 16


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeGroup]:
    """One member, which `dledger` finds without options."""
    (tmp_path / "group").mkdir()
    with NodeGroup(tmp_path / "group", 1) as group:
        group.master()
        monkeypatch.setenv("DLEDGER_CLIENT_SERVERS", ",".join(group.peers.values()))
        monkeypatch.setenv("DLEDGER_CLIENT_GROUP", "g")
        yield group


def bodies(group: NodeGroup) -> list[bytes]:
    with BlockingClient(",".join(group.peers.values()), "g") as client:
        return [entry.body for entry in client.get_range(0) if entry.magic == disk.NORMAL]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("left", [KILL, POWER_CUT, POWER_CUT_AFTER_NAMES])
def test_lines_are_in_the_log_once_after_a_crash_at_each_step(
    group: NodeGroup, tmp_path: Path, left: str
) -> None:
    """The next run crashes as well, at an earlier step. The third one ends."""
    steps, code = 0, None
    while code is None:
        folder, file = tmp_path / f"folder {steps}", tmp_path / "lines"
        folder.mkdir()
        lines = [f"{steps}: {number}\n" for number in range(LINES)]
        file.write_text("".join(lines))
        arguments = ["--producer=p", f"--in-flight={IN_FLIGHT}", "--quiet", str(file)]
        before = len(bodies(group))

        code = crashing_producer.append(folder, arguments, steps, left)
        crashing_producer.append(folder, arguments, steps // 2, left)
        assert crashing_producer.append(folder, arguments, None) == 0

        found = [f"{body.decode()}\n" for body in bodies(group)[before:]]
        assert sorted(found) == sorted(lines), f"{left} at step {steps}"
        steps += 1
    assert code == 0
    assert steps > 2 * LINES, "every save has several steps"
