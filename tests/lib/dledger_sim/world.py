"""The group around a member, as the member sees it."""

from typing import Protocol

from dledger_node.raft.messages import Message
from dledger_sim.checker import Checker
from dledger_sim.choices import Choices
from dledger_sim.moments import Moment


class World(Protocol):
    """What a member needs of the group around it."""

    now_us: int
    choices: Choices
    checker: Checker

    def send(self, message: Message) -> None:
        """Let a message travel."""

    def moment(self, moment: Moment, member_id: str) -> None:
        """Tell the nemesis that its chance has come."""
