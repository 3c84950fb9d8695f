"""What a client is answered when the service of its request raises.

A request without an answer costs its client the whole timeout, so each one is answered whatever is
raised. A request whose messages may be written does not raise (`LogOwner.propose`), so a refusal is
right. One that is answered already gets no second answer (`Call.is_ended`).
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dledger_broker.door.calls.call import Call
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.queues.errors import READ_ERRORS
from dledger_formats.json_objects import FormatError
from dledger_formats.rocketmq.codes import ResponseCode

logger = logging.getLogger(__name__)

_WORDED: Final = FormatError, *READ_ERRORS
"""The errors of requests and of files, whose messages are for the client."""


def answered(call: Call, serve: Callable[[], None]) -> None:
    """Serve a request, and refuse it if that raises."""
    try:
        serve()
    except Exception as error:  # whatever it is, the client gets an answer
        call.refuse(refusal_of(error))


@contextmanager
def answered_after_reads(call: Call, reads: int = 1) -> Iterator[None]:
    """Serve a request in a task, and refuse it if the block raises.

    Its channel, for which `reads` were counted as waiting, continues in any case.
    """
    try:
        yield
    except Exception as error:  # whatever it is, the client gets an answer
        call.refuse(refusal_of(error))
    finally:
        call.channel.reads_waiting -= reads
        call.channel.go_on()


def refusal_of(error: Exception) -> RefusedError:
    """Return the refusal of a request whose service raised this error; log an unexpected one."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, _WORDED):
        return RefusedError(ResponseCode.SYSTEM_ERROR, str(error))
    logger.error("a request failed unexpectedly", exc_info=error)
    return RefusedError(ResponseCode.SYSTEM_ERROR, f"this member failed unexpectedly: {error!r}")
