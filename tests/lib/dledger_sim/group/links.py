"""A member's links: `dledger_node.shell.loop.Links` on a simulated network."""

from collections.abc import Callable, Sequence
from typing import Final

from dledger_node.raft.messages import (
    AppendRequest,
    InstallSnapshotRequest,
    Message,
    PreVoteRequest,
    TakeLeadershipRequest,
)
from dledger_sim.group.disk import SimDisk
from dledger_sim.group.moments import Moment
from dledger_sim.group.pushed import filled
from dledger_sim.group.world import World

SENDING_MOMENTS: Final[dict[type[Message], Moment]] = {
    AppendRequest: Moment.APPEND_SENT,
    PreVoteRequest: Moment.STANDS,
    TakeLeadershipRequest: Moment.HANDS_OVER,
}


class SimLinks:
    """Sends messages. The member may crash before each one, and a push may be split."""

    def __init__(
        self,
        member_id: str,
        disk: SimDisk,
        world: World,
        *,
        perhaps_die: Callable[[], None],
    ) -> None:
        """`perhaps_die` raises DiedError at random."""
        self._member_id = member_id
        self._disk = disk
        self._world = world
        self._perhaps_die = perhaps_die
        self._site_split = f"split push {member_id}"

    def send(self, messages: Sequence[Message]) -> None:
        """Show messages to the checker, and send them over the network."""
        self._world.checker.pushes.sending_batch()
        for message in messages:
            self._perhaps_die()
            self._send(message)

    def _send(self, message: Message) -> None:
        world = self._world
        world.checker.sending(message)
        moment = SENDING_MOMENTS.get(type(message))
        if moment is not None:
            world.moment(moment, self._member_id)
        if isinstance(message, InstallSnapshotRequest):
            message = filled(message, self._disk, world.checker.rot)
        if not isinstance(message, AppendRequest):
            world.send(message)
            return
        middle = message.last_index
        rate = world.conditions.split_push
        if message.first_index < middle and world.choices.chance(self._site_split, rate):
            middle = (message.first_index + message.last_index) // 2
            world.send(filled(message.until(middle), self._disk, world.checker.rot))
            world.send(filled(message.after(middle), self._disk, world.checker.rot))
        else:
            world.send(filled(message, self._disk, world.checker.rot))
