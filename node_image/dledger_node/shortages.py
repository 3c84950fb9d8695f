"""Reads that fail although the disk has not failed: the process, or its host, is short of something
for a moment. Nothing is known of the bytes then, so the reader is asked to try again.
"""

import errno
from typing import Final

_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def is_passing(error: BaseException) -> bool:
    """Return whether a read failed for lack of descriptors or memory. The store names such an error
    as the cause of its own.
    """
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in _PASSING
