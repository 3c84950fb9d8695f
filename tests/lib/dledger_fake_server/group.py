"""Members that share one list of entries, and agree on a leader because a test says so."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from dledger_fake_server.behavior import Behavior, Fault
from dledger_fake_server.connection import Connection
from dledger_fake_server.producers import Producers
from dledger_formats.log import disk
from dledger_formats.protocol.append_batch import APPEND_BATCH, split
from dledger_formats.protocol.follow import FOLLOW, ONLY_THE_ENDS, FollowRequest, FollowResponse
from dledger_formats.protocol.frames import RemotingCommand, encode, encode_responses
from dledger_formats.protocol.leadership_transfer import (
    LeadershipTransferRequest,
    LeadershipTransferResponse,
)
from dledger_formats.protocol.producers import (
    APPEND_IDEMPOTENT,
    REGISTER_PRODUCER,
    IdempotentAppendRequest,
    RegisterProducerRequest,
    RegisterProducerResponse,
)
from dledger_formats.protocol.requests import (
    AppendEntryRequest,
    AppendEntryResponse,
    DLedgerEntry,
    DLedgerResponseCode,
    GetEntriesRequest,
    GetEntriesResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    RequestCode,
)

Code = DLedgerResponseCode


@dataclass(eq=False, kw_only=True)
class Member:
    """One server. `script` holds what it does with the next appends; then it behaves."""

    group: "Group"
    member_id: str
    port: int = 0
    needs_remote_id: bool = False
    """Java's servers answer METADATA only with the right id in it."""
    reads_only_numbers: bool = False
    """As Java DLedger 0.4.3."""
    knows_follow: bool = True
    """Java's servers do not."""
    knows_producers: bool = True
    """Nor this."""
    names_voters: bool = False
    """In METADATA, as our servers; clients take them to know APPEND_BATCH."""
    knows_batches: bool = False
    """Nor this; it takes what is scripted for one append for a whole batch."""
    registrations: deque[Behavior] = field(default_factory=deque)
    """What it does with the next registrations; then it takes them."""
    begin_index: int = 0
    """The entries before it are gone."""
    entries_per_answer: int = 1
    entries_per_answers: list[int] = field(default_factory=list)
    """The same for each of the next answers."""
    leader_hint: str | None = "the group's"
    """Whom it says to lead."""
    stale_term: int | None = None
    """The term that it believes in, when it has not heard of the group's."""
    script: deque[Behavior] = field(default_factory=deque)
    is_frozen: bool = False
    """Takes everything and answers nothing."""
    appends: list[bytes] = field(default_factory=list)
    """The body of every append that came, in order."""
    batches: list[list[bytes]] = field(default_factory=list)
    """The bodies of every APPEND_BATCH."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every METADATA that comes."""
    transfers: deque[Behavior] = field(default_factory=deque)
    """What it does with the next transfers; then it hands the leadership over."""
    followers: list[tuple[Connection, int, FollowRequest]] = field(default_factory=list)
    """Who waits for an entry."""
    followed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every FOLLOW that waits."""
    appended_to: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every APPEND that comes."""
    largest_read: int = 0
    """The most requests that came in one read."""
    connections: set[Connection] = field(default_factory=set)
    server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def leader_id(self) -> str | None:
        return self.group.leader_id if self.leader_hint == "the group's" else self.leader_hint

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Connection(self), "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Die as a killed process does: nothing listens, and every connection is reset."""
        if self.server is not None:
            self.server.close()
            for connection in list(self.connections):
                connection.transport.abort()
                await connection.gone.wait()
            await self.server.wait_closed()
            self.server = None

    def answer_followers(self) -> None:
        """Answer who waits for an entry, whether there is one or not."""
        followers, self.followers = self.followers, []
        for connection, opaque, request in followers:
            if not connection.transport.is_closing():
                connection.transport.write(self.follow_answer(opaque, request))

    def stop_reading(self) -> None:
        """Let what clients send pile up on their side."""
        for connection in self.connections:
            connection.transport.pause_reading()

    def send_to_all(self, command: RemotingCommand) -> None:
        """Send to every client what it did not ask for."""
        for connection in self.connections:
            connection.transport.write(encode(command))

    def handle(self, command: RemotingCommand, connection: Connection) -> bytes | Fault:
        """Answer with one frame, or do something else instead."""
        if self.is_frozen:
            return Fault.NO_ANSWER
        try:
            if command.code == FOLLOW and self.knows_follow:
                return self._follow(command, connection)
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
            self.asked.set()
            return self._metadata(MetadataRequest.from_json(command.body))
        if command.code == RequestCode.APPEND:
            request = AppendEntryRequest.from_json(self._readable(command.body))
            return self._append(request, [request.body])
        if command.code == APPEND_IDEMPOTENT and self.knows_producers:
            once = IdempotentAppendRequest.from_json(command.body)
            return self._append(once, [once.body])
        if command.code == APPEND_BATCH and self.knows_batches:
            envelope, bodies = split(command.body)
            self.batches.append(bodies)
            return self._append(Message.from_json(envelope), bodies)
        if command.code == REGISTER_PRODUCER and self.knows_producers:
            return self._register(RegisterProducerRequest.from_json(command.body))
        if command.code == RequestCode.GET:
            return self._get(GetEntriesRequest.from_json(command.body))
        if command.code == RequestCode.LEADERSHIP_TRANSFER:
            return self._transfer(LeadershipTransferRequest.from_json(command.body))
        return RemotingCommand(code=3, opaque=0, remark="request type not supported")

    def _refusal(self, request: Message, *, of_metadata: bool = False) -> DLedgerResponseCode:
        needs_id = self.needs_remote_id or not of_metadata or request.remote_id is not None
        if needs_id and request.remote_id != self.member_id:
            return Code.UNKNOWN_MEMBER
        if request.group != self.group.name:
            return Code.UNKNOWN_GROUP
        if not of_metadata and self.leader_id != self.member_id:
            return Code.NOT_LEADER
        return Code.SUCCESS

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        code = self._refusal(request, of_metadata=True)
        if code is not Code.SUCCESS:
            return MetadataResponse(code=code, group=request.group, remote_id=request.remote_id)
        return MetadataResponse(
            group=self.group.name,
            leader_id=self.leader_id,
            local_id=None if self.needs_remote_id else self.member_id,
            peers={member.member_id: member.address for member in self.group.members.values()},
            voters=tuple(self.group.members) if self.names_voters else (),
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
            behavior = self._refusal(request)
        if not isinstance(behavior, DLedgerResponseCode):
            return behavior
        producer = self.group.producers.register() if behavior is Code.SUCCESS else -1
        return RegisterProducerResponse(code=behavior, leader_id=self.leader_id, producer=producer)

    def _append(
        self, request: Message, bodies: list[bytes]
    ) -> AppendEntryResponse | RemotingCommand | Fault:
        self.appends += bodies
        self.appended_to.set()
        behavior: Behavior = self.script.popleft() if self.script else Code.SUCCESS
        if behavior is Code.SUCCESS:
            behavior = self._refusal(request)
        if behavior is Code.SUCCESS or behavior in (
            Fault.APPEND_AND_DISCONNECT,
            Fault.APPEND_WITHOUT_ANSWER,
        ):
            found = (
                self.group.producers.take(request, self.group.append)
                if isinstance(request, IdempotentAppendRequest)
                else self.group.append_all(bodies)
            )
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

    def _get(self, request: GetEntriesRequest) -> GetEntriesResponse:
        code = self._refusal(request)
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

    def _follow(self, command: RemotingCommand, connection: Connection) -> bytes | Fault:
        request = FollowRequest.from_json(command.body)
        if request.begin_index >= len(self.group.log) and request.wait_ms:
            self.followers.append((connection, command.opaque, request))
            self.followed.set()
            return Fault.NO_ANSWER
        return self.follow_answer(command.opaque, request)

    def follow_answer(self, opaque: int, request: FollowRequest) -> bytes:
        """What FOLLOW is answered now."""
        code = self._refusal(request)
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
        return encode_responses([(opaque, response.to_json())])

    def _transfer(
        self, request: LeadershipTransferRequest
    ) -> LeadershipTransferResponse | RemotingCommand | Fault:
        behavior: Behavior = self.transfers.popleft() if self.transfers else Code.SUCCESS
        if behavior is Code.SUCCESS:
            behavior = self._refusal(request)
        if behavior is Code.SUCCESS and request.transfer_id != self.member_id:
            behavior = Code.UNEXPECTED_ARGUMENT
        if behavior is Code.SUCCESS and request.term != self.group.term:
            behavior = Code.INCONSISTENT_TERM
        if behavior is Code.SUCCESS:
            self.group.elect(request.transferee_id)
        if not isinstance(behavior, DLedgerResponseCode):
            return behavior
        return LeadershipTransferResponse(code=behavior, term=self.group.term)


class Group:
    """Members n0, n1, … on loopback, each on a free port; the first one leads."""

    def __init__(self, size: int = 3, name: str = "g0") -> None:
        self.name = name
        self.term = 1
        self.leader_id: str | None = "n0"
        self.log: list[bytes] = []
        self.producers = Producers()
        self.entry: Callable[[int], DLedgerEntry] = self.stored_entry
        self.members = {
            f"n{ordinal}": Member(group=self, member_id=f"n{ordinal}") for ordinal in range(size)
        }

    async def __aenter__(self) -> Self:
        for member in self.members.values():
            await member.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members.values():
            await member.stop()

    def __getitem__(self, member_id: str) -> Member:
        return self.members[member_id]

    @property
    def servers(self) -> list[str]:
        return [member.address for member in self.members.values()]

    def learn_batches(self) -> None:
        """Let all members know APPEND_BATCH."""
        for member in self.members.values():
            member.knows_batches = member.names_voters = True

    def elect(self, leader_id: str | None) -> None:
        """Begin a new term with this leader, or with none."""
        self.term += 1
        self.leader_id = leader_id

    def append(self, body: bytes) -> int:
        """Commit an entry, and tell whoever waits for it; returns its index."""
        self.log.append(body)
        for member in self.members.values():
            member.answer_followers()
        return len(self.log) - 1

    def append_all(self, bodies: list[bytes]) -> int:
        """Commit entries; returns the first one's index."""
        first_index = len(self.log)
        for body in bodies:
            self.append(body)
        return first_index

    def stored_entry(self, index: int) -> DLedgerEntry:
        """The entry as a member keeps it, with its checksum."""
        body = self.log[index]
        size = disk.ENTRY_HEADER_SIZE + len(body)
        crc = disk.body_crc(body)
        header = disk.EntryHeader(disk.NORMAL, size, index, self.term, 0, 0, 0, crc, len(body))
        return DLedgerEntry.from_disk(header, body)
