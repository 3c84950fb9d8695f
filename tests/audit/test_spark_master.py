"""Audits and archives with executors below a Spark master: the same results as without."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from dledger_audit.compaction.archive import Archive
from dledger_compaction.model import key_history
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.audit import AuditFailure, AuditSummary, ExitCode
from dledger_logs import damage
from dledger_logs.histories import small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log
from dledger_scan.local_audit import local_audit

pytestmark = pytest.mark.spark
JARS = Path(pyspark.__file__).parent / "jars"
DEPLOY = "org.apache.spark.deploy"
START_S_MAX = 120.0
LOOPBACK = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]


@contextmanager
def daemon(log: Path, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run one of Spark's programs; what it says goes to a file."""
    home = {
        "SPARK_HOME": str(JARS.parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",  # Spark's scripts set it
    }
    command = ["java", "-Xmx256m", "-cp", f"{JARS}/*", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **home}, stdout=output, stderr=output, cwd=log.parent
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)


def said(log: Path, pattern: str) -> str:
    """Wait until a program has said something; return its first group."""
    until = time.monotonic() + START_S_MAX
    while not (found := re.search(pattern, log.read_text())):
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)
    return found[1]


@contextmanager
def spark_master(
    folder: Path, workers: int
) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """Run a Spark master with workers that each have room for one executor; yield its URL."""
    with ExitStack() as stack:
        log = folder / "master.log"
        ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        stack.enter_context(daemon(log, f"{DEPLOY}.master.Master", *ports))
        url = said(log, r"Starting Spark master at (spark://\S+)")
        processes = []
        for number in range(workers):
            log = folder / f"worker{number}.log"
            options = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / str(number))]
            command = [f"{DEPLOY}.worker.Worker", *ports, *options, url]
            processes.append(stack.enter_context(daemon(log, *command)))
            said(log, r"(Successfully registered with master)")
        yield url, processes


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "dledger_audit", *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=500, env=environment
    )


@pytest.mark.sampled(1, among="executors of Spark")
def test_two_executors_give_the_result_and_the_archive_of_one_process(tmp_path: Path) -> None:
    logs: dict[str, Log] = {
        member: write_log(tmp_path / member, key_history(2000, 3), small_shape())
        for member in ("n0", "n1", "n2")
    }
    damage.flip_body(logs["n1"], next(p.index for p in logs["n1"].places if p.size > 60))
    expected = compacted(copies_of(logs), tmp_path / "alone", tombstone_entries=1_000_000)
    assert expected is not None
    summary = tmp_path / "summary"
    (tmp_path / "spark").mkdir()
    with ExitStack() as stack:
        members = []
        for member, log in logs.items():
            url = stack.enter_context(served(log.root, manifest(log, member, peers=logs)))
            members += ["--member", f"{member}={url}"]
        master, _ = stack.enter_context(spark_master(tmp_path / "spark", workers=2))
        common = ["--group", "g", *members, "--master", master, "--executors", "2", *LOOPBACK]

        audit = run(*common, "--summary-file", str(summary))
        archive = ["--decoder", "kv", "--archive", str(tmp_path / "spread")]
        compact = run("compact", *common, *archive)

    assert audit.returncode == ExitCode.DAMAGED, audit.stderr
    assert AuditSummary.from_json(summary.read_bytes()) == local_audit(logs)
    assert compact.returncode == ExitCode.SOUND, compact.stderr
    found = Archive.load(tmp_path / "spread")
    assert found is not None
    assert found.info.files == expected.info.files
    assert found.info.copy_sha256 == expected.info.copy_sha256
    told = (tmp_path / "spark" / "master.log").read_text()
    assert len(re.findall("Launching executor app", told)) == 4, "two for each of the two runs"
    paces = (tmp_path / "spark").glob("[01]/app-*-0000/[01]/dledger-reads-*-pace")
    assert len(list(paces)) == 2, "each executor of the audit has its own share of the rate"


def test_an_audit_without_any_executor_ends_and_tells_why(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", key_history(50, 3), small_shape())
    summary = tmp_path / "termination-log"
    with (
        served(log.root, manifest(log, "n0")) as url,
        spark_master(tmp_path, workers=0) as (master, _),
    ):
        ended = run(
            "--group", "g", "--member", f"n0={url}", "--master", master, *LOOPBACK,
            "--executors-within", "3", "--summary-file", str(summary),
        )  # fmt: skip

    assert ended.returncode == ExitCode.FAILED
    failure = AuditFailure.from_json(summary.read_bytes())
    assert failure.failed == "NoExecutors"
    assert failure.message.startswith("no executor of Spark ran for 3 s: ")
    assert failure.message in ended.stderr


def children(process: "subprocess.Popen[bytes]") -> list[int]:
    """Return the processes that a process has started."""
    found = Path(f"/proc/{process.pid}/task").glob("*/children")
    return [int(word) for each in found for word in each.read_text().split()]


@pytest.mark.sampled(1, among="executors of Spark")
def test_an_executor_that_is_lost_midway_changes_nothing(tmp_path: Path) -> None:
    logs: dict[str, Log] = {
        member: write_log(tmp_path / member, key_history(2000, 3), small_shape())
        for member in ("n0", "n1", "n2")
    }
    damage.flip_body(logs["n2"], next(p.index for p in logs["n2"].places if p.size > 60))
    summary = tmp_path / "summary"
    killed: list[int] = []
    asked: list[str] = []
    with ExitStack() as stack:
        master, (worker, _) = stack.enter_context(spark_master(tmp_path, workers=2))

        def lose(path: str, _count: int) -> None:
            """Kill the only executor of a worker once segments are being read."""
            asked.append(path)
            if sum("/segments/data/" in each for each in asked) >= 3 and not killed:
                killed.extend(children(worker))
                for each in killed:
                    os.kill(each, signal.SIGKILL)

        members = []
        for member, log in logs.items():
            said_by = manifest(log, member, peers=logs)
            url = stack.enter_context(served(log.root, said_by, sent=lose))
            members += ["--member", f"{member}={url}"]
        audit = run(
            "--group", "g", *members, "--master", master, "--executors", "2", *LOOPBACK,
            "--summary-file", str(summary),
        )  # fmt: skip

    assert len(killed) == 1
    assert audit.returncode == ExitCode.DAMAGED, audit.stderr
    assert AuditSummary.from_json(summary.read_bytes()) == local_audit(logs)
    assert "2 of 2 executors of Spark run" in audit.stderr
