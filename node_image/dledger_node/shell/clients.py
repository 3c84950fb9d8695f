"""Builds the services for clients, and passes requests from connections to them."""

import asyncio
from typing import Final

from dledger_formats.protocol import follow, requests
from dledger_formats.protocol.administration import AdminRequest
from dledger_formats.protocol.canary import AppendCanaryRequest
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.leadership_transfer import LeadershipTransferRequest
from dledger_formats.protocol.membership_change import ChangeMembershipRequest
from dledger_formats.protocol.producers import RegisterProducerRequest, RegisterProducerResponse
from dledger_formats.protocol.read_range import ReadRangeRequest
from dledger_formats.protocol.register import ReadRegisterRequest
from dledger_formats.settings import NodeSettings
from dledger_node.http import status
from dledger_node.raft.core import Raft
from dledger_node.remoting.connection_views import Reader
from dledger_node.remoting.gate import Gate
from dledger_node.remoting.read_turns import ReadTurns
from dledger_node.remoting.service import Reply, ServePeer
from dledger_node.services.append import Appends
from dledger_node.services.canary import Canaries
from dledger_node.services.disk_reads import DiskReads
from dledger_node.services.drafts import Drafts
from dledger_node.services.entries import EntryReads
from dledger_node.services.follow import Follows
from dledger_node.services.get import Gets
from dledger_node.services.held_reads import HeldReads
from dledger_node.services.idempotent import IdempotentAppends
from dledger_node.services.membership import MembershipChanges
from dledger_node.services.passed_on import PassedOn
from dledger_node.services.program_reads import ProgramReads
from dledger_node.services.ranges import Ranges
from dledger_node.services.read_index import ReadIndexes, Send
from dledger_node.services.read_proofs import ReadProofs
from dledger_node.services.register import RegisterReads
from dledger_node.services.transfer import LeadershipTransfers
from dledger_node.services.waiting import TimedService
from dledger_node.shell.identity import GroupIdentity
from dledger_node.shell.loop import CoreLoop, TurnListener
from dledger_node.shell.peers import PeerMessages
from dledger_node.shell.room import LogRoom
from dledger_node.shell.token_file import AdminRefusal, TokenFile
from dledger_node.state_machine.keeper import State
from dledger_node.store.log.log_store import LogStore

TRANSFER_ELECTION_TIMEOUTS: Final = 2
"""One timeout for the transferee to win its election, one for its first message to arrive."""


