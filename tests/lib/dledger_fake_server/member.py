"""One server of a group. Tests choose its responses."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dledger_fake_server.administration import change, transfer
from dledger_fake_server.behavior import Behavior, Fault
from dledger_fake_server.connection import Connection
from dledger_fake_server.followers import Followers
from dledger_fake_server.listener import Listener
from dledger_fake_server.stored import range_answer
from dledger_formats.protocol.append_batch import APPEND_BATCH, split
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode
from dledger_formats.protocol.follow import FOLLOW, ONLY_THE_ENDS, FollowRequest, FollowResponse
from dledger_formats.protocol.frames import RemotingCommand, encode, encode_responses
from dledger_formats.protocol.membership_change import CHANGE_MEMBERSHIP
from dledger_formats.protocol.producers import (
    APPEND_IDEMPOTENT,
    APPEND_IDEMPOTENT_BATCH,
    REGISTER_PRODUCER,
    IdempotentAppendRequest,
    IdempotentBatchEnvelope,
    RegisterProducerRequest,
    RegisterProducerResponse,
)
from dledger_formats.protocol.read_range import READ_RANGE, ReadRangeRequest
from dledger_formats.protocol.requests import (
    AppendEntryRequest,
    AppendEntryResponse,
    GetEntriesRequest,
    GetEntriesResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    Request,
)

if TYPE_CHECKING:
    from dledger_fake_server.group import Group

Code = DLedgerResponseCode
FollowRequestT = TypeVar("FollowRequestT", FollowRequest, ReadRangeRequest)


@dataclass(eq=False, kw_only=True)
class Member:
    """One server. `script` holds its behavior for the next appends; then it succeeds."""

    group: "Group"
    member_id: str
    port: int = 0
    needs_remote_id: bool = False
    """Whether METADATA must contain the member's id, as for Java servers."""
    reads_only_numbers: bool = False
    """Whether bytes must be arrays of numbers, as for Java DLedger 0.4.3."""
    supports_follow: bool = True
    """False for Java servers."""
    supports_producers: bool = True
    """False for Java servers."""
    names_voters: bool = False
    """Whether METADATA names the voters, so that clients use batches."""
    supports_batches: bool = False
    """False for Java servers. A batch consumes one behavior of `script`."""
    serves_reads: bool = False
    """Whether the member answers reads that any member may answer while it does not lead."""
    supports_ranges: bool = False
    """Whether the member has READ_RANGE; false for Java servers."""
    holds_reads: bool = True
    """Whether requests wait for an entry; false as if too many requests waited already."""
    ranges: list[int] = field(default_factory=list)
    """The first index of every READ_RANGE."""
    spoil: Callable[[bytes], bytes] = bytes
    """Changes the stored entries of every answer to READ_RANGE."""
    registrations: deque[Behavior] = field(default_factory=deque)
    """Behavior for the next registrations; then they succeed."""
    begin_index: int = 0
    """Index of the first entry in the log."""
    entries_per_answer: int = 1
    entries_per_answers: list[int] = field(default_factory=list)
    """The number of entries for each of the next responses."""
    leader_hint: str | None = "the group's"
    """The leader that the member reports."""
    identity: str = ""
    """The identity of the group, as the member reports it."""
    stale_term: int | None = None
    """The term that the member reports, if it differs from the group's."""
    script: deque[Behavior] = field(default_factory=deque)
    is_frozen: bool = False
    """Whether the member reads requests but answers none."""
    dead: set[Connection] = field(default_factory=set)
    """Connections on which nothing is answered any more."""
    appends: list[bytes] = field(default_factory=list)
    """The body of every append received, in order."""
    batches: list[list[bytes]] = field(default_factory=list)
    """The bodies of every APPEND_BATCH and APPEND_IDEMPOTENT_BATCH."""
    metadata_requested: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every METADATA."""
    transfers: deque[Behavior] = field(default_factory=deque)
    """Behavior for the next transfers; then they succeed."""
    changes: deque[Behavior] = field(default_factory=deque)
    """Behavior for the next changes of the membership; then they succeed without an effect."""
    followers: Followers = field(default_factory=Followers)
    """The FOLLOW and READ_RANGE requests that wait for an entry."""
    append_received: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every append."""
    largest_read: int = 0
    """The largest number of requests in one read."""
    connections: set[Connection] = field(default_factory=set)
    listener: Listener = field(default_factory=Listener)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def leader_id(self) -> str | None:
        return self.group.leader_id if self.leader_hint == "the group's" else self.leader_hint

    async def start(self) -> None:
        self.port = await self.listener.open(lambda: Connection(self), self.port)

    async def stop(self) -> None:
        """Stop like a killed process. No other process gets the port meanwhile."""
        await self.listener.close(self.connections)

    async def end(self) -> None:
        """Stop, and leave the port to others."""
        await self.stop()
        self.listener.give_port_back()

    def stop_reading(self) -> None:
        """Stop reading, so that clients' requests accumulate on their side."""
        for connection in self.connections:
            connection.transport.pause_reading()

    def vanish(self) -> None:
        """Answer only on connections that are made from now on, as the pod does that comes after
        one whose host has vanished.
        """
        self.dead |= self.connections

    def send_to_all(self, command: RemotingCommand) -> None:
        """Send a frame to every client."""
        for connection in self.connections:
            connection.transport.write(encode(command))

    def handle(self, command: RemotingCommand, connection: Connection) -> bytes | Fault:
        """Return the response frame, or a fault."""
        if self.is_frozen or connection in self.dead:
            return Fault.NO_ANSWER
        try:
            if command.code == FOLLOW and self.supports_follow:
                return self._follow(command, connection)
            if command.code == READ_RANGE and self.supports_ranges:
                return self._read_range(command, connection)
            answer = self._answer(command)
        except ValueError as error:
            remark = f"com.alibaba.fastjson2.JSONException: illegal input : {error}"
            answer = RemotingCommand(code=1, flag=1, opaque=command.opaque, remark=remark)
        if isinstance(answer, Fault):
            return answer
        if isinstance(answer, Message):
            return encode_responses([(command.opaque, answer.to_json())])
        return encode(
            RemotingCommand(
                code=answer.code,
                flag=1,
                opaque=command.opaque,
                remark=answer.remark,
                body=answer.body,
            )
        )

    def _answer(self, command: RemotingCommand) -> Message | RemotingCommand | Fault:
        if command.code == RequestCode.METADATA:
            self.metadata_requested.set()
            return self._metadata(MetadataRequest.from_json(command.body))
        if command.code == RequestCode.APPEND:
            request = AppendEntryRequest.from_json(self._readable(command.body))
            return self._append(request, [request.body])
        if command.code == APPEND_IDEMPOTENT and self.supports_producers:
            once = IdempotentAppendRequest.from_json(command.body)
            return self._append(once, [once.body])
        if command.code == APPEND_BATCH and self.supports_batches:
            envelope, bodies = split(command.body)
            self.batches.append(bodies)
            return self._append(Request.from_json(envelope), bodies)
        if command.code == APPEND_IDEMPOTENT_BATCH and self.supports_batches:
            encoded, bodies = split(command.body)
            self.batches.append(bodies)
            return self._append(IdempotentBatchEnvelope.from_json(encoded), bodies)
        if command.code == REGISTER_PRODUCER and self.supports_producers:
            return self._register(RegisterProducerRequest.from_json(command.body))
        if command.code == RequestCode.GET:
            return self._get(GetEntriesRequest.from_json(command.body))
        if command.code == RequestCode.LEADERSHIP_TRANSFER:
            return transfer(self, command.body)
        if command.code == CHANGE_MEMBERSHIP:
            return change(self, command.body)
        return RemotingCommand(code=3, opaque=0, remark="request type not supported")

    def refusal(self, request: Request, *, of_metadata: bool = False) -> DLedgerResponseCode:
        """Return why the member does not serve a request, or SUCCESS."""
        needs_id = self.needs_remote_id or not of_metadata or request.remote_id is not None
        if needs_id and request.remote_id != self.member_id:
            return Code.UNKNOWN_MEMBER
        if request.group != self.group.name:
            return Code.UNKNOWN_GROUP
        serves = self.serves_reads and getattr(request, "consistency", None) is not None
        if not of_metadata and self.leader_id != self.member_id and not serves:
            return Code.NOT_LEADER
        return Code.SUCCESS

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        code = self.refusal(request, of_metadata=True)
        if code is not Code.SUCCESS:
            return MetadataResponse(code=code, group=request.group, remote_id=request.remote_id)
        return MetadataResponse(
            group=self.group.name,
            leader_id=self.leader_id,
            local_id=None if self.needs_remote_id else self.member_id,
            peers={member.member_id: member.address for member in self.group.members.values()},
            voters=tuple(self.group.members) if self.names_voters else (),
            group_identity=self.identity,
            term=-1 if self.needs_remote_id else self.stale_term or self.group.term,
        )

    def _readable(self, body: bytes) -> bytes:
        if self.reads_only_numbers and b'"body":[' not in body:
            raise ValueError("eA==, offset 16")
        return body

    def _register(
        self, request: RegisterProducerRequest
    ) -> RegisterProducerResponse | RemotingCommand | Fault:
        behavior: Behavior = self.registrations.popleft() if self.registrations else Code.SUCCESS
        if behavior is Code.SUCCESS:
            behavior = self.refusal(request)
        if not isinstance(behavior, DLedgerResponseCode):
            return behavior
        producer = self.group.producers.register() if behavior is Code.SUCCESS else -1
        return RegisterProducerResponse(code=behavior, leader_id=self.leader_id, producer=producer)

    def _append(
        self, request: Request, bodies: list[bytes]
    ) -> AppendEntryResponse | RemotingCommand | Fault:
        self.appends += bodies
        self.append_received.set()
        behavior: Behavior = self.script.popleft() if self.script else Code.SUCCESS
        if behavior is Code.SUCCESS:
            behavior = self.refusal(request)
        if behavior is Code.SUCCESS or behavior in (
            Fault.APPEND_AND_DISCONNECT,
            Fault.APPEND_WITHOUT_ANSWER,
        ):
            found = self._write(request, bodies)
            if isinstance(found, DLedgerResponseCode):
                behavior = found
        if not isinstance(behavior, DLedgerResponseCode):
            return behavior
        if behavior is Code.SUCCESS:
            return AppendEntryResponse(
                group=self.group.name,
                index=found,
                leader_id=self.member_id,
                pos=0,
                term=self.group.term,
            )
        return AppendEntryResponse(code=behavior, leader_id=self.leader_id)

    def _write(self, request: Request, bodies: list[bytes]) -> int | DLedgerResponseCode:
        match request:
            case IdempotentAppendRequest():
                return self.group.producers.take(request, self.group.append)
            case IdempotentBatchEnvelope():
                return self.group.producers.take_batch(request, bodies, self.group.append_all)
            case _:
                return self.group.append_all(bodies)

    def _get(self, request: GetEntriesRequest) -> GetEntriesResponse:
        code = self.refusal(request)
        log = self.group.log
        if code is Code.SUCCESS and not 0 <= request.begin_index < len(log):
            code = Code.INDEX_OUT_OF_RANGE
        elif code is Code.SUCCESS and request.begin_index < self.begin_index:
            code = Code.INDEX_LESS_THAN_LOCAL_BEGIN
        if code is not Code.SUCCESS:
            return GetEntriesResponse(code=code, leader_id=self.leader_id)
        count = (
            self.entries_per_answers.pop(0) if self.entries_per_answers else self.entries_per_answer
        )
        count = count if request.max_size else 1
        last = min(len(log), request.begin_index + count)
        entries = [self.group.entry(index) for index in range(request.begin_index, last)]
        return GetEntriesResponse(group=self.group.name, entries=entries)

    def _read_range(self, command: RemotingCommand, connection: Connection) -> bytes | Fault:
        request = ReadRangeRequest.from_json(command.body)
        self.ranges.append(request.begin_index)
        return self._now_or_later(connection, command.opaque, request, self._range_answer)

    def _range_answer(self, request: ReadRangeRequest) -> bytes:
        found = self._get(request)  # type: ignore[arg-type]  # has the same fields
        found = msgspec.structs.replace(found, leader_id=self.leader_id)
        return range_answer(request, found, len(self.group.log) - 1, self.spoil)

    def _follow(self, command: RemotingCommand, connection: Connection) -> bytes | Fault:
        request = FollowRequest.from_json(command.body)
        return self._now_or_later(connection, command.opaque, request, self._follow_answer)

    def _now_or_later(
        self,
        connection: Connection,
        opaque: int,
        request: FollowRequestT,
        answer: Callable[[FollowRequestT], bytes],
    ) -> bytes | Fault:
        def frame() -> bytes:
            return encode_responses([(opaque, answer(request))])

        has_entries = request.begin_index < len(self.group.log)
        if has_entries or not request.wait_ms or not self.holds_reads:
            return frame()
        self.followers.wait(connection, request.wait_ms / 1000, frame)
        return Fault.NO_ANSWER

    def _follow_answer(self, request: FollowRequest) -> bytes:
        code = self.refusal(request)
        entries = []
        if code is Code.SUCCESS and request.begin_index != ONLY_THE_ENDS:
            answer = self._get(request)  # type: ignore[arg-type]  # has the same fields
            entries = answer.entries
            if answer.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN:
                code = answer.code
        response = FollowResponse(
            code=code,
            leader_id=self.leader_id,
            entries=entries,
            ledger_begin_index=self.begin_index,
            committed_index=len(self.group.log) - 1,
        )
        return response.to_json()
