"""The limit on open files: connections must leave enough of them for the store.

A store that cannot open a file takes its member out of service. Shells and services often give
processes a soft limit of 1,024, and a much higher hard limit.
"""

import logging
import resource
from typing import Final

logger = logging.getLogger(__name__)

FILES_MAX: Final = 1 << 20
"""More are never needed, and some systems allow a billion."""


def raise_limit() -> None:
    """Raise the soft limit to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_that_fit(connections_max: int) -> int:
    """Return how many connections to accept: at most half of the files may be connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or connections_max <= soft // 2:
        return connections_max
    logger.warning(
        "this process may open only %d files (ulimit -n), so this member accepts %d connections "
        "instead of %d",
        soft, soft // 2, connections_max,
    )  # fmt: skip
    return soft // 2
