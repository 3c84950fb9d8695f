"""Bodies on their way through the core into the log."""

from collections.abc import Sequence
from typing import NamedTuple

from dledger_formats.log import disk
from dledger_formats.log.disk import Buffer
from dledger_node.store.log.entry_runs import Stamp


class ProposedEntries(NamedTuple):
    """Proposed bodies: an opaque handle for the core, which passes it on to the store."""

    bodies: Sequence[Buffer]
    channels: Sequence[int] | None = None
    """The channel of each body; None if all are 0."""
    magic: int = disk.NORMAL
    stamp: Stamp | None = None
    """Completes the bodies once their places in the log are known; None if they are complete."""
