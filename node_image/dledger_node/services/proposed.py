"""Bodies on their way through the core into the log."""

from collections.abc import Sequence
from typing import NamedTuple

from dledger_formats.log import disk


class ProposedEntries(NamedTuple):
    """Proposed bodies: an opaque handle for the core, which passes it on to the store."""

    bodies: Sequence[bytes]
    channels: Sequence[int] | None = None
    """The channel of each body; None if all are 0."""
    magic: int = disk.NORMAL
