"""The logs that may be found in a store's folder, and the judge of what is found there.

There is one log, or two while a leader's log replaces it. Each promise is noted after the call that
makes it; what a call may change is noted before the call.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from dledger_formats.log import disk
from dledger_formats.log.disk import IndexUnit
from dledger_node.errors import NodeError, StoreDamagedError
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.store.derived import membership_bodies
from dledger_node.store.log.log_store import LogStore
from dledger_store_faults.contents import body_of, membership_at


@dataclass(slots=True)
class Log:
    """One log that may be found: all of its entries up to `durable_index`, and any more."""

    begins: set[int]
    """The entries with which it may begin."""
    terms: dict[int, int] = field(default_factory=dict)
    """The terms of all entries that the log holds or held."""
    changes: dict[int, Membership] = field(default_factory=dict)
    """By entry: the membership from there on; also from before the log's first entry."""
    end_index: int = -1
    durable_index: int = -1
    committed_index: int = -1
    """The committed index of the last checkpoint."""
    former_begins: set[int] = field(default_factory=set)
    """The beginnings before a removal whose files may not be deleted yet."""

    def copy(self) -> "Log":
        """Return a copy."""
        return dataclasses.replace(
            self,
            begins=set(self.begins),
            former_begins=set(self.former_begins),
            terms=dict(self.terms),
            changes=dict(self.changes),
        )

    def body(self, index: int) -> bytes:
        """Return the body of an entry."""
        if index in self.changes:
            return membership_bodies.body_of(self.changes[index])
        return body_of(index, self.terms[index])

    def base(self, begin_index: int) -> Membership | None:
        """Return the membership before an entry."""
        return self.changes.get(max((i for i in self.changes if i < begin_index), default=-1))


class Promises:
    """What the store of one member has promised."""

    def __init__(self) -> None:
        self.log = Log({0})
        """The log of the open store."""
        self._replaced: Log | None = None

    def copy(self) -> "Promises":
        """Return a copy."""
        copied = Promises()
        copied.log = self.log.copy()
        copied._replaced = None if self._replaced is None else self._replaced.copy()
        return copied

    def write(self, term: int, count: int, *, is_change: bool = False) -> int:
        """Note entries before they are appended; return the index of the first."""
        log = self.log
        first_index = log.end_index + 1
        for index in range(first_index, first_index + count):
            log.terms[index] = term
            if is_change:
                log.changes[index] = membership_at(index, term)
        log.end_index += count
        return first_index

    def cut(self, first_index: int) -> None:
        """Note that entries were removed, by a truncation or an append without room."""
        log = self.log
        for index in range(first_index, log.end_index + 1):
            del log.terms[index]
            log.changes.pop(index, None)
        log.end_index = first_index - 1

    def replace(self, log: Log) -> None:
        """Note another log before it replaces this one.

        A crash then leaves the files of this one that are not deleted yet, with their beginning.
        """
        self.log.begins |= self.log.former_begins
        self.log.durable_index = self.log.committed_index = -1
        self._replaced, self.log = self.log, log

    def replaced(self) -> None:
        """Note that the other log has replaced this one."""
        self._replaced = None

    def broken_by(self, store: LogStore) -> list[str]:
        """Return what is wrong with an opened store; empty if it holds one of the logs."""
        wrong = broken(self.log, store)
        if wrong and self._replaced is not None:
            wrong_before = broken(self._replaced, store)
            return [*wrong, *wrong_before] if wrong_before else []
        return wrong


def broken(log: Log, store: LogStore) -> list[str]:
    """Return the differences of a store from a log that may be found."""
    begin_index, end_index = store.begin_index, store.end_index
    if end_index < log.durable_index:
        return [f"{end_index + 1} to {log.durable_index} were durable and are lost"]
    if end_index > log.end_index:
        return [f"entries after {log.end_index} were removed or never written: {store.recovery}"]
    if store.committed_index < log.committed_index:
        return [f"{log.committed_index} was saved as committed, not {store.committed_index}"]
    if end_index < begin_index:
        return []
    if begin_index not in log.begins:
        return [f"the log begins with {begin_index}; that is none of {log.begins}"]
    wrong = [index for index in range(begin_index, end_index + 1) if not _holds(log, store, index)]
    if wrong:
        return [f"entries {wrong} are not those that were written"]
    changes = [
        MembershipEntry(index, membership)
        for index, membership in sorted(log.changes.items())
        if begin_index <= index <= end_index
    ]
    if list(store.memberships.entries) != changes:
        return [f"memberships {store.memberships.entries}, where {changes} were written"]
    if store.memberships.base != log.base(begin_index):
        return [f"membership {store.memberships.base} before {begin_index}"]
    return []


def _holds(log: Log, store: LogStore, index: int) -> bool:
    header, body = store.entry(index)
    return (header.index, header.term) == (index, log.terms[index]) and body == log.body(index)


def judge(
    folder: Path, sizes: dict[str, int], promises: Promises
) -> tuple[list[str], IndexUnit | None]:
    """Open a folder; return what is wrong, and the place of the last entry, if damage shows."""
    try:
        store = LogStore.open(folder, **sizes)
    except NodeError as error:
        return [f"a sound log is refused: {error!r}"], None
    try:
        wrong = promises.broken_by(store)
        # Only the chain CRC covers the header of an entry, and that of a log's first entry needs
        # the entry before it.
        is_covered = store.end_index > (store.begin_index or -1)
        return wrong, store.position(store.end_index) if is_covered else None
    except NodeError as error:
        return [f"an entry is refused: {error!r}"], None
    finally:
        store.close()


def judge_damaged(folder: Path, sizes: dict[str, int], last: IndexUnit, byte: int) -> list[str]:
    """Flip a byte of an entry that the checkpoint covers; return what is wrong if that is accepted.

    `byte` counts within the entry.
    """
    size = sizes["segment_size_bytes"]
    path = folder / disk.DATA_FOLDER / disk.file_name(last.pos - last.pos % size)
    raw = bytearray(path.read_bytes())
    raw[last.pos % size + byte % last.size] ^= 1
    path.write_bytes(raw)
    try:
        LogStore.open(folder, **sizes).close()
    except StoreDamagedError:
        return []
    return [f"damage is accepted: byte {byte % last.size} of entry {last.index}"]
