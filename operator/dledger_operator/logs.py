"""Log lines: for people on a terminal, as JSON in a pod."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

# Each tells of every request at info, which drowns what the operator does.
_CHATTY: Final = ("httpx2", "httpcore2", "aiohttp.access", "kopf.objects", "kopf.activities.probe")


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


def configure(*, log_format: str, level: str) -> None:
    """Send all log lines to standard error, in one of the two forms."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level != "debug":
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
