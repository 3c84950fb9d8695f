"""A group's memory of producers: every sequence, in a dictionary."""

from collections.abc import Callable, Sequence

from dledger_formats.log.channels import WINDOW
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.producers import IdempotentAppendRequest, IdempotentBatchEnvelope


class Producers:
    """Producers with ids from 0."""

    def __init__(self) -> None:
        self._indexes: list[dict[int, int]] = []
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._indexes)

    def register(self) -> int:
        """Return a new producer id."""
        self._indexes.append({})
        return len(self._indexes) - 1

    def forget_all(self) -> None:
        """Forget all producers registered so far."""
        self._forgotten = len(self._indexes)

    def take(
        self, request: IdempotentAppendRequest, append: Callable[[bytes], int]
    ) -> int | DLedgerResponseCode:
        """Return the index of the append or of its earlier copy, or the code of a refusal."""
        if not self._forgotten <= request.producer < len(self._indexes):
            return DLedgerResponseCode.UNKNOWN_PRODUCER
        indexes, sequence = self._indexes[request.producer], request.sequence
        highest = max(indexes, default=0)
        if sequence > highest + WINDOW:
            return DLedgerResponseCode.SEQUENCE_TOO_NEW
        if sequence <= highest - WINDOW:
            return DLedgerResponseCode.SEQUENCE_TOO_OLD
        if sequence not in indexes:
            indexes[sequence] = append(request.body)
        return indexes[sequence]

    def take_batch(
        self,
        batch: IdempotentBatchEnvelope,
        bodies: Sequence[bytes],
        append_all: Callable[[Sequence[bytes]], int],
    ) -> int | DLedgerResponseCode:
        """Return the index of the batch's first entry, or the code of a refusal."""
        if not self._forgotten <= batch.producer < len(self._indexes):
            return DLedgerResponseCode.UNKNOWN_PRODUCER
        indexes = self._indexes[batch.producer]
        if batch.sequence <= max(indexes, default=0):
            return DLedgerResponseCode.SEQUENCES_NOT_NEW
        first_index = append_all(bodies)
        for at in range(len(bodies)):
            indexes[batch.sequence + at] = first_index + at
        return first_index
