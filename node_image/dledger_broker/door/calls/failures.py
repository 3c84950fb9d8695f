"""What a client is answered when the task that serves its request raises.

A request without an answer costs its client the whole timeout, so each task answers whatever is
raised. See `_serve` in `dispatcher` for the requests that are served at once.
"""

import logging
from typing import Final

from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.queues.errors import READ_ERRORS
from dledger_formats.json_objects import FormatError
from dledger_formats.rocketmq.codes import ResponseCode

logger = logging.getLogger(__name__)

_WORDED: Final = FormatError, *READ_ERRORS
"""The errors of requests and of files, whose messages are for the client."""


def refusal_of(error: Exception) -> RefusedError:
    """Return the refusal of a request whose task has raised this error; log an unexpected one."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, _WORDED):
        return RefusedError(ResponseCode.SYSTEM_ERROR, str(error))
    logger.error("a request failed unexpectedly", exc_info=error)
    return RefusedError(ResponseCode.SYSTEM_ERROR, f"this member failed unexpectedly: {error!r}")
