"""The interface between a member and the group around it."""

from collections.abc import Callable
from typing import Any, Protocol

from dledger_node.remoting.message_kinds import PeerMessage
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.moments import Moment
from dledger_sim.group.snapshots import States
from dledger_sim.judges.checker import Checker
from dledger_sim.runs.choices import Choices


class World(Protocol):
    """Services of the group that a member uses."""

    now_us: int
    conditions: Conditions
    """The current conditions; calm after the faults have ended."""
    choices: Choices
    checker: Checker
    states: States
    """The kind of state that members keep."""

    def send(self, message: PeerMessage) -> None:
        """Send a message over the network."""

    def later(
        self,
        member_id: str,
        delay_us: int,
        what: str,
        action: Callable[..., None],
        *arguments: Any,
    ) -> None:
        """Let a thread of a member act later, unless the member crashes before."""

    def save_takes_a_while(self, member_id: str) -> None:
        """Finish a save, or a change of the log, later, unless the member crashes before."""

    def flush_begins(self, member_id: str) -> None:
        """Finish a member's flush later, unless the member crashes before."""

    def moment(self, moment: Moment, member_id: str) -> None:
        """Notify the nemesis of a moment."""
