"""The core's face to its shell: inputs go in, `Ready` comes out.

    raft.tick() | raft.step(message) | raft.propose(n, entries) | raft.persisted(index, term) | …
    while (ready := raft.ready()) is not None:
        ...  # do its work, in the order that `Ready` states
        raft.advance(ready)

No call waits, and none does IO. Inputs may come while a Ready is being worked on.
"""

from collections.abc import Callable, Mapping

from dledger_node.raft import (
    changes,
    electorate,
    entry_handler,
    entry_pusher,
    heartbeats,
    joining,
    leader_elector,
    reads,
    recalling,
    steps,
    transfer,
)
from dledger_node.raft.config import RaftConfig
from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.log_terms import LogTerms
from dledger_node.raft.member_state import Candidate, Follower, Leader, PreCandidate, Role
from dledger_node.raft.membership import Change, Membership
from dledger_node.raft.messages import Message
from dledger_node.raft.proposals import Proposal, Refusal, RefusalReason
from dledger_node.raft.ready import HardState, Ready, WriteProposal
from dledger_node.raft.recovered import recovered
from dledger_node.raft.refusals import RefusalCause


class Raft:
    """One member's core. Not safe for threads; every call is cheap, whatever the log's length."""

    def __init__(
        self,
        config: RaftConfig,
        hard_state: HardState,
        log: LogTerms,
        *,
        committed_index: int,
        incarnation: int,
        randint: Callable[[int, int], int],
        memberships: LogMemberships | None = None,
    ) -> None:
        """Begin as a follower. `hard_state`, `log` and `committed_index` are what is durable.

        The core keeps and changes `log` and `memberships`, those of the log, None if it has none.
        `committed_index` is one up to which it was ever committed and durable here, -1 if unknown.
        `incarnation` is a number, 0 or more, that no earlier start had. InvariantError when term or
        committed entries were lost.
        """
        if memberships is None:
            memberships = LogMemberships(Membership(config.voters))
        self._member = recovered(
            config, hard_state, log, memberships, committed_index, incarnation, randint
        )
        self._saved_hard_state = hard_state
        self._reported_committed_index = committed_index
        self._ready: Ready | None = None
        leader_elector.restart_election_timer(self._member)

    # -- inputs ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let one tick of time pass."""
        member = self._member
        member.now_ticks += 1
        if member.recalling is not None:
            recalling.tick(member, member.recalling)
        match member.role_state:
            case Leader() as leader:
                self._tick_leader(leader)
            case Follower() if member.joining is not None:
                joining.tick(member, member.joining)
            case _ if member.now_ticks < member.election_deadline or member.recalls:
                pass
            case _ if electorate.may_campaign(member):
                leader_elector.start_pre_vote(member)
            case _:
                leader_elector.forget_leader(member)

    def step(self, message: Message) -> None:
        """Take a message. One that is not for this member, or from a stranger, is ignored."""
        steps.step(self._member, message)

    def propose(self, count: int, entries: object) -> Proposal | Refusal:
        """Append `count` bodies; `entries` is the shell's handle on them, and comes back in
        `Ready.writes`.
        """
        member = self._member
        if not isinstance(member.role_state, Leader):
            return self._refuse(RefusalReason.NOT_LEADER)
        if member.role_state.transfer is not None:
            return self._refuse(RefusalReason.LEADER_TRANSFERRING)
        if count < 1:
            raise InvariantError(f"{count} bodies were proposed")
        first_index = member.log.end_index + 1
        last_index = member.log.end_index + count
        write = WriteProposal(
            first_index=first_index, last_index=last_index, term=member.term, entries=entries
        )
        member.append(write, last_index, member.term)
        member.role_state.push_due = True
        return Proposal(first_index=first_index, last_index=last_index, term=member.term)

    def transfer_leadership(self, transferee_id: str) -> Refusal | None:
        """Begin to hand the leadership over, or say why not.

        No appends are taken until the transferee leads, or for election_ticks if it does not.
        """
        member = self._member
        if not isinstance(member.role_state, Leader):
            return self._refuse(RefusalReason.NOT_LEADER)
        if member.role_state.transfer is not None:
            return self._refuse(RefusalReason.LEADER_TRANSFERRING)
        progress = member.role_state.progress.get(transferee_id)
        if progress is None or not progress.is_voter:
            return self._refuse(RefusalReason.UNKNOWN_MEMBER)
        if not transfer.is_nearly_caught_up(member, member.role_state, transferee_id):
            return self._refuse(RefusalReason.FALL_BEHIND_TOO_MUCH)
        transfer.begin(member, member.role_state, transferee_id)
        return None

    def change_membership(self, change: Change) -> Proposal | Refusal:
        """Change who belongs to the group, by an entry that comes back in `Ready.writes`.

        It holds at once, and for good once that entry is committed. A leader that removes itself
        leads until then.
        """
        member = self._member
        if not isinstance(member.role_state, Leader):
            return self._refuse(RefusalReason.NOT_LEADER)
        reason = changes.refusal(member, member.role_state, change)
        if reason is not None:
            return self._refuse(reason)
        return changes.begin(member, member.role_state, change)

    def read_index(self, handle: object) -> Refusal | None:
        """Ask up to where a linearizable read must see; the answer comes in `Ready.reads`."""
        if not isinstance(self._member.role_state, Leader):
            return self._refuse(RefusalReason.NOT_LEADER)
        reads.begin(self._member, self._member.role_state, handle)
        return None

    def persisted(self, index: int, term: int) -> None:
        """Note that the log is durable up to the entry (index, term).

        A report that a truncation has overtaken is ignored, which its term tells; unless the same
        entry was written again meanwhile. So the shell must not report a flush that began before
        a Truncate for anything from that Truncate's index on.
        """
        member = self._member
        if index <= member.durable_index or not member.log.holds(index, term):
            return
        member.durable_index = index
        match member.role_state:
            case Leader() as leader:
                entry_pusher.advance_commit(member, leader)
                if member.role_state is leader:
                    transfer.ask_if_caught_up(member, leader)
            case Follower() as follower:
                entry_handler.handle_persisted(member, follower)

    def remove_before(self, first_index: int) -> None:
        """Forget the entries before `first_index`, which the shell removes from its store.

        InvariantError unless `first_index` is here and committed: this member answers by it for
        all that it has removed (`entry_handler.handle_compare`).
        """
        if first_index > self._member.committed_index:
            raise InvariantError(
                f"entries before {first_index} cannot be removed: those up to "
                f"{self._member.committed_index} are committed"
            )
        self._member.log.remove_before(first_index)
        self._member.memberships.remove_before(first_index)

    def link_lost(self, peer_id: str) -> None:
        """Note that the connection to a peer broke, or was refused."""
        member = self._member
        match member.role_state:
            case Leader() as leader if peer_id in leader.progress:
                entry_pusher.link_lost(leader, peer_id)
            case Follower() as follower if peer_id == follower.leader_id:
                leader_elector.leader_link_lost(member, follower)
            case _:
                pass

    def link_restored(self, peer_id: str) -> None:
        """Note that there is a connection to a peer again; what was sent before may be lost."""
        member = self._member
        if member.recalling is not None:
            member.recalling.ask_due = member.now_ticks
        match member.role_state:
            case Leader() as leader if peer_id in leader.progress:
                heartbeats.send_to(member, leader, peer_id)
                entry_pusher.link_restored(leader, peer_id)
            case (PreCandidate() | Candidate()) as role_state:
                if peer_id in electorate.other_voters(member):
                    leader_elector.ask_for_vote(member, role_state, peer_id)
            case Follower() if member.joining is not None and peer_id in member.config.peers:
                joining.ask(member, member.joining, peer_id)
            case _:
                pass

    # -- output ----------------------------------------------------------------------------------

    def ready(self) -> Ready | None:
        """Return the next batch of work; None when there is none, or while one is out."""
        if self._ready is not None:
            return None
        member = self._member
        if isinstance(member.role_state, Leader):
            reads.release_confirmed(member, member.role_state)
            if member.role_state.push_due:
                entry_pusher.send_due(member, member.role_state)
        if member.joining is not None:
            joining.become_voter_if_safe(member, member.joining)
        hard_state = member.hard_state_to_save(self._saved_hard_state)
        if (
            hard_state is None
            and not (member.writes or member.messages or member.reads)
            and member.committed_index == self._reported_committed_index
        ):
            return None
        self._ready = Ready(
            hard_state=hard_state,
            writes=tuple(member.writes),
            messages=tuple(member.messages),
            committed_index=member.committed_index,
            reads=tuple(member.reads),
        )
        member.writes.clear()
        member.messages.clear()
        member.reads.clear()
        return self._ready

    def advance(self, ready: Ready) -> None:
        """Note that all of a Ready is done."""
        if ready is not self._ready:
            raise InvariantError("advance() was called with another Ready than the one that is out")
        self._ready = None
        self._reported_committed_index = ready.committed_index
        if ready.hard_state is not None:
            self._saved_hard_state = ready.hard_state

    # -- what it knows ---------------------------------------------------------------------------

    @property
    def config(self) -> RaftConfig:
        """As given."""
        return self._member.config

    @property
    def membership(self) -> Membership:
        """Who belongs to the group, by the last such entry of this member's log."""
        return self._member.memberships.current

    @property
    def memberships(self) -> LogMemberships:
        """All that this member's log says of it; to be looked at only."""
        return self._member.memberships

    @property
    def role(self) -> Role:
        """This member's role in `term`."""
        return self._member.role

    @property
    def term(self) -> int:
        """The highest term that this member has heard of."""
        return self._member.term

    @property
    def vote_for(self) -> str | None:
        """Whom this member voted for in `term`."""
        return self._member.vote_for

    @property
    def leader_id(self) -> str | None:
        """The leader of `term`, as far as this member knows."""
        return self._member.leader_id

    @property
    def leads(self) -> bool:
        """Whether this member leads `term`, as far as it knows."""
        return isinstance(self._member.role_state, Leader)

    @property
    def joining(self) -> str:
        """What this member waits for before it may vote, for people; empty on a voter."""
        member = self._member
        return joining.awaited(member, member.joining) if member.joining is not None else ""

    @property
    def recalling(self) -> bool:
        """Whether this member has just started, and promises nothing before it was answered."""
        return self._member.recalls

    @property
    def master(self) -> bool:
        """True on a leader whose first entry of its term is committed, and with it all before."""
        role_state = self._member.role_state
        return (
            isinstance(role_state, Leader) and role_state.noop_index <= self._member.committed_index
        )

    @property
    def quorum_active(self) -> bool:
        """True on a leader that a quorum answers, and on a follower that hears its leader."""
        member = self._member
        match member.role_state:
            case Leader() as leader:
                return heartbeats.quorum_active(member, leader)
            case Follower() as follower:
                return follower.leader_is_alive(member)
            case PreCandidate() | Candidate():
                return False

    @property
    def transferee_id(self) -> str | None:
        """To whom this leader is handing over, if it is."""
        role_state = self._member.role_state
        return (
            role_state.transfer.transferee_id
            if isinstance(role_state, Leader) and role_state.transfer
            else None
        )

    @property
    def fittest_peer_id(self) -> str | None:
        """To whom this leader had best hand over; None on others, and when no peer could."""
        return next(iter(self.fit_peer_ids), None)

    @property
    def fit_peer_ids(self) -> tuple[str, ...]:
        """To whom this leader could hand over, the fittest first; none on others."""
        role_state = self._member.role_state
        return (
            transfer.fit_peers(self._member, role_state) if isinstance(role_state, Leader) else ()
        )

    @property
    def committed_index(self) -> int:
        """Up to here, entries can never be lost while a majority keeps its disks."""
        return self._member.committed_index

    @property
    def durable_index(self) -> int:
        """Up to here the shell has reported the log as flushed."""
        return self._member.durable_index

    @property
    def ledger_begin_index(self) -> int:
        """Index of the first entry that is still here."""
        return self._member.log.begin_index

    @property
    def ledger_end_index(self) -> int:
        """Index of the last entry, flushed or not; -1 when there is none."""
        return self._member.log.end_index

    @property
    def ledger_end_term(self) -> int:
        """Term of the last entry; -1 when there is none."""
        return self._member.log.end_term

    @property
    def contradiction(self) -> str:
        """What no sane leader asks, and this term's did; this member should not serve then."""
        return self._member.contradiction

    @property
    def refusals(self) -> Mapping[RefusalCause, int]:
        """How many messages were not obeyed, by cause, since the start."""
        return self._member.refusals

    def match_indexes(self) -> dict[str, int]:
        """For each peer, up to where it is known to hold this leader's log; empty on others."""
        role_state = self._member.role_state
        progress = role_state.progress if isinstance(role_state, Leader) else {}
        return {peer_id: one.match_index for peer_id, one in progress.items()}

    # -- helpers ---------------------------------------------------------------------------------

    def _tick_leader(self, leader: Leader) -> None:
        member = self._member
        if not heartbeats.quorum_active(member, leader):
            leader_elector.become_follower(member, member.term, None)
            return
        transfer.end_overdue(member, leader)
        if member.now_ticks >= leader.heartbeat_due:
            heartbeats.send_round(member, leader)
            electorate.stop_pushing_to_removed(member, leader)
            entry_pusher.retry(member, leader)
            transfer.transfer_to_preferred(member, leader)
            transfer.ask_if_caught_up(member, leader)

    def _refuse(self, reason: RefusalReason) -> Refusal:
        return Refusal(reason=reason, leader_id=self._member.leader_id)
