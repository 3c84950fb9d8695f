"""How a member with damage that it cannot mend leaves the group: a leader hands over first."""

from collections.abc import Callable

from dledger_formats.settings import NodeSettings
from dledger_node.errors import StoreDamagedError
from dledger_node.raft.core import Raft
from dledger_node.volume.health import transfer_leadership


class Departure:
    """Waits, at most an election timeout, until another member leads."""

    def __init__(
        self,
        core: Raft,
        turn: Callable[[Callable[[], None]], None],
        now_s: Callable[[], float],
        settings: NodeSettings,
    ) -> None:
        self._core = core
        self._turn = turn
        self._now_s = now_s
        self._timeout_s = settings.election_timeout_ms / 1000
        self._damage: StoreDamagedError | None = None
        self._deadline_s = 0.0

    def begin(self, damage: StoreDamagedError) -> None:
        """Begin to hand over, if this member leads."""
        if self._damage is None:
            self._damage, self._deadline_s = damage, self._now_s() + self._timeout_s
            self._turn(lambda: transfer_leadership(self._core))

    @property
    def begun(self) -> bool:
        """Whether this member is about to leave."""
        return self._damage is not None

    def due(self) -> StoreDamagedError | None:
        """Return the damage once the member may leave; called at every tick."""
        if self._damage is None:
            return None
        waits = self._core.leads and self._core.fit_peer_ids and self._now_s() < self._deadline_s
        return None if waits else self._damage
