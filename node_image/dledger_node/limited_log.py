"""Limit the log lines that a stranger can cause to a few a minute of each kind; count the others.

Without a limit, one connection that sends nonsense would fill a member's log, and with it its
volume.
"""

import logging
import re
import time
from collections.abc import Callable
from typing import Final

LINES_MAX: Final = 10
"""Lines of one kind in one period."""
PERIOD_S: Final = 60.0
CHATTY: Final = ("aiohttp.server", "asyncio")
"""Loggers of libraries that write a line, or a traceback, for what a stranger sends."""
_UNQUOTED: Final = re.compile(r"""(?:'[A-Za-z-]{1,20}'|b(?!['"])|[^b'"])*""")
"""The text before the first quoted literal that cannot be the name of a header."""


class LineBudget:
    """Decides which lines of each kind to write. The caller bounds the number of kinds."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._begun_s: dict[str, float] = {}
        self._lines: dict[str, int] = {}

    def admit(self, kind: str) -> str | None:
        """Return None if no line of this kind may be written now.

        Otherwise return what to append to the line: how many lines were left out before it.
        """
        now_s, left_out = self._now_s(), 0
        begun_s = self._begun_s.get(kind)
        if begun_s is None or now_s - begun_s >= PERIOD_S:
            left_out = max(0, self._lines.get(kind, 0) - LINES_MAX)
            self._begun_s[kind], self._lines[kind] = now_s, 0
        self._lines[kind] += 1
        if self._lines[kind] > LINES_MAX:
            return None
        return f" ({left_out} lines of this kind were left out before)" if left_out else ""


class StrangersFilter(logging.Filter):
    """Limits the lines of a library's logger, and leaves out tracebacks of bad requests."""

    def __init__(self, budget: LineBudget) -> None:
        super().__init__()
        self._budget = budget

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write this line, and shorten it."""
        admitted = self._budget.admit(record.name)
        if admitted is None:
            return False
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage()[:512]
        if error is not None and type(error).__module__.startswith("aiohttp."):
            record.exc_info = record.exc_text = None  # the request is at fault, not this program
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            words = _in_words(error)
            text = f"{text}: {words}" if words else text
        record.msg, record.args = text + admitted, ()
        return True


def _in_words(error: BaseException) -> str:
    """Return aiohttp's message about a bad request on one line, without bytes of the request.

    Some of these messages quote the bad line, which may contain the token.
    """
    lines = [line.strip() for line in str(getattr(error, "message", error)).splitlines()]
    kept = " ".join(line for line in lines if not line.startswith(("b'", 'b"', "^")))
    found = _UNQUOTED.match(kept[:200])
    assert found is not None, "an empty text matches, too"
    return "".join(char if char.isprintable() else "?" for char in found[0]).strip(" :")


def limit_libraries() -> None:
    """Limit the lines of the libraries' loggers."""
    for name in CHATTY:
        logging.getLogger(name).addFilter(StrangersFilter(LineBudget()))
