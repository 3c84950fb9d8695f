"""The group around a member, as the member sees it."""

from collections.abc import Callable
from typing import Any, Protocol

from dledger_node.remoting.native import PeerMessage
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.moments import Moment
from dledger_sim.judges.checker import Checker
from dledger_sim.runs.choices import Choices


class World(Protocol):
    """What a member needs of the group around it."""

    now_us: int
    conditions: Conditions
    """Those of now: at last all is calm."""
    choices: Choices
    checker: Checker

    def send(self, message: PeerMessage) -> None:
        """Let a message travel."""

    def later(
        self,
        member_id: str,
        delay_us: int,
        what: str,
        action: Callable[..., None],
        *arguments: Any,
    ) -> None:
        """Let a thread of a member do something, unless the member dies before."""

    def save_takes_a_while(self, member_id: str) -> None:
        """Let a member's hard state reach its disk later, unless the member dies before."""

    def flush_begins(self, member_id: str) -> None:
        """Let a member's flush finish later, unless the member dies before."""

    def moment(self, moment: Moment, member_id: str) -> None:
        """Tell the nemesis that its chance has come."""
