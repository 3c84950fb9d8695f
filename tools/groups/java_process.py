"""Start a JVM for one of the two programs in tests/interop/java."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

QUICK_START = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""JVM options for tests, where a process lives for seconds; benchmarks pass their own."""
# Java DLedger needs access to these packages to unmap files; without it, truncation never returns.
_OPENED = ("java.base/sun.nio.ch", "java.base/java.nio", "java.base/jdk.internal.ref")


def start_java(
    class_path: str,
    program: str,
    arguments: Sequence[str],
    *,
    home: Path,
    log: IO[bytes],
    options: Sequence[str] = QUICK_START,
    piped: bool = False,
) -> "subprocess.Popen[bytes]":
    """Start a program; its libraries write their log files below `home`."""
    opened = [f"--add-opens={module}=ALL-UNNAMED" for module in _OPENED]
    command = ["java", *options, *opened, f"-Duser.home={home}", "-cp", class_path, program]
    # The user's settings for other JVMs must not apply here.
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_TOOL_OPTIONS"}
    return subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
        stdout=subprocess.PIPE if piped else log,
        stderr=log,
        env=environment,
    )
