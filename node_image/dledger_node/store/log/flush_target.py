"""What one flush covers."""

from dataclasses import dataclass

from dledger_node.store.segments.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushTarget:
    """What a flush makes durable, captured on the loop's thread."""

    end_index: int
    end_term: int
    end_pos: int
    generation: int
    """Counts truncations: after one, an older target says nothing."""
    files: tuple[Segment, ...]
