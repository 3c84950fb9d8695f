"""The entries that one flush makes durable."""

from dataclasses import dataclass

from dledger_node.store.segments.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushTarget:
    """The end of the log when the flush was requested, captured on the loop's thread."""

    end_index: int
    end_term: int
    end_pos: int
    generation: int
    """Number of truncations so far; a truncation invalidates older targets."""
    files: tuple[Segment, ...]
