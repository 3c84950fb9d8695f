"""Codes of requests that are refused before anything is written."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.raft.proposals import RefusalReason

PROPOSAL_CODES: Final = {
    RefusalReason.NOT_LEADER: DLedgerResponseCode.NOT_LEADER,
    RefusalReason.LEADER_TRANSFERRING: DLedgerResponseCode.LEADER_TRANSFERRING,
}
"""The codes for an append that the core refuses, the same as those of Java's leader."""

Reserve: TypeAlias = Callable[[Sequence[int]], DLedgerResponseCode | None]
"""Reserves room in the log for bodies of these sizes in bytes. Returns None on success; otherwise
the code with which to refuse them."""

Prove: TypeAlias = Callable[[Callable[[DLedgerResponseCode], None]], None]
"""Calls back with SUCCESS once this member has proved that it leads, or with a code that says why
it could not."""
