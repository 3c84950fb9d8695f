"""The ledger of campaigns: the commit that a campaign records."""

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


def test_a_changed_ledger_does_not_mark_the_commit_as_dirty(checkout: Path) -> None:
    (checkout / LEDGER).write_text("{}")

    assert not ledger.commit(LEDGER).endswith("-dirty")


def test_changed_code_marks_the_commit_as_dirty(checkout: Path) -> None:
    (checkout / "code").write_text("two")

    assert ledger.commit(LEDGER).endswith("-dirty")
