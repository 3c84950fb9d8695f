"""Spark's JVM ends while a run needs it: no verdict is lost, and a run without one tells why."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from dledger_audit.executors.reasons import UNKNOWN
from dledger_compaction.model import key_history
from dledger_formats.audit import AuditSummary, ExitCode, Verdict
from dledger_logs import damage
from dledger_logs.histories import small_shape
from dledger_logs.layout import manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log

pytestmark = pytest.mark.spark

KILLER = '''
import os, signal
from pathlib import Path


def key(body):
    """Kill the JVM that this worker belongs to."""
    process = os.getpid()
    while (name := Path(f"/proc/{process}/comm").read_text().strip()) != "java":
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)
'''
WATCHED = """
import json, os, signal, time
from dledger_audit.executors.watching import NoExecutorsError, watched
from dledger_audit.session import session


def no_answer():
    raise KeyError("items")


def slow(number):
    time.sleep(300)
    return number


told = []
try:
    with session("local[1]") as context:
        try:
            with watched(context, 2, no_answer):
                context.parallelize([1], 1).map(slow).collect()
        except NoExecutorsError as error:
            told.append(str(error))
        with watched(context, 300, lambda: "pod exec-1: OOMKilled"):
            os.kill(context._gateway.proc.pid, signal.SIGKILL)
            context._gateway.proc.wait()
            context.parallelize([1], 1).collect()
except NoExecutorsError as error:
    told.append(str(error))
print(json.dumps(told))
"""


def test_a_verdict_outlasts_the_end_of_spark_in_the_pass_for_amounts(tmp_path: Path) -> None:
    (tmp_path / "killer.py").write_text(KILLER)
    summary = tmp_path / "summary"
    members = []
    logs = {
        member: write_log(tmp_path / member, key_history(300, 5), small_shape(1 << 12))
        for member in ("n0", "n1", "n2")
    }
    damage.flip_body(logs["n2"], next(p.index for p in logs["n2"].places if p.size > 60))
    with ExitStack() as stack:
        for member, log in logs.items():
            url = stack.enter_context(served(log.root, manifest(log, member, peers=logs)))
            members += ["--member", f"{member}={url}"]
        ended = subprocess.run(
            [
                sys.executable, "-m", "dledger_audit", "--group", "g", *members,
                "--master", "local[1]", "--decoder", "killer:key", "--summary-file", str(summary),
            ],
            capture_output=True, text=True, check=False, timeout=200,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )  # fmt: skip

    assert ended.returncode == ExitCode.DAMAGED, ended.stderr
    assert AuditSummary.from_json(summary.read_bytes()).verdict is Verdict.DAMAGED
    assert "bad_body_crc" in ended.stdout
    assert "reading the entries failed with" in ended.stdout
    assert "dledger-audit: Spark did not stop in order" in ended.stderr


def test_a_run_tells_of_the_last_trouble_if_the_jvm_ends_and_ends_if_nothing_is_known() -> None:
    """A session without executors, as `local` is, and a cause that cannot be asked for."""
    ended = subprocess.run(
        [sys.executable, "-c", WATCHED], capture_output=True, text=True, check=False, timeout=120
    )

    assert ended.returncode == 0, ended.stderr
    without, lost = json.loads(ended.stdout.splitlines()[-1])
    assert without == f"no executor of Spark ran for 2 s: {UNKNOWN}"
    assert lost == "Spark ended before the work was done: pod exec-1: OOMKilled"
