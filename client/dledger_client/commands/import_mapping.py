"""The indexes that imported entries have in the destination, as `dledger import` writes them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final, Self

from dledger_client.commands import printing, streams
from dledger_formats.console import OutputError

READER_WAIT_S: Final = 0.5
"""How long an import that is ended by a signal waits for the reader of the indexes."""
NOT_ALL_WRITTEN: Final = (
    "not all indexes were written, and a further run writes only the last ones: for the others, "
    "compare the log"
)


class Mapping:
    """Runs of consecutive indexes, each of which is written once it has ended.

    A failed write does not end the import; the error is kept as `problem`, and nothing further is
    written.
    """

    def __init__(
        self, output: streams.Output, run: tuple[int, int, int] | None, *, as_json: bool
    ) -> None:
        self.run = run
        """Source index, destination index and length of the last run."""
        self.problem: Exception | None = None
        """Why a run could not be written."""
        self._output = output
        self._as_json = as_json
        self._ended: list[bytes] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(
        cls, run: tuple[int, int, int] | None, *, as_json: bool
    ) -> AsyncIterator[Self]:
        """Begin after `run`. The end waits for the reader; after a cancellation, only briefly."""
        output = streams.Output()
        mapping = cls(output, run, as_json=as_json)
        try:
            try:
                yield mapping
                await mapping.flush()
            except asyncio.CancelledError:
                try:
                    await asyncio.wait_for(mapping.flush(), READER_WAIT_S)
                except TimeoutError:
                    printing.complain(
                        f"dledger: the reader of the indexes pauses: {NOT_ALL_WRITTEN}"
                    )
                raise
            except Exception:
                await mapping.flush()
                raise
        finally:
            output.close()

    def add(self, source: int, destination: int) -> None:
        """Add an entry; if it begins a new run, the previous one has ended."""
        if self.run is not None:
            first, first_there, length = self.run
            if (source, destination) == (first + length, first_there + length):
                self.run = (first, first_there, length + 1)
                return
            self.end_run()
        self.run = (source, destination, 1)

    def end_run(self) -> None:
        """Have the last run written by the next `write` or `flush`."""
        if self.run is None:
            return
        first, there, length = self.run
        last, last_there = first + length - 1, there + length - 1
        if self._as_json:
            line = printing.json_bytes(
                {"source": [first, last], "destination": [there, last_there]}
            )
        else:
            line = f"{first} to {last} are now {there} to {last_there}\n".encode()
        self._ended.append(line)

    async def write(self) -> None:
        """Write the runs that have ended; wait while the reader is far behind."""
        if not self._ended:
            return
        content, self._ended = b"".join(self._ended), []
        if self.problem is None:
            try:
                await self._output.write(content)
            except (OutputError, BrokenPipeError) as error:
                self.problem = error

    async def flush(self) -> None:
        """Write the runs that have ended, and wait until the reader has taken them."""
        await self.write()
        if self.problem is None:
            try:
                await self._output.flush()
            except (OutputError, BrokenPipeError) as error:
                self.problem = error
