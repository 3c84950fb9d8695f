"""`dledger group local` names a member that does not answer, and tells when it answers again."""

import os
import signal
from pathlib import Path

import pytest

from dledger_group.local_process import LocalGroupProcess

pytestmark = pytest.mark.local


def test_a_frozen_member_is_named_until_it_answers_again(tmp_path: Path) -> None:
    with LocalGroupProcess(tmp_path, 3) as group:
        group.event("leader")
        pid = group.started["members"]["n2"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            silent = group.event("silent")
        finally:
            os.kill(pid, signal.SIGCONT)
        again = group.event("answers")

    assert (silent["member"], silent["pid"], again["member"]) == ("n2", pid, "n2")
    assert silent["seconds"] >= 5
