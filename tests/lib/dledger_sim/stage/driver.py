"""One core without a group: a test plays its peers, its clock and its disk."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core import Raft
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.log_terms import LogEnd, LogTerms, Seed
from dledger_node.raft.member_state import Role
from dledger_node.raft.membership import Change, Membership, MembershipEntry
from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    InstallSnapshotRequest,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    PushResponse,
    PushResult,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.proposals import Refusal, RefusalReason
from dledger_node.raft.ready import HardState, ReadState, Write

HEARTBEAT_TICKS = 5
ELECTION_TICKS = 20
INCARNATION = 4

AnyMessage = TypeVar("AnyMessage", bound=Message)


class CoreDriver:
    """The core of n0 in a group of n0, n1 and so on.

    `terms` are the terms of the durable entries at the start. The disk says by default that the
    member has always run in its current flush mode.
    """

    def __init__(
        self,
        *,
        terms: Sequence[int] = (),
        begin_index: int = 0,
        term: int | None = None,
        vote_for: str | None = None,
        joining: bool = False,
        seed: Seed | None = None,
        voter_count: int = 3,
        self_id: str = "n0",
        addable_ids: tuple[str, ...] = (),
        new_group: bool = False,
        needs_seed: bool = False,
        memberships: Sequence[MembershipEntry] = (),
        promotion_lag_entries_max: int = 1000,
        committed_index: int = -1,
        push_entries_max: int = 100,
        inflight_ranges_max: int = 4,
        lease_ticks: int = 0,
        recall_ticks: int = 0,
        notices_per_tick_max: int = 0,
        confirms_unflushed: bool = False,
        flushed: bool | None = None,
        promised_end: LogEnd | None = None,
        preferred_leader_ids: tuple[str, ...] = (),
        randint: Callable[[int, int], int] = lambda low, high: low,
        incarnation: int = INCARNATION,
    ) -> None:
        self.writes: list[Write] = []
        """All writes that the core has asked for."""
        self.reads: list[ReadState] = []
        """All reads that the core has released."""
        self.hard_state = HardState(
            term=max(terms, default=0) if term is None else term,
            vote_for=vote_for,
            joining=joining,
            seed=seed,
            promised_end=promised_end,
            flushed=(recall_ticks > 0 and not confirms_unflushed) if flushed is None else flushed,
        )
        voters = tuple(f"n{number}" for number in range(voter_count))
        log = log_of(terms)
        if begin_index:
            log.remove_before(begin_index)
        self.raft = Raft(
            RaftConfig(
                self_id=self_id,
                voters=voters,
                addable_ids=addable_ids,
                new_group=new_group,
                needs_seed=needs_seed,
                promotion_lag_entries_max=promotion_lag_entries_max,
                heartbeat_ticks=HEARTBEAT_TICKS,
                election_ticks=ELECTION_TICKS,
                push_entries_max=push_entries_max,
                inflight_ranges_max=inflight_ranges_max,
                lease_ticks=lease_ticks,
                recall_ticks=recall_ticks,
                notices_per_tick_max=notices_per_tick_max,
                confirms_unflushed=confirms_unflushed,
                preferred_leader_ids=preferred_leader_ids,
            ),
            self.hard_state,
            log,
            committed_index=committed_index,
            incarnation=incarnation,
            randint=randint,
            memberships=LogMemberships(Membership(voters), memberships),
        )

    # -- the shell -------------------------------------------------------------------------------

    def work(self) -> list[Message]:
        """Do all work of the core without a flush; return the messages."""
        messages: list[Message] = []
        while (ready := self.raft.ready()) is not None:
            self.hard_state = ready.hard_state or self.hard_state
            self.writes += ready.writes
            self.reads += ready.reads
            messages += ready.messages
            self.raft.advance(ready)
        return messages

    def tick(self, count: int = 1) -> list[Message]:
        """Let ticks pass; return the messages."""
        for _ in range(count):
            self.raft.tick()
        return self.work()

    def flush(self) -> list[Message]:
        """Report the whole log as durable; return the messages."""
        self.raft.persisted(self.raft.ledger_end_index, self.raft.ledger_end_term)
        return self.work()

    def receive(self, message: Message) -> list[Message]:
        """Give the core a message; return its messages."""
        self.raft.step(message)
        return self.work()

    def propose(self, count: int = 1) -> list[Message]:
        """Append entries as the leader, without a flush; return the messages."""
        self.raft.propose(count, "bodies")
        return self.work()

    def change(self, change: Change) -> RefusalReason | None:
        """Request a membership change; return the reason for a refusal, or None."""
        answer = self.raft.change_membership(change)
        return answer.reason if isinstance(answer, Refusal) else None

    # -- the peers -------------------------------------------------------------------------------

    def become_leader(self, *, flushed: bool = True) -> list[Message]:
        """Win the next election with all votes; return the new leader's first messages."""
        self.stand()
        for peer_id in self.voters():
            if self.raft.role is Role.CANDIDATE:
                self.raft.step(self.vote_from(peer_id))
        messages = self.work()
        return messages + self.flush() if flushed else messages

    def stand(self) -> list[Message]:
        """Let the election timeout pass and every peer accept the pre-vote; return the messages of
        the candidate.
        """
        while self.raft.role is Role.FOLLOWER:
            self.raft.tick()
        self.work()
        messages: list[Message] = []
        for peer_id in self.voters():
            messages += self.receive(self.pre_vote_from(peer_id))
        return messages

    def voters(self) -> list[str]:
        """Return the other voters."""
        return [one for one in self.raft.membership.voters if one != self.raft.config.self_id]

    def agree(self, peer_id: str, match_index: int | None = None) -> list[Message]:
        """Let a peer confirm the entry of its CompareRequest, durable up to `match_index`."""
        question = only(CompareRequest, self.questions_to(peer_id))
        held = question.index if match_index is None else match_index
        return self.receive(self.success_from(peer_id, held, probe=question.probe))

    def questions_to(self, peer_id: str) -> list[Message]:
        """Restore the link to a peer; return the repeated messages to it."""
        self.raft.link_restored(peer_id)
        return [message for message in self.work() if message.receiver == peer_id]

    def pre_vote_from(
        self, peer_id: str, result: VoteResult = VoteResult.ACCEPT, *, term: int | None = None
    ) -> PreVoteResponse:
        """Return a peer's answer to a pre-vote request."""
        own_term = self.raft.term
        return PreVoteResponse(
            sender=peer_id,
            receiver="n0",
            term=own_term if term is None else term,
            requested_term=own_term,
            result=result,
        )

    def vote_from(self, peer_id: str, result: VoteResult = VoteResult.ACCEPT) -> VoteResponse:
        """Return a peer's answer to a vote request."""
        term = self.raft.term
        return VoteResponse(
            sender=peer_id, receiver="n0", term=term, requested_term=term, result=result
        )

    def success_from(
        self, peer_id: str, match_index: int, *, probe: int | None = None, term: int | None = None
    ) -> PushResponse:
        """Return a peer's success response to a push, or with `probe` to a CompareRequest."""
        term = self.raft.term if term is None else term
        return PushResponse(
            sender=peer_id, receiver="n0", term=term, requested_term=term,
            result=PushResult.SUCCESS, match_index=match_index, ledger_end_index=match_index,
            probe=probe,
        )  # fmt: skip

    def denial_from(
        self,
        peer_id: str,
        end_index: int,
        *,
        conflict_term: int = -1,
        conflict_index: int = -1,
        probe: int | None = None,
    ) -> PushResponse:
        """Return a peer's refusal of a push, or with `probe` of a CompareRequest."""
        return PushResponse(
            sender=peer_id, receiver="n0", term=self.raft.term, requested_term=self.raft.term,
            result=PushResult.INCONSISTENT_STATE, match_index=-1, ledger_end_index=end_index,
            conflict_term=conflict_term, conflict_index=conflict_index, probe=probe,
        )  # fmt: skip

    def heard_from(
        self, peer_id: str, round_: int, *, joining: bool = False, full: bool = False
    ) -> HeartBeatResponse:
        """Return a peer's answer to a heartbeat."""
        return HeartBeatResponse(
            sender=peer_id, receiver="n0", term=self.raft.term, round=round_, joining=joining,
            full=full,
        )  # fmt: skip


