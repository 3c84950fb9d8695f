"""When and to which peer a leader hands over if its volume is full or its disk hangs.

A peer that declines, because its state is behind, costs only a round trip. The next peer is then
asked at once, since appends fail until another member leads.
"""

from collections.abc import Callable
from typing import Final

from dledger_node.raft.core import Raft
from dledger_node.volume.health import VolumeHealth, transfer_leadership

DECLINED_PAUSE_S: Final = 1.0
"""Time after which a leader without room tries again, once all fit peers have declined."""


class VolumeHandover:
    """Makes the attempts that `VolumeHealth` asks for, and repeats one that a peer has declined."""

    def __init__(
        self, core: Raft, health: VolumeHealth, turn: Callable[[Callable[[], None]], None]
    ) -> None:
        """`turn` gives the core an input and runs the resulting work."""
        self._core = core
        self._health = health
        self._turn = turn
        self._attempt = 0
        self._asked_id: str | None = None
        """The peer that the attempt under way has asked; None if none is under way."""

    def watch(self) -> None:
        """Make the attempt that is due, if one is; called at every tick."""
        if self._asked_id is not None and self._core.transferee_id != self._asked_id:
            if self._asked_id in self._core.declined_peer_ids:
                self._health.repeat_transfer(self._attempt, 0.0)
            self._asked_id = None
        attempt = self._health.check(leads=self._core.leads)
        if attempt is None:
            return
        self._turn(lambda: transfer_leadership(self._core, attempt))
        if self._health.stalled:
            return  # this member receives no answer, and steps down
        self._attempt, self._asked_id = attempt, self._core.transferee_id
        if self._core.declined_peer_ids and not self._core.fit_peer_ids:
            self._health.repeat_transfer(attempt, DECLINED_PAUSE_S)
