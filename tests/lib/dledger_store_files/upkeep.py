"""Do to a store what a member's upkeep does: checkpoints, and retention at the front of the log."""

from dledger_node.store.log.log_store import LogStore
from dledger_store_files.contents import flush


def commit(store: LogStore, index: int) -> None:
    """Make the log durable and committed up to an index."""
    flush(store)
    store.save_checkpoint(index)


def remove_before(store: LogStore, first_index: int) -> None:
    """Remove the entries before one, which begins a segment."""
    begin = store.front.save_begin(first_index)
    store.front.delete(store.front.forget_before(begin))


def remove_front(store: LogStore, segments: int) -> int:
    """Remove segments from the front; return the first remaining entry."""
    first_index = store.front.sealed_segments()[segments - 1].last_index + 1
    remove_before(store, first_index)
    return first_index
