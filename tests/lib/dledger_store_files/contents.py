"""Everything that a store holds, by its own account and as bytes."""

from pathlib import Path

from dledger_node.errors import StoreDamagedError
from dledger_node.store.log.log_store import LogStore


def flush(store: LogStore) -> None:
    """Make everything written durable."""
    target = store.flush_target()
    store.flush(target)
    store.flushed(target)


def bodies_of(store: LogStore, first_index: int | None = None) -> list[bytes]:
    """Every body from an entry on, or from the first, with all checksums verified."""
    begin_index = store.begin_index if first_index is None else first_index
    return [store.entry(index)[1] for index in range(begin_index, store.end_index + 1)]


def entry_or_none(store: LogStore, index: int) -> bytes | None:
    """An entry's body, or None when the store says that it is damaged."""
    try:
        return store.entry(index)[1]
    except StoreDamagedError:
        return None


def all_bytes(folder: Path) -> bytes:
    """All segments of one kind, one after the other."""
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def files_under(folder: Path) -> dict[str, bytes]:
    """Every file of a store by its path, but for the lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }
