"""Groups whose members share one list of entries. Tests elect the leader."""

from collections.abc import Callable
from typing import Self

from dledger_fake_server.member import Member
from dledger_fake_server.producers import Producers
from dledger_formats.log import disk
from dledger_formats.protocol.entry import DLedgerEntry, entries_from_disk


class Group:
    """Members n0, n1, … on loopback, each on a free port; n0 is the first leader."""

    def __init__(self, size: int = 3, name: str = "g0") -> None:
        self.name = name
        self.term = 1
        self.leader_id: str | None = "n0"
        self.log: list[bytes] = []
        self.producers = Producers()
        self.entry: Callable[[int], DLedgerEntry] = self.stored_entry
        self.members = {
            f"n{ordinal}": Member(group=self, member_id=f"n{ordinal}") for ordinal in range(size)
        }

    async def __aenter__(self) -> Self:
        for member in self.members.values():
            await member.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members.values():
            await member.end()

    def __getitem__(self, member_id: str) -> Member:
        return self.members[member_id]

    @property
    def servers(self) -> list[str]:
        return [member.address for member in self.members.values()]

    def enable_batches(self) -> None:
        """Make all members support APPEND_BATCH."""
        for member in self.members.values():
            member.supports_batches = member.names_voters = True

    def elect(self, leader_id: str | None) -> None:
        """Begin a new term with this leader, or without a leader."""
        self.term += 1
        self.leader_id = leader_id

    def append(self, body: bytes) -> int:
        """Commit an entry, answer waiting FOLLOWs and return the entry's index."""
        self.log.append(body)
        for member in self.members.values():
            member.followers.answer_all()
        return len(self.log) - 1

    def append_all(self, bodies: list[bytes]) -> int:
        """Commit entries and return the index of the first."""
        first_index = len(self.log)
        for body in bodies:
            self.append(body)
        return first_index

    def stored_entry(self, index: int) -> DLedgerEntry:
        """Return an entry as a member stores it, with its checksum."""
        body = self.log[index]
        size = disk.ENTRY_HEADER_SIZE + len(body)
        crc = disk.body_crc(body)
        header = disk.EntryHeader(disk.NORMAL, size, index, self.term, 0, 0, 0, crc, len(body))
        return next(entries_from_disk(disk.ENTRY_HEADER.pack(*header) + body))
