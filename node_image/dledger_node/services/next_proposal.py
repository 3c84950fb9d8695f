"""The appends that wait to be proposed together, and the number at which they are proposed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.remoting.service import AppendCall, BatchCall, ClientCall, IdempotentCall

PROPOSE_AT_ENTRIES: Final = 128
PROPOSE_AT_BYTES: Final = 128 << 10
"""From this many entries or bytes on, a proposal does not wait for the turn of the event loop to
end. With 1000 appends in flight that makes groups a third faster (docs/benchmarks/appends.md).
With lower limits, each proposal costs more than it gains.
"""


@dataclass(slots=True)
class NextProposal:
    """The appends of the next proposal. They enter the log in the order of these fields."""

    singles: list[AppendCall] = field(default_factory=list)
    idempotent: list[IdempotentCall] = field(default_factory=list)
    """Idempotent appends not yet compared with the log; those that it lacks move to `singles`."""
    batches: list[BatchCall] = field(default_factory=list)
    entry_count: int = 0
    body_bytes: int = 0

    def calls(self) -> Sequence[ClientCall]:
        """Return the calls, in the order of their entries in the log."""
        return [*self.singles, *self.batches]

    def bodies(self) -> list[bytes]:
        """Return the bodies of `calls`."""
        bodies = [call.body for call in self.singles]
        for batch in self.batches:
            bodies += batch.bodies
        return bodies

    def sizes(self, bytes_max: int) -> list[int]:
        """Return the sizes of all bodies that have at most `bytes_max`, in the order of the log."""
        bodies = [call.body for call in (*self.singles, *self.idempotent)]
        for batch in self.batches:
            bodies += batch.bodies
        return [len(body) for body in bodies if len(body) <= bytes_max]

    def take_excess(
        self, body_bytes_max: int, *, count_max: int, count: int, room_bytes: int
    ) -> list[tuple[ClientCall, DLedgerResponseCode]]:
        """Take out and return the appends that cannot be proposed, with the codes of the refusals.

        A body may have `body_bytes_max` bytes, and `count_max` entries may wait at once. There is
        room now for `count` entries and `room_bytes` bytes.
        """
        excess: list[tuple[ClientCall, DLedgerResponseCode]] = []

        def stays(call: ClientCall, sizes: Sequence[int]) -> bool:
            nonlocal count, room_bytes
            if max(sizes) > body_bytes_max and len(sizes) == 1:
                excess.append((call, DLedgerResponseCode.UNEXPECTED_ARGUMENT))
            elif max(sizes) > body_bytes_max or len(sizes) > count_max:
                # Bodies that are sent one by one may fit, and each gets its own answer.
                excess.append((call, DLedgerResponseCode.UNSUPPORTED))
            elif len(sizes) > count or sum(sizes) > room_bytes:
                excess.append((call, DLedgerResponseCode.LEADER_PENDING_FULL))
            else:
                count -= len(sizes)
                room_bytes -= sum(sizes)
                return True
            return False

        self.singles = [call for call in self.singles if stays(call, [len(call.body)])]
        self.batches = [
            batch for batch in self.batches if stays(batch, list(map(len, batch.bodies)))
        ]
        return excess
