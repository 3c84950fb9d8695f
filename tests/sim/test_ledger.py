"""The ledger of campaigns: which commit a run is said to be of."""

import subprocess
from pathlib import Path

import pytest

from dledger_sim.runs import ledger

LEDGER = Path("ledger.jsonl")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    LEDGER.write_text("")
    Path("code").write_text("one")
    who = ["-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "all"]):
        subprocess.run(["git", *command], check=True)
    return tmp_path


def test_a_line_of_an_earlier_run_is_no_change_of_the_code(checkout: Path) -> None:
    (checkout / LEDGER).write_text("{}")

    assert not ledger.commit(LEDGER).endswith("-dirty")


def test_changed_code_is_marked(checkout: Path) -> None:
    (checkout / "code").write_text("two")

    assert ledger.commit(LEDGER).endswith("-dirty")
