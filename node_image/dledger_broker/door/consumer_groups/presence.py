"""What this member reports to the leader about the clients that are connected to it.

A client may be connected to any member, but only the leader removes the silent ones. So each member
notes whose heartbeats it has received and whose last connection has closed, and reports that soon.
Every 5 s it reports that it is alive. A leader that does not know the member asks for all of its
clients. Each is reported with the time since its last heartbeat, so that its heartbeat is equally
old to every leader.

If a member had no leader for long, or stood still, its clients may have gone to another one, to
which they send no heartbeat for up to 30 s. So the member then reports as one that has just
started.
"""

import itertools
import math
from collections.abc import Callable
from typing import Final

from dledger_broker.door.between_members.door_frames import PRESENCE, PresenceNote, encode_presence
from dledger_broker.door.calls.call import Call
from dledger_broker.door.consumer_groups.group_clients import GroupClients
from dledger_broker.door.passing_on.to_leader import ToLeader
from dledger_broker.leading.client_leases import ADOPTED_S, SILENT_S, Membership
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.rocketmq.codes import ResponseCode

ALIVE_S: Final = 5.0
PART_MAX: Final = 1000
"""Memberships in one note, so that a note takes a few milliseconds."""
RETRY_S: Final = 0.5
OUT_OF_TOUCH_S: Final = 3.0
"""Clients that get no answer for so long may go to another member."""


class Presence:
    """Collects what is to be reported to the leader; also the channel of the answers."""

    born_host = bytes(8)

    def __init__(
        self,
        self_id: str,
        clients: GroupClients,
        to_leader: ToLeader,
        now_s: Callable[[], float],
        may_send: Callable[[], bool],
    ) -> None:
        """`may_send` returns whether there is a leader, and this member is not stopping."""
        self.reads_waiting = 0
        self._self_id = self_id
        self._clients = clients
        self._to_leader = to_leader
        self._now_s = now_s
        self._may_send = may_send
        self._changes: dict[Membership, bool] = {}
        """Whether a membership was seen; False for one whose last connection has closed."""
        self._beaten_s: dict[Membership, float] = {}
        """When the last heartbeat of each came."""
        self._must_send_all = True
        self._left_of_all = 0
        """How many clients are still to be reported until the leader knows of all."""
        self._is_new = True
        """Whether no leader has taken a note since this process started, or was out of touch."""
        self._new_until_s = now_s() + ADOPTED_S
        """Until when earlier clients may be elsewhere, and silent."""
        self._moved_until_s = -math.inf
        """Until when a client whose connection has closed may be elsewhere, and silent."""
        self._in_touch_s = math.inf
        """When there was last a leader."""
        self._is_waiting = False
        """Whether a note has no answer yet."""
        self._next_s = 0.0
        self._last = 0
        """The number of the last note."""

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is left to be reported to the leader now."""
        return not (self._is_waiting or self._changes or self._must_send_all)

    def seen(self, membership: Membership) -> None:
        """Record a heartbeat."""
        self._changes[membership] = True
        self._beaten_s[membership] = self._now_s()

    def gone(self, membership: Membership) -> None:
        """Record that the last connection of a client to this member has closed."""
        self._changes[membership] = False
        self._beaten_s.pop(membership, None)

    def leader_changed(self) -> None:
        """Report everything to another leader."""
        self._must_send_all = True
        self._next_s = 0.0

    def tick(self) -> None:
        """Send the next note, if it is time."""
        now_s, may_send = self._now_s(), self._may_send()
        if may_send:
            if now_s - self._in_touch_s >= OUT_OF_TOUCH_S:
                self._begin_again(now_s)
            self._in_touch_s = now_s
        if self._is_waiting or (now_s < self._next_s and not self._changes):
            return
        if not may_send:
            return
        note = self._next_note(now_s)
        self._is_waiting = True
        self._next_s = now_s + ALIVE_S
        self._last += 1
        command = RemotingCommand(code=PRESENCE, opaque=self._last, body=encode_presence(note))
        self._to_leader.take(Call(self, command, self._to_leader, now_s))

    def _begin_again(self, now_s: float) -> None:
        """Report everything, as a member that has just started does."""
        self._is_new = True
        self._new_until_s = self._moved_until_s = now_s + ADOPTED_S
        self.leader_changed()

    def _next_note(self, now_s: float) -> PresenceNote:
        """Return the next note, and forget what it reports."""
        is_first, self._must_send_all = self._must_send_all, False
        if is_first:
            self._changes.update(dict.fromkeys(self._clients.held(), True))
            self._left_of_all = len(self._changes)
        part = list(itertools.islice(self._changes.items(), PART_MAX))
        for membership, _ in part:
            del self._changes[membership]
        is_of_all = is_first or self._left_of_all > 0
        self._left_of_all = max(0, self._left_of_all - len(part))
        may_have_moved = now_s < self._moved_until_s
        seen = [each for each in part if each[1] or may_have_moved]
        return PresenceNote(
            self._self_id,
            is_first,
            [membership for membership, _ in seen],
            [membership for membership, is_seen in part if not (is_seen or may_have_moved)],
            self._is_new or now_s < self._new_until_s,
            is_of_all and not self._left_of_all,
            [self._age_s(membership, now_s, is_seen=is_seen) for membership, is_seen in seen],
        )

    def _age_s(self, membership: Membership, now_s: float, *, is_seen: bool) -> int:
        """Return the age of a heartbeat, in whole seconds.

        The age of a client that may have moved leaves it `ADOPTED_S`.
        """
        if not is_seen:
            return int(SILENT_S - ADOPTED_S)
        return int(now_s - self._beaten_s.get(membership, now_s))

    def send(self, data: bytes) -> None:
        """Take the leader's answer."""
        [answer] = FrameDecoder().feed(data)
        self._is_waiting = False
        if answer.code == ResponseCode.SUCCESS:
            self._is_new = False
        else:
            self._must_send_all = True
            self._next_s = self._now_s() + RETRY_S

    def go_on(self) -> None:
        """Do nothing: no read waits."""
