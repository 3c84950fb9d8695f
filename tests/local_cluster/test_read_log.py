"""Reading a log through `kubectl exec`, which may lose the end of a command's output."""

import stat
import sys
from pathlib import Path

import pytest

from tools.deployment import CommandError, Kubernetes, read_log

PROGRAM = """#!{python}
import json, sys
first, last = (
    int(each.partition("=")[2]) for each in sys.argv if each.startswith(("--first", "--last"))
)
entries = [
    {{"index": index, "body": f"body {{index}}"}} if index % 4 else {{"index": index}}
    for index in range(first, last + 1)
]
lines = map(json.dumps, entries)
printed = "\\n".join(lines) + "\\n"
sys.stdout.write(printed[:{bytes_max}])
"""


def cut_off_after(folder: Path, bytes_max: int) -> Kubernetes:
    """Return a kubectl that prints only the first `bytes_max` bytes of entries, and succeeds."""
    program = folder / "kubectl"
    program.write_text(PROGRAM.format(python=sys.executable, bytes_max=bytes_max))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Kubernetes(kubectl_program=str(program), helm_program="helm", environment={})


@pytest.mark.parametrize("bytes_max", [70, 71, 1_000_000])
def test_lost_entries_are_requested_again(tmp_path: Path, bytes_max: int) -> None:
    kubernetes = cut_off_after(tmp_path, bytes_max)

    held = read_log(kubernetes, "somewhere", "flights", 3, 17)

    assert held == {index: f"body {index}" for index in range(3, 18) if index % 4}


def test_reading_without_progress_is_an_error(tmp_path: Path) -> None:
    kubernetes = cut_off_after(tmp_path, 5)

    with pytest.raises(CommandError, match="no entry 3 of group flights"):
        read_log(kubernetes, "somewhere", "flights", 3, 17)
