"""A Java program of the tests in a process, with pipes to it and a log."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.groups.java_process import start_java

LOG_END_CHARS = 2000


class JavaProgram:
    """A context manager: the process is killed when the block ends."""

    def __init__(
        self, class_path: str, program: str, arguments: Sequence[str], *, log: Path
    ) -> None:
        """Start the program; its libraries write their own logs beside `log`."""
        self._log_path = log
        with log.open("ab") as output:
            self._process = start_java(
                class_path, program, arguments, home=log.parent, log=output, piped=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def log_end(self) -> str:
        """Return the end of the log, for the message of a failure."""
        return self._log_path.read_text(errors="replace")[-LOG_END_CHARS:]
