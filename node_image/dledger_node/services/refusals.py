"""Codes of requests that are refused before anything is written."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.requests import Consistency
from dledger_node.raft.proposals import RefusalReason

PROPOSAL_CODES: Final = {
    RefusalReason.NOT_LEADER: DLedgerResponseCode.NOT_LEADER,
    RefusalReason.LEADER_TRANSFERRING: DLedgerResponseCode.LEADER_TRANSFERRING,
}
"""The codes for an append that the core refuses, the same as those of Java's leader."""


class Room(Protocol):
    """The room in the log. A thread makes it, since the disk may take arbitrarily long."""

    @property
    def is_busy(self) -> bool:
        """Whether the log takes no entries now, since a thread makes room or saves the term."""

    def begin(self, body_sizes: Sequence[int]) -> bool:
        """Begin to make room for bodies of these sizes in bytes.

        Return False if nothing was begun: there is room already, or the volume is full.
        """

    def reserve(self, body_sizes: Sequence[int]) -> DLedgerResponseCode | None:
        """Return None if there is room for these bodies, or the code with which to refuse them."""


Prove: TypeAlias = Callable[[Callable[[DLedgerResponseCode], None]], None]
"""Calls back with SUCCESS once this member has proved that it leads, or with a code that says why
it could not."""

ProveRead: TypeAlias = Callable[[Consistency | None, Callable[[DLedgerResponseCode], None]], None]
"""Calls back with SUCCESS once this member's committed entries are what a read with this
consistency must see, or with a code that says why they are not."""
