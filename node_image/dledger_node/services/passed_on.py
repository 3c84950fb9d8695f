"""Appends that a follower passes on to its leader, and the leader's answers.

A client that knows only a Kubernetes Service reaches a follower while the Service still points to
the old leader. Such a client marks its requests (`passing_on.PASS_ON_FLAG`). The follower then
sends its plain appends to the leader that it knows, and returns the leader's answers. No append is
passed on twice: two members may take each other for the leader. The request names the group's
identity, because the address may belong to another group by now.

An append that the leader may have read is never refused here: without the leader's answer, its
outcome is unknown.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from dledger_formats.peers import split_address
from dledger_formats.protocol import frames, passing_on, requests
from dledger_formats.protocol.append_batch import APPEND_BATCH, AppendBatchRequest
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.go_away import TAKES_GO_AWAY_FLAG
from dledger_formats.settings import PASSED_ON, NodeSettings
from dledger_node.drain import Drain
from dledger_node.raft.core import Raft
from dledger_node.remoting.connection_views import WritableConnection
from dledger_node.remoting.leader_link import LeaderLink
from dledger_node.remoting.service import AppendCall, BatchCall, ClientCall
from dledger_node.services.answering import Answering
from dledger_node.services.pending_by_address import PendingByAddress
from dledger_node.services.waiting import ANSWER_WAIT_S

REQUESTS_MAX: Final = 1024
"""Requests that may wait for their answers."""
BYTES_MAX: Final = 16 << 20
"""Bytes of their frames; a longer request is passed on if no other waits."""
LEADER_WAIT_S: Final = 2 * ANSWER_WAIT_S + 0.5
"""Longest wait for an answer. A leader may hold an append for ANSWER_WAIT_S until its log has room,
and then for as long until a quorum holds it.
"""
HEADER_BYTES: Final = 512
"""A frame's header takes less than this."""


class Identity(Protocol):
    """The identity of the group."""

    @property
    def value(self) -> str:
        """The identity; empty if this member knows none."""

    def is_strange(self, identity: str) -> bool:
        """Return whether a member with this identity does not belong to this group."""


class Passed(NamedTuple):
    """A request that waits for the leader's answer."""

    call: AppendCall | BatchCall
    frame_bytes: int
    deadline_s: float