def log_of(terms: Sequence[int]) -> LogTerms:
    """Return a log whose entries have these terms."""
    log = LogTerms()
    for index, term in enumerate(terms):
        log.append(index, term)
    return log


def vote_request(
    term: int,
    *,
    sender: str = "n1",
    end: tuple[int, int] = (-1, -1),
    take_leadership: bool = False,
) -> VoteRequest:
    """Return a vote request; `end` is the index and term of the candidate's last entry."""
    return VoteRequest(
        sender=sender, receiver="n0", term=term, ledger_end_index=end[0], ledger_end_term=end[1],
        take_leadership=take_leadership,
    )  # fmt: skip


def pre_vote_request(
    term: int, *, sender: str = "n1", end: tuple[int, int] = (-1, -1)
) -> PreVoteRequest:
    """Return a pre-vote request; `term` is the sender's own term."""
    return PreVoteRequest(
        sender=sender, receiver="n0", term=term, ledger_end_index=end[0], ledger_end_term=end[1]
    )


def heartbeat(
    term: int, *, sender: str = "n1", committed_index: int = -1, round_: int = 1
) -> HeartBeatRequest:
    """Return a leader's heartbeat."""
    return HeartBeatRequest(
        sender=sender, receiver="n0", term=term, committed_index=committed_index, round=round_
    )


def compare(
    term: int, index: int, index_term: int, *, sender: str = "n1", committed_index: int = -1
) -> CompareRequest:
    """Return a leader's CompareRequest with probe number 7."""
    return CompareRequest(
        sender=sender, receiver="n0", term=term, index=index, index_term=index_term,
        committed_index=committed_index, probe=7,
    )  # fmt: skip


def append(
    term: int,
    previous: tuple[int, int],
    last_index: int,
    entries_term: int | None = None,
    *,
    sender: str = "n1",
    committed_index: int = -1,
) -> AppendRequest:
    """Return a leader's push; `previous` is the index and term of the entry before it."""
    return AppendRequest(
        sender=sender, receiver="n0", term=term, previous_index=previous[0],
        previous_term=previous[1], first_index=previous[0] + 1, last_index=last_index,
        entries_term=term if entries_term is None else entries_term,
        committed_index=committed_index, entries="bytes",
    )  # fmt: skip


def install(
    term: int, first_index: int, last_index: int, entries_term: int | None = None
) -> InstallSnapshotRequest:
    """Return the leader's first, committed entries, which replace the receiver's log."""
    return InstallSnapshotRequest(
        sender="n1", receiver="n0", term=term, first_index=first_index, last_index=last_index,
        entries_term=term if entries_term is None else entries_term, committed_index=last_index,
        entries="bytes",
    )  # fmt: skip


def of_type(kind: type[AnyMessage], messages: Sequence[Message]) -> list[AnyMessage]:
    """Return the messages of one kind."""
    return [message for message in messages if isinstance(message, kind)]


def only(kind: type[AnyMessage], messages: Sequence[Message]) -> AnyMessage:
    """Return the only message of a kind."""
    (message,) = of_type(kind, messages)
    return message
