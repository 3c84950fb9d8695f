"""How many entries of each address wait for their quorum, if a setting limits that."""

from collections import Counter
from collections.abc import Iterable, Sequence

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.remoting.service import ClientCall


class PendingByAddress:
    """Counts the entries of each address; does nothing without a limit."""

    def __init__(self, entries_max: int) -> None:
        """`entries_max` is 0 for no limit."""
        self._entries_max = entries_max
        self._pending: Counter[str] = Counter()

    def take_limit(self, entries_max: int, waiting: Iterable[ClientCall]) -> None:
        """Apply another limit; `waiting` are all calls whose entries wait now."""
        was_active, self._entries_max = self.active, entries_max
        if not self.active:
            self._pending.clear()
        elif not was_active:
            self.add(waiting)

    @property
    def active(self) -> bool:
        """Whether there is a limit."""
        return self._entries_max > 0

    def excess(self, calls: Iterable[ClientCall]) -> list[tuple[ClientCall, DLedgerResponseCode]]:
        """Return the calls that exceed the limit of their address, if the others are accepted.

        With each comes the code of its refusal.
        """
        accepted: Counter[str] = Counter()
        excess: list[tuple[ClientCall, DLedgerResponseCode]] = []
        for call in calls:
            address, entries = call.connection.address, call.entry_count
            if entries > self._entries_max:
                # Never admitted as a whole, but its bodies are if they are sent one by one.
                excess.append((call, DLedgerResponseCode.UNSUPPORTED))
            elif self._pending[address] + accepted[address] + entries > self._entries_max:
                excess.append((call, DLedgerResponseCode.LEADER_PENDING_FULL))
            else:
                accepted[address] += entries
        return excess

    def add(self, calls: Iterable[ClientCall]) -> None:
        """Count calls whose entries were proposed."""
        if self.active:
            for call in calls:
                self._pending[call.connection.address] += call.entry_count

    def remove(self, calls: Sequence[ClientCall]) -> None:
        """Count calls as answered."""
        if self.active:
            for call in calls:
                address = call.connection.address
                self._pending[address] -= call.entry_count
                if not self._pending[address]:
                    del self._pending[address]
