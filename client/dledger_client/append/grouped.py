"""Bodies in batches, for a caller that takes them from a blocking iterator."""

import time
from collections.abc import Iterator

from dledger_client.append.batches import body_type_error


class GroupedBodies:
    """Bodies in batches; a batch ends when it is full or after `linger_s`.

    A batch is full with `count_max` bodies, or once it has `size_bytes_max` bytes.
    """

    def __init__(
        self, bodies: Iterator[bytes], count_max: int, size_bytes_max: int, linger_s: float
    ) -> None:
        self.error: Exception | None = None
        """Why not all bodies were taken, which the caller raises at the end; None if all were."""
        self._bodies = bodies
        self._count_max = count_max
        self._size_bytes_max = size_bytes_max
        self._linger_s = linger_s

    def __iter__(self) -> Iterator[list[bytes]]:
        batch: list[bytes] = []
        size_bytes, until_s = 0, 0.0
        try:
            for body in self._bodies:
                if not isinstance(body, bytes):
                    raise body_type_error(body)
                if not batch:
                    until_s = time.monotonic() + self._linger_s
                batch.append(body)
                size_bytes += len(body)
                is_full = len(batch) >= self._count_max or size_bytes >= self._size_bytes_max
                if is_full or time.monotonic() >= until_s:
                    yield batch
                    batch, size_bytes = [], 0
        except Exception as error:
            self.error = error
        if batch:
            yield batch
