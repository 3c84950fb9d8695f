"""Heartbeats (34) and clients that leave (35), at the member that the client is connected to.

A heartbeat that says nothing new is answered here. Any other goes to the leader, which writes that
the client joins. It is answered once this member lists the client, since a client that asks for the
list at once must find itself there.
"""

import asyncio
from dataclasses import dataclass

from dledger_broker.door.calls.call import Call
from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.door.consumer_groups.group_clients import Client, GroupClients
from dledger_broker.door.consumer_groups.group_requests import BEAT
from dledger_broker.door.consumer_groups.presence import Presence
from dledger_broker.door.consumer_groups.read_heartbeats import LastHeartbeats
from dledger_broker.door.passing_on.to_leader import ToLeader
from dledger_broker.door.passing_on.waiting import DOUBT_S
from dledger_broker.leading.client_leases import ClientLeases
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.protocol.frames import FrameDecoder
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.consumer_groups import UnregisterClientFields


class Heartbeats:
    """Takes what clients say about the groups that they belong to."""

    def __init__(
        self,
        owner: LogOwner,
        clients: GroupClients,
        leases: ClientLeases,
        presence: Presence,
        to_leader: ToLeader,
    ) -> None:
        self._owner = owner
        self._clients = clients
        self._leases = leases
        self._presence = presence
        self._to_leader = to_leader
        self._now_s = asyncio.get_running_loop().time
        self._last = LastHeartbeats()
        self._joined: list[_Joining] = []
        """Heartbeats that the leader has answered, but whose clients this member does not list."""

    @property
    def is_idle(self) -> bool:
        """Whether no answer waits until this member lists a client."""
        return not self._joined

    def beat(self, call: Call) -> None:
        """Take every part of a heartbeat that is not refused. Raises FormatError, RefusedError."""
        heartbeat = self._last.read(call.connection, call.command.body)
        client, refusal, _ = heartbeat
        memberships = [(group, client.client_id) for group in client.consumers]
        says_nothing_new = all(map(self._clients.holds, memberships)) and self._lists(client)
        is_leaving = any(map(self._leases.is_leaving, memberships))
        for gone in self._clients.seen(call.connection, client):
            self._presence.gone(gone)
        self._last.keep(call.connection, heartbeat)
        for membership in memberships:
            self._presence.seen(membership)
        if says_nothing_new and not is_leaving:
            _answer(call, refusal)
        else:
            joining = _Joining(self, call, client, refusal)
            self._to_leader.take(
                Call(joining, call.command, self._to_leader, arrived_s=call.arrived_s)
            )

    def leave(self, call: Call) -> None:
        """Let a client leave a group. Raises FormatError."""
        group = call.fields(UnregisterClientFields).consumer_group
        if group is None:
            call.answer(ResponseCode.SUCCESS)
            return
        for gone in self._clients.left(call.connection, group):
            self._presence.gone(gone)
        self._last.forget(call.connection)
        self._to_leader.take(call)

    def forget(self, connection: BrokerConnection) -> None:
        """Forget a connection that is gone."""
        for gone in self._clients.forget(connection):
            self._presence.gone(gone)
        self._last.forget(connection)

    def answered(self, joining: "_Joining") -> None:
        """Answer as the leader did, now or once this member has applied what the leader wrote."""
        [answer] = FrameDecoder().feed(joining.answer)
        if answer.code != ResponseCode.SUCCESS and self._to_leader.has_incapable_leader:
            # This member knows the client now, and the leader gets the client's own heartbeats.
            _answer(joining.call, joining.refusal)
        elif answer.code != ResponseCode.SUCCESS:
            joining.call.channel.send(joining.answer)
        elif self._lists(joining.client):
            joining.finish()
        else:
            self._joined.append(joining)

    def go_on(self) -> None:
        """Answer the clients that this member lists now, or that have waited for too long."""
        waiting, self._joined = self._joined, []
        now_s = self._now_s()
        for joining in waiting:
            if self._lists(joining.client) or now_s >= joining.call.arrived_s + DOUBT_S:
                joining.finish()
            else:
                self._joined.append(joining)

    def _lists(self, client: Client) -> bool:
        """Return whether this member lists a client with all that it says."""
        state = self._owner.state
        configs = state.tables.groups.configs
        return all(
            group in configs and state.consumer(group, client.client_id) == consumer
            for group, consumer in client.consumers.items()
        )


def _answer(call: Call, refusal: RefusedError | None) -> None:
    """Answer a heartbeat for which nothing has to be written."""
    if refusal is not None:
        call.refuse(refusal)
    else:
        call.answer(ResponseCode.SUCCESS, BEAT)


@dataclass(eq=False, slots=True)
class _Joining:
    """A heartbeat on its way to the leader; also the channel that receives the leader's answer."""

    heartbeats: Heartbeats
    call: Call
    client: Client
    refusal: RefusedError | None
    """The answer instead of success, if a part of the heartbeat does not count."""
    answer: bytes = b""
    reads_waiting: int = 0

    @property
    def born_host(self) -> bytes:
        """The client's address."""
        return self.call.channel.born_host

    def finish(self) -> None:
        """Answer the client, which has joined."""
        if self.refusal is not None:
            self.call.refuse(self.refusal)
        else:
            self.call.channel.send(self.answer)

    def send(self, data: bytes) -> None:
        """Take the leader's answer; there is none to a one-way request."""
        if data:
            self.answer = data
            self.heartbeats.answered(self)

    def go_on(self) -> None:
        """Do nothing: no read waits."""
