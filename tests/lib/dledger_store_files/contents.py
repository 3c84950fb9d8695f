"""Read the whole content of a store, as entries and as bytes."""

from pathlib import Path

from dledger_node.errors import StoreDamagedError
from dledger_node.store.log.log_store import LogStore

COMMAND_BODIES = [bytes([number + 1]) * (number * 37 % 700) for number in range(40)]
"""The entries of the store on which tests run `dledger-node store`."""


def flush(store: LogStore) -> None:
    """Flush everything written."""
    target = store.flush_target()
    store.flush(target)
    store.flushed(target)


def bodies_of(store: LogStore, first_index: int | None = None) -> list[bytes]:
    """Read all bodies from an entry on, by default from the first, and verify all checksums."""
    begin_index = store.begin_index if first_index is None else first_index
    return [store.entry(index)[1] for index in range(begin_index, store.end_index + 1)]


def entry_or_none(store: LogStore, index: int) -> bytes | None:
    """Read an entry's body; None if the store reports it as damaged."""
    try:
        return store.entry(index)[1]
    except StoreDamagedError:
        return None


def all_bytes(folder: Path) -> bytes:
    """Return the concatenated bytes of all segments of one kind."""
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def files_under(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of a store except the lock, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }
