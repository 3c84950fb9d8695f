"""Log lines: text on a terminal, JSON in a pod."""

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

TEXT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """Formats each record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, logger, message and, if there is one, the exception."""
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

    `chatty` loggers write a line for every request at level info; unless the level is debug, they
    are set to warning.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level != "debug":
        for name in chatty:
            logging.getLogger(name).setLevel(logging.WARNING)
