"""Release all parts of a whole, even if some of them fail."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

logger = logging.getLogger(__name__)


class Closing:
    """Runs every step of a close, and keeps the first error; the others are logged.

    An `ExitStack` would also run every step, but raise the last error, and the first one is the
    cause. A step runs to its end even after a cancellation, so that what it releases does not leak.
    """

    def __init__(self) -> None:
        self._first: BaseException | None = None

    def step(self, close: Callable[[], object]) -> None:
        """Run a step."""
        try:
            close()
        except BaseException as error:
            self._keep(error)

    async def wait(self, close: Callable[[], Awaitable[object]]) -> None:
        """Run a step that must be awaited.

        A cancellation does not cut it short: a thread cannot be cancelled, and goes on using what
        the next steps release. So the step ends first; then `end` raises the cancellation.
        """
        try:
            step = asyncio.ensure_future(close())
        except BaseException as error:
            self._keep(error)
            return
        while not step.done():
            try:
                await asyncio.wait([step])  # unlike `await step`, this never cancels the step
            except asyncio.CancelledError as error:
                self._keep(error)
        try:
            step.result()
        except BaseException as error:
            self._keep(error)

    def end(self) -> None:
        """Raise the first error, if there was any."""
        if self._first is not None:
            raise self._first

    def _keep(self, error: BaseException) -> None:
        if self._first is None:
            self._first = error
        else:
            _log(error)


@contextlib.contextmanager
def closed_on_error(close: Callable[[], object]) -> Iterator[None]:
    """Close something if the block fails, and raise the error of the block in any case."""
    try:
        yield
    except BaseException:
        try:
            close()
        except Exception as error:
            _log(error)
        raise


@contextlib.asynccontextmanager
async def aclosed_on_error(close: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Close something if the block fails, and raise the error of the block in any case."""
    try:
        yield
    except BaseException:
        try:
            await close()
        except Exception as error:
            _log(error)
        raise


def _log(error: BaseException) -> None:
    logger.error("another part cannot be closed: %r", error, exc_info=error)
