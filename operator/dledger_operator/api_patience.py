"""How the operator retries while the API server refuses, is down, or cannot be reached."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Final

from dledger_operator.clients.errors import asked_pause_s

logger = logging.getLogger(__name__)

BACKOFF_S_MAX: Final = 1.0
"""The longest pause between two attempts, so that labels are correct soon after the server is back.
"""
LATE_S: Final = 1.0
"""How long a server may take to answer before that is logged."""
SAME_TROUBLE_S: Final = 30.0
"""An error after a run that lasted longer is logged even if it repeats the last one."""


class EndlessBackoffs:
    """An endless series of pauses between attempts, in seconds, because 503 and 403 may last long.

    kopf iterates over them for every request and gives up after the last one.
    """

    def __init__(self, random: Random) -> None:
        self._random = random

    def __iter__(self) -> Iterator[float]:
        """Yield pauses that double up to `BACKOFF_S_MAX`, with jitter."""
        for attempt in itertools.count():
            pause_s = min(BACKOFF_S_MAX, 0.1 * 2.0 ** min(attempt, 10))
            yield pause_s * self._random.uniform(0.5, 1.0)


def told_if_late(run: Callable[[], Awaitable[None]], what: str) -> Callable[[], Awaitable[None]]:
    """Return `run`; its first call logs that it waits if it takes longer than `LATE_S`."""
    calls = itertools.count()

    async def told() -> None:
        if next(calls):
            await run()
            return
        loop = asyncio.get_running_loop()
        late = loop.call_later(LATE_S, logger.warning, "%s has not answered yet", what)
        try:
            await run()
        finally:
            late.cancel()

    return told


async def keep_trying(
    run: Callable[[], Awaitable[None]],
    *,
    what: str,
    backoffs: EndlessBackoffs,
    fatal: tuple[type[Exception], ...] = (),
) -> None:
    """Call `run` until it returns or raises a `fatal` error. Any other error is logged, unless it
    repeats the one just before. The next call comes no sooner than the server asks for.
    """
    loop, last = asyncio.get_running_loop(), ""
    for pause_s in backoffs:
        began_s = loop.time()
        try:
            await run()
        except fatal:
            raise
        except Exception as error:
            shown = f"{type(error).__name__}: {error}"
            if shown != last or loop.time() - began_s > SAME_TROUBLE_S:
                logger.error("%s: %s; will try again", what, shown)  # noqa: TRY400 - no bug here
            last, asked_s = shown, asked_pause_s(error)
        else:
            return
        await asyncio.sleep(max(pause_s, asked_s))
