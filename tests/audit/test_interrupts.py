"""Ctrl-C (SIGINT) during an audit."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dledger_audit.interrupts import Interrupts
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log

# Background processes of a shell ignore SIGINT, and so do their children.
START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from dledger_audit.console_script import main
sys.exit(main())
"""


@pytest.mark.spark
def test_ctrl_c_while_spark_reads_ends_the_audit_and_its_jvm_without_a_traceback(
    tmp_path: Path,
) -> None:
    log = write_log(tmp_path / "log", history(3000), small_shape(1 << 16))
    is_read = threading.Event()

    def note(path: str) -> None:
        if path.startswith("/segments"):
            is_read.set()

    with (
        served(log.root, manifest(log, "n0"), note) as url,
        subprocess.Popen(
            [sys.executable, "-c", START, "--group", "g", "--member", f"n0={url}",
             "--master", "local[1]", "--read-rate", "20000"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as audit,
    ):  # fmt: skip
        assert is_read.wait(60)
        audit.send_signal(signal.SIGINT)
        out, err = audit.communicate(timeout=60)  # until the JVM has closed them, too

    assert (audit.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert "ERROR " not in err


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield Interrupts()
    signal.signal(signal.SIGINT, before)
    logging.disable(logging.NOTSET)


def test_ctrl_c_while_the_jvm_starts_waits_until_it_has_started(interrupts: Interrupts) -> None:
    done = []

    def start() -> None:
        with interrupts.handled():
            with interrupts.held():
                os.kill(os.getpid(), signal.SIGINT)
                done.append("the JVM runs")
            done.append("Spark runs")

    with pytest.raises(KeyboardInterrupt):
        start()

    assert done == ["the JVM runs"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_audit_that_ignores_ctrl_c_ignores_it_while_spark_runs() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ignoring = Interrupts()
        with ignoring.handled():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # as a SparkContext does
            ignoring.install()
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_leaves_py4j_no_idle_connection_that_it_could_send_a_message_on(
    interrupts: Interrupts,
) -> None:
    idle = deque(["of another thread"])
    interrupts.shield(SimpleNamespace(_gateway_client=SimpleNamespace(deque=idle)))

    with pytest.raises(KeyboardInterrupt), interrupts.handled():
        os.kill(os.getpid(), signal.SIGINT)

    assert not idle
