"""The bytes of a broker's log, behind the simulated entries, whose bodies are numbers.

Every member stores an entry at the same position, since positions depend on sizes alone. So the
encoded entry belongs to its place in a history of entries, which its chain identifies.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dledger_formats.log import disk
from dledger_formats.log.channels import ChannelRun, runs_of
from dledger_formats.log.disk import Buffer, EntryHeader
from dledger_node.state_machine.machine import CommittedEntry
from dledger_sim.group.disk import Entry

REGISTRATIONS: Final = -(1 << 20)
"""Bodies from here down to the memberships represent registrations of producers."""
_OTHER_BODY: Final = b""
_NO_CHANNEL: Final = 0


class Stored(NamedTuple):
    """The content behind the number of a body."""

    body: bytes
    channel: int
    magic: int


class Placed(NamedTuple):
    """An encoded entry at its place."""

    pos: int
    raw: bytes
    chain_crc: int

    @property
    def end_pos(self) -> int:
        """Position after the entry."""
        return self.pos + len(self.raw)

    @property
    def header(self) -> EntryHeader:
        """The entry's header."""
        return disk.unpack_header(self.raw, 0)


class Bodies:
    """The bodies of one run, by their numbers, and the entries that they make."""

    def __init__(self) -> None:
        self._stored: dict[int, Stored] = {}
        self._placed: dict[int, Placed] = {}
        """The encoded entries by chain."""
        self._next_message, self._next_registration = 0, REGISTRATIONS

    def add(self, body: Buffer, channel: int, magic: int) -> int:
        """Keep a body that is being written; return its number."""
        if magic == disk.NORMAL:
            number = self._next_message
            self._next_message += 1
        else:
            number = self._next_registration
            self._next_registration -= 1
        self._stored[number] = Stored(bytes(body), channel, magic)
        return number

    def stored(self, entry: Entry) -> Stored:
        """Return the body of an entry; an empty one for those that leaders write for themselves."""
        return self._stored.get(entry.body, Stored(_OTHER_BODY, _NO_CHANNEL, disk.NOOP))

    def messages(self, entries: Sequence[Entry], first_index: int) -> list[CommittedEntry]:
        """Return the entries that a state machine receives."""
        return [
            CommittedEntry(index, self._stored[entry.body].body)
            for index, entry in enumerate(entries, first_index)
            if entry.body >= 0
        ]

    def placed(self, log: Sequence[Entry], index: int) -> Placed:
        """Return an entry of a log at its place."""
        first = index
        while first >= 0 and log[first].chain not in self._placed:
            first -= 1
        for at in range(first + 1, index + 1):
            before = self._placed[log[at - 1].chain] if at else Placed(0, b"", 0)
            self._placed[log[at].chain] = self._encoded(log[at], at, before)
        return self._placed[log[index].chain]

    def end_pos(self, log: Sequence[Entry]) -> int:
        """Return the position of the next entry of a log."""
        return self.placed(log, len(log) - 1).end_pos if log else 0

    def channels(self, log: Sequence[Entry], first_index: int, end: int) -> list[ChannelRun]:
        """Return the runs of entries with channels, from `first_index` to before `end`."""
        runs: list[ChannelRun] = []
        for index in range(first_index, end):
            stored = self.stored(log[index])
            runs += runs_of(index, stored.magic, [stored.channel])
        return runs

    def _encoded(self, entry: Entry, index: int, before: Placed) -> Placed:
        stored = self.stored(entry)
        packed = disk.pack_entries(
            [stored.body],
            magic=stored.magic,
            first_index=index,
            term=entry.term,
            pos=before.end_pos,
            previous_chain_crc=before.chain_crc,
            channels=[stored.channel],
        )
        return Placed(before.end_pos, bytes(packed.data), packed.chain_crc)
