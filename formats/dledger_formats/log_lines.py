"""Log lines: for people on a terminal, as JSON in a pod."""

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

TEXT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Keep what a collector needs: when, how bad, where, what."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(*, log_format: str, level: str, chatty: Iterable[str]) -> None:
    """Send all log lines to standard error, as `text` or `json`.

    Loggers that are `chatty` tell of every request at info: they are heard at level debug only.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level != "debug":
        for name in chatty:
            logging.getLogger(name).setLevel(logging.WARNING)