class ClientService:
    """Implements `remoting.service.Service`."""

    def __init__(
        self,
        settings: NodeSettings,
        core: Raft,
        loop: CoreLoop,
        store: LogStore,
        room: LogRoom,
        state: State,
        *,
        gate: Gate,
        identity: GroupIdentity,
        tokens: TokenFile,
        peers: PeerMessages,
        send: Send,
        incarnation: int,
    ) -> None:
        """`send` sends a message to a peer; `incarnation` identifies this start."""
        self.group = settings.group
        self.self_id = settings.self_id
        self.gate = gate
        self._identity, self._tokens = identity, tokens
        self.peers = peers
        self.peer_requests: dict[int, ServePeer] = {}
        self._settings, self._core = settings, core
        self.core, self.store, self.state = core, store, state
        group = settings.group
        turns = self.read_turns = ReadTurns(asyncio.get_running_loop().call_soon)
        indexes = ReadIndexes(core, send, incarnation=incarnation)
        self.disk_reads = DiskReads(turns, gate.begin_turn)
        self.program_reads = ProgramReads()
        entries = EntryReads(store, turns, self.disk_reads)
        self.proofs = ReadProofs(core, indexes, drive=loop.turn)
        self.gets = Gets(core, entries, self.proofs, group=group, turns=turns)
        self.idempotent = IdempotentAppends(
            core,
            store,
            group=group,
            waiters_max=settings.pending_requests_max,
            room=room,
            disk_reads=self.disk_reads,
            drive=loop.turn,
            prove=self.proofs.prove,
        )
        self.appends = Appends(settings, core, store, self.idempotent, room=room, drive=loop.turn)
        """Called by connections directly, since thousands of appends may arrive per second."""
        self.drafts = Drafts(settings, core, store, room=room, drive=loop.turn)
        """The entries of a program that is built on this member."""
        self.passed_on = PassedOn(settings, core, identity)
        self.held = HeldReads(core, begin_turn=gate.begin_turn)
        self.follows = Follows(
            core, entries, group=group, turns=turns, held=self.held, prove=self.proofs.prove_read
        )
        self.ranges = self._stored_ranges()
        self.registers = RegisterReads(core, state, group=group, prove=self.proofs.prove)
        self.canaries = Canaries(core, identity, group=group, room=room, drive=loop.turn)
        self.transfers = LeadershipTransfers(
            core,
            group=group,
            timeout_s=TRANSFER_ELECTION_TIMEOUTS * settings.election_timeout_ms / 1000,
            drive=loop.turn,
        )
        self.memberships = MembershipChanges(
            core,
            store,
            group=group,
            room=room,
            drive=loop.turn,
            prove=self.proofs.prove,
        )
        self._timed = self._all_that_wait()

    def _stored_ranges(self) -> Ranges:
        return Ranges(
            self.core,
            self.store,
            self.proofs,
            group=self.group,
            turns=self.read_turns,
            held=self.held,
            disk=self.disk_reads,
        )

    def _all_that_wait(self) -> tuple[TimedService, ...]:
        return (
            self.appends,
            self.drafts,
            self.passed_on,
            self.idempotent,
            self.proofs,
            self.disk_reads,
            self.held,
            self.registers,
            self.canaries,
            self.transfers,
            self.memberships,
        )

    @property
    def listeners(self) -> tuple[TurnListener, ...]:
        """The services that wait for the loop, those with the most clients first."""
        return (
            self.idempotent,
            self.appends,
            self.drafts,
            self.proofs,
            self.canaries,
            self.transfers,
            self.memberships,
            self.held,
        )

    @property
    def next_deadline_s(self) -> float:
        """No deadline of a waiting request is earlier than this time."""
        return min(service.next_deadline_s for service in self._timed)

    def expire(self, now_s: float) -> None:
        """Answer every request whose deadline has passed."""
        for service in self._timed:
            service.expire(now_s)

    def go_on(self) -> None:
        """Take the pushes and entries that waited until the log takes entries again."""
        self.peers.go_on()
        self.appends.go_on()
        self.drafts.go_on()

    def take_settings(self, settings: NodeSettings) -> None:
        """Apply live settings to the requests that come from now on."""
        for service in (self.appends, self.drafts, self.idempotent, self.passed_on):
            service.take_settings(settings)

    async def drained(self) -> None:
        """Take no further appends, and return once none waits for its outcome."""
        await self.gate.take_no_more()
        await self.passed_on.drained()
        await self.appends.drained()
        await self.drafts.drained()

    def give_up(self) -> None:
        """Answer every request that still waits, because this member stops.

        Only reads that wait for their turn get no answer: they are dropped.
        """
        self.read_turns.close()
        for service in self._timed:
            service.give_up()

    # -- the services that connections use -------------------------------------------------------

    def register_producer(self, request: RegisterProducerRequest, reply: Reply) -> None:
        """Register a producer."""
        if self.appends.is_owned_by_program:
            code = DLedgerResponseCode.UNSUPPORTED
            reply(RegisterProducerResponse(code=code, group=self.group))
            return
        self.idempotent.register(request, reply)

    def get(self, reader: Reader, request: requests.GetEntriesRequest, reply: Reply) -> None:
        """Read committed entries."""
        self.gets.get(reader, request, reply)

    def follow(self, reader: Reader, opaque: int, request: follow.FollowRequest) -> None:
        """Read committed entries, or wait until there are some."""
        self.follows.follow(reader, opaque, request)

    def read_range(self, reader: Reader, opaque: int, request: ReadRangeRequest) -> None:
        """Read committed entries as they are stored."""
        self.ranges.read(reader, opaque, request)

    def read_register(self, request: ReadRegisterRequest, reply: Reply) -> None:
        """Read a value of the register."""
        self.registers.read(request, reply)

    def append_canary(self, request: AppendCanaryRequest, reply: Reply) -> None:
        """Append an entry that readers skip."""
        self.canaries.append(request, reply)

    def refuse_admin(self, request: AdminRequest, address: str) -> AdminRefusal | None:
        """Return why a request that would change the group is refused; None if it is allowed."""
        if self._identity.is_foreign(request.group_identity):
            remark = "this member belongs to another group of that name"
            return AdminRefusal(DLedgerResponseCode.UNKNOWN_GROUP, remark)
        return self._tokens.refuse(request, address)

    def transfer_leadership(self, request: LeadershipTransferRequest, reply: Reply) -> None:
        """Transfer the leadership."""
        self.transfers.transfer(request, reply)

    def change_membership(self, request: ChangeMembershipRequest, reply: Reply) -> None:
        """Change the membership of the group."""
        self.memberships.change(request, reply)

    def metadata(self) -> requests.MetadataResponse:
        """Return the members of the group and its leader."""
        core, memberships = self._core, self._core.memberships
        return requests.MetadataResponse(
            group=self.group,
            local_id=self.self_id,
            leader_id=core.leader_id,
            term=core.term,
            peers=status.peers(core, self._settings),
            voters=memberships.current.voters,
            learners=memberships.current.learners,
            addable=status.addable(core, self._settings),
            membership_index=memberships.last_index,
            joining=bool(core.joining),
            group_identity=self._identity.value,
        )
