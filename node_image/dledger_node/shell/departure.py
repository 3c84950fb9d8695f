"""How a member with damage that it cannot mend leaves the group: a leader hands over first.

A peer that declines, since its state is behind, costs only a round trip; the next one is asked
then. A peer that neither declines nor stands costs an election timeout, in which no appends are
taken. So each peer is asked once, and the whole wait has a bound.
"""

from collections.abc import Callable
from typing import Final

from dledger_formats.settings import NodeSettings
from dledger_node.errors import StoreDamagedError
from dledger_node.raft.core import Raft

TIMEOUTS_MAX: Final = 2
"""Election timeouts after which a damaged leader leaves, whether or not another member leads."""


class Departure:
    """Waits, for a bounded time, until another member leads."""

    def __init__(
        self,
        core: Raft,
        turn: Callable[[Callable[[], None]], None],
        now_s: Callable[[], float],
        settings: NodeSettings,
    ) -> None:
        """`turn` gives the core an input and runs the resulting work."""
        self._core = core
        self._turn = turn
        self._now_s = now_s
        self._timeout_s = TIMEOUTS_MAX * settings.election_timeout_ms / 1000
        self._damage: StoreDamagedError | None = None
        self._deadline_s = 0.0
        self._asked_ids: set[str] = set()

    def begin(self, damage: StoreDamagedError) -> None:
        """Begin to hand over, if this member leads."""
        if self._damage is None:
            self._damage, self._deadline_s = damage, self._now_s() + self._timeout_s
            self._ask_next()

    @property
    def begun(self) -> bool:
        """Whether this member is about to leave."""
        return self._damage is not None

    def due(self) -> StoreDamagedError | None:
        """Return the damage once the member may leave; called at every tick."""
        if self._damage is None:
            return None
        waits = self._now_s() < self._deadline_s and self._ask_next()
        return None if waits else self._damage

    def _ask_next(self) -> bool:
        """Ask a fit peer to lead, unless a transfer is under way; return whether one is now."""
        if self._core.leads and self._core.transferee_id is None:
            fit_ids = [one for one in self._core.fit_peer_ids if one not in self._asked_ids]
            if fit_ids:
                self._asked_ids.add(fit_ids[0])
                self._turn(lambda: self._transfer_to(fit_ids[0]))
        return self._core.leads and self._core.transferee_id is not None

    def _transfer_to(self, peer_id: str) -> None:
        self._core.transfer_leadership(peer_id)