class PassedOn:
    """The appends that this member has passed on, with one connection to each leader."""

    def __init__(self, settings: NodeSettings, core: Raft, identity: Identity) -> None:
        self._group = settings.group
        self._addresses = settings.known_peers
        self._frame_bytes_max = settings.client_frame_bytes_max
        self._is_on = settings.appends_to_followers == PASSED_ON
        self._core = core
        self._identity = identity
        self._by_address = PendingByAddress(settings.client_pending_appends_max)
        self._now_s = asyncio.get_running_loop().time
        self._links: dict[str, LeaderLink[Passed]] = {}
        """The connections that are open or being opened, by the leader's id."""
        self._waiting_count = self._waiting_bytes = 0
        self._answering = Answering()
        self._drain = Drain()
        self.count = 0
        """Number of entries that were passed on since the start."""

    def take_settings(self, settings: NodeSettings) -> None:
        """Apply the limits on one request, and on what waits for one address."""
        self._frame_bytes_max = settings.client_frame_bytes_max
        waiting = [passed.call for link in self._links.values() for passed in link.waiting]
        self._by_address.take_limit(settings.client_pending_appends_max, waiting)

    @property
    def leader_id(self) -> str | None:
        """The leader that gets appends from this member; None if it must not pass any on."""
        leader_id = self._core.leader_id
        if not self._is_on or self._core.leads or leader_id not in self._addresses:
            return None
        return leader_id

    def is_foreign(self, command: RemotingCommand) -> bool:
        """Return whether another member passed this append on, but not for this group."""
        named = (command.ext_fields or {}).get(passing_on.GROUP_IDENTITY_FIELD, "")
        return self._identity.is_strange(named)

    def pass_on(self, call: AppendCall | BatchCall) -> None:
        """Pass on a plain append; its caller gets the leader's answer.

        There must be a `leader_id`.
        """
        leader_id = self.leader_id
        assert leader_id is not None
        body = self._body(leader_id, call)
        frame_bytes = len(body) + HEADER_BYTES
        if frame_bytes > self._frame_bytes_max:  # the leader would cut the connection
            self._refuse([call], DLedgerResponseCode.NOT_LEADER)
        elif (refused := self._refusal(frame_bytes, call)) is not None:
            self._refuse([call], refused)
        else:
            self._send(self._links.get(leader_id) or self._link_to(leader_id), call, body)

    def _send(self, link: LeaderLink[Passed], call: AppendCall | BatchCall, body: bytes) -> None:
        opaque = link.next_opaque()
        frame = frames.encode(
            RemotingCommand(
                code=APPEND_BATCH if isinstance(call, BatchCall) else RequestCode.APPEND,
                opaque=opaque,
                flag=passing_on.PASSED_ON_FLAG | TAKES_GO_AWAY_FLAG,
                ext_fields={passing_on.GROUP_IDENTITY_FIELD: self._identity.value},
                body=body,
            )
        )
        self._waiting_count += 1
        self._waiting_bytes += len(frame)
        self._by_address.add([call])
        self.count += call.entry_count
        link.send(opaque, frame, Passed(call, len(frame), self._now_s() + LEADER_WAIT_S))

    @property
    def next_deadline_s(self) -> float:
        """No deadline of a waiting request is earlier than this time."""
        return min((link.oldest_deadline_s for link in self._links.values()), default=math.inf)

    def expire(self, now_s: float) -> None:
        """Close connections whose leader answers too late: it hangs, or is out of reach."""
        for link in list(self._links.values()):
            if link.oldest_deadline_s <= now_s:
                link.abort()

    async def drained(self) -> None:
        """Stop passing appends on, and return once no request waits for its answer.

        A member that closed earlier would give its clients unknown outcomes.
        """
        self._is_on = False
        await self._drain.wait(self._waiting_count)

    def give_up(self) -> None:
        """Answer every request that still waits: this member stops."""
        self._is_on = False
        for link in list(self._links.values()):
            link.abort()
        self._answering.send_rest()

    def _refusal(
        self, frame_bytes: int, call: AppendCall | BatchCall
    ) -> DLedgerResponseCode | None:
        """Return why a request must not wait here; None if it may."""
        if self._by_address.active and (excess := self._by_address.excess([call])):
            return excess[0][1]
        fits = self._waiting_bytes + frame_bytes <= BYTES_MAX
        if self._waiting_count and not (fits and self._waiting_count < REQUESTS_MAX):
            return DLedgerResponseCode.LEADER_PENDING_FULL
        return None

    def _body(self, leader_id: str, call: AppendCall | BatchCall) -> bytes:
        """Return the body of the request for the leader."""
        group = self._group
        if isinstance(call, AppendCall):
            return requests.AppendEntryRequest(
                group=group, remote_id=leader_id, body=call.body
            ).to_json()
        return AppendBatchRequest(group=group, remote_id=leader_id, bodies=call.bodies).to_bytes()

    def _link_to(self, leader_id: str) -> LeaderLink[Passed]:
        """Connect to a leader; close the connections to former ones on which nothing waits."""
        for former in list(self._links.values()):
            if former.oldest_deadline_s == math.inf:
                former.abort()
        link = self._links[leader_id] = LeaderLink[Passed](self, leader_id)
        link.open(*split_address(self._addresses[leader_id]))
        return link

    # -- called by the connections ---------------------------------------------------------------

    def answered(self, answers: Sequence[tuple[Passed, RemotingCommand]]) -> None:
        """Return the leader's answers, with one write for each caller."""
        written: dict[WritableConnection, list[bytes]] = {}
        for passed, answer in answers:
            self._forget(passed)
            own = RemotingCommand(
                code=answer.code,
                opaque=passed.call.opaque,
                flag=frames.RESPONSE_FLAG,
                remark=answer.remark,
                body=answer.body,
            )
            written.setdefault(passed.call.connection, []).append(frames.encode(own))
        for connection, parts in written.items():
            connection.send(b"".join(parts))

    def lost(self, leader_id: str, waiting: Sequence[Passed], *, were_sent: bool) -> None:
        """Answer what waited on a connection that is gone.

        Requests that were not sent are refused without naming a leader: the client knows only this
        member's Service, and would not repeat the append if the refusal named a leader to follow.
        """
        self._links.pop(leader_id, None)
        code = DLedgerResponseCode.NOT_LEADER
        if were_sent:
            code = DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT  # the outcome is unknown
        for passed in waiting:
            self._forget(passed)
        self._refuse([passed.call for passed in waiting], code, names_leader=were_sent)

    def _forget(self, passed: Passed) -> None:
        self._waiting_count -= 1
        self._waiting_bytes -= passed.frame_bytes
        self._by_address.remove([passed.call])
        self._drain.notice(self._waiting_count)

    def _refuse(
        self, calls: Sequence[ClientCall], code: DLedgerResponseCode, *, names_leader: bool = True
    ) -> None:
        core = self._core
        leader_id = core.leader_id if names_leader else None
        answer = requests.AppendEntryResponse(
            code=code, group=self._group, leader_id=leader_id, term=core.term
        )
        self._answering.send_to_all(calls, answer.to_json())
