"""The core's interface to its shell: the shell passes inputs in, and takes `Ready` batches out.

    raft.tick() | raft.step(message) | raft.propose(n, entries) | raft.persisted(index, term) | …
    while (ready := raft.ready()) is not None:
        ...  # do its work, in the order that `Ready` states
        raft.advance(ready)

No call blocks or does IO. Inputs are allowed while the shell works on a Ready.
"""

from collections.abc import Callable

from dledger_node.raft import (
    changes,
    election_record,
    electorate,
    entry_handler,
    entry_pusher,
    heartbeats,
    idle,
    joining,
    leader_elector,
    reads,
    recalling,
    steps,
    transfer,
    yielding,
)
from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core_view import CoreView
from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.log_terms import LogEnd, LogTerms
from dledger_node.raft.member_state import Candidate, Follower, Leader, PreCandidate
from dledger_node.raft.membership import Change, Membership
from dledger_node.raft.messages import Message
from dledger_node.raft.proposals import Proposal, Refusal, RefusalReason
from dledger_node.raft.ready import HardState, Ready, WriteProposal
from dledger_node.raft.recovered import recovered


class Raft(CoreView):
    """One member's core. Not thread-safe. No call gets slower as the log grows."""

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
        """Start as a follower, with the `hard_state`, `log` and `committed_index` found on disk.

        The core takes over and changes `log` and `memberships`, the log's membership entries (None
        if it has none). `committed_index` is any index known to be committed and durable here; -1
        if unknown. `incarnation` is 0 or more, and different from that of every earlier start.
        `randint` returns a random integer between its arguments, both included. Raises
        InvariantError if the term or committed entries were lost.
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

    def tick(self, elapsed_ticks: int = 1, *, has_room: bool = True) -> None:
        """Advance the clock by one tick, after `elapsed_ticks` of time.

        After a pause, more time has passed than there are ticks. A leader sends its heartbeats by
        the time; every other timer counts ticks, so that the messages that waited during the pause
        are read before a member gives up its leader or its followers. `has_room` is False while
        the volume is full: this member could not write a leader's first entry, so it must not stand
        for election, and it reports this to its leader.
        """
        member = self._member
        member.now_ticks += 1
        member.elapsed_ticks += elapsed_ticks
        member.has_room = has_room
        if member.recalling is not None:
            recalling.tick(member, member.recalling)
        match member.role_state:
            case Leader() as leader:
                self._tick_leader(leader)
            case Follower() if member.joining is not None:
                joining.tick(member, member.joining)
            case PreCandidate() | Candidate() if not has_room:
                leader_elector.forget_leader(member)
            case _ if member.now_ticks < member.election_deadline or member.recalls:
                pass
            case Follower() if yielding.yields(member):
                leader_elector.become_follower(member, member.term, None)
                yielding.look_again_soon(member)
            case _ if has_room and electorate.may_campaign(member):
                leader_elector.start_pre_vote(member)
            case _:
                leader_elector.forget_leader(member)

    def idle_ticks(self, *, before_timeout: int = 0) -> int:
        """Return how many of the next ticks change nothing but the clock, if no input comes before.

        The last `before_timeout` ticks before a timeout ends do not count as idle.
        """
        return idle.idle_ticks(self._member, before_timeout=before_timeout)

    def pass_idle_ticks(self, count: int, elapsed_ticks: int) -> None:
        """Advance the clock by `count` idle ticks at once, after `elapsed_ticks` of time.

        Raises InvariantError if there are fewer idle ticks than `count`.
        """
        if count > self.idle_ticks():
            raise InvariantError(f"{count} ticks are not idle: only {self.idle_ticks()} are")
        idle.pass_idle_ticks(self._member, count, elapsed_ticks)

    def step(self, message: Message) -> None:
        """Handle a peer's message; refuse one for another member, or from outside the group."""
        steps.step(self._member, message)

    def note_state(self, *, is_behind: bool) -> None:
        """Record whether the state of this member lacks entries that its log has had since its
        start (`yielding`). Without a call, the core assumes that it lacks none.
        """
        self._member.is_behind = is_behind

    def propose(self, count: int, entries: object) -> Proposal | Refusal:
        """Append `count` bodies. `entries` is the shell's handle on them, returned in
        `Ready.writes`.
        """
        member = self._member
        if not isinstance(member.role_state, Leader):
            return self._refuse(RefusalReason.NOT_LEADER)
        if member.role_state.transfer is not None:
            return self._refuse(RefusalReason.LEADER_TRANSFERRING)
        if count < 1:
            raise InvariantError(f"{count} bodies were proposed; at least 1 is required")
        first_index = member.log.end_index + 1
        last_index = member.log.end_index + count
        write = WriteProposal(
            first_index=first_index, last_index=last_index, term=member.term, entries=entries
        )
        member.append(write, last_index, member.term)
        member.role_state.push_due = True
        return Proposal(first_index=first_index, last_index=last_index, term=member.term)

    def transfer_leadership(self, transferee_id: str) -> Refusal | None:
        """Start a leadership transfer; return the refusal if it is not possible.

        The leader refuses appends until the transferee leads, or election_ticks have passed.
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
        """Change the group's membership by an entry, which is returned in `Ready.writes`.

        The change is in effect at once, and final once that entry is committed. A leader that
        removes itself leads until then.
        """
        member = self._member
        if not isinstance(member.role_state, Leader):
            return self._refuse(RefusalReason.NOT_LEADER)
        reason = changes.refusal(member, member.role_state, change)
        if reason is not None:
            return self._refuse(reason)
        return changes.begin(member, member.role_state, change)

    def read_index(self, handle: object) -> Refusal | None:
        """Ask for the index that a linearizable read must include; `Ready.reads` returns it."""
        if not isinstance(self._member.role_state, Leader):
            return self._refuse(RefusalReason.NOT_LEADER)
        reads.begin(self._member, self._member.role_state, handle)
        return None

    def persisted(self, index: int, term: int, *, is_flushed: bool = True) -> None:
        """Record that the log is durable up to the entry (index, term).

        `is_flushed` is False if the entries are only written, and count as durable because of
        `RaftConfig.confirms_unflushed`.

        The core ignores a report about an entry that has since been truncated, which it recognizes
        by the term. It cannot recognize such a report if the same entry was written again. So for
        entries from a Truncate's index on, the shell must not report a flush that began before it.
        """
        member = self._member
        if not member.log.holds(index, term):
            return
        if is_flushed:
            member.flushed_index = max(member.flushed_index, index)
            recalling.note_flushed(member, LogEnd(term, index))
        if index <= member.durable_index:
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

        Raises InvariantError unless the log holds `first_index` and it is committed: that entry
        stands for the removed ones when a leader asks (`entry_handler.handle_compare`).
        """
        if first_index > self._member.committed_index:
            raise InvariantError(
                f"entries before {first_index} cannot be removed: only those up to "
                f"{self._member.committed_index} are committed"
            )
        self._member.log.remove_before(first_index)
        self._member.memberships.remove_before(first_index)

    def note_difference(self, leader_id: str, term: int) -> None:
        """Record that a push did not follow this log, although index and term were the same.

        Nothing is confirmed to that leader until another push from it follows this log.
        """
        match self._member.role_state:
            case Follower() as follower if (leader_id, term) == (self.leader_id, self.term):
                follower.logs_differ = True
            case _:
                pass

    def link_lost(self, peer_id: str) -> None:
        """Record that the connection to a peer broke, or was refused."""
        member = self._member
        match member.role_state:
            case Leader() as leader if peer_id in leader.progress:
                entry_pusher.link_lost(leader, peer_id)
            case Follower() as follower if peer_id == follower.leader_id:
                leader_elector.leader_link_lost(member, follower)
            case _:
                pass

    def link_restored(self, peer_id: str) -> None:
        """Record that a peer is connected again; messages sent before may be lost."""
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
        """Return the next batch of work; None if there is none, or until `advance` is called."""
        if self._ready is not None:
            return None
        member = self._member
        if isinstance(member.role_state, Leader):
            if member.role_state.reads:
                reads.release_confirmed(member, member.role_state)
            if member.role_state.push_due:
                entry_pusher.send_due(member, member.role_state)
            if member.role_state.notices_due:
                heartbeats.send_notices(member, member.role_state)
        if member.joining is not None:
            joining.become_voter_if_safe(member, member.joining)
        if not (member.flushed or member.config.confirms_unflushed):
            recalling.note_settled(member)
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
        """Record that the shell has done all work of a Ready."""
        if ready is not self._ready:
            raise InvariantError("advance() must be called with the Ready that ready() returned")
        self._ready = None
        self._reported_committed_index = ready.committed_index
        if ready.hard_state is not None:
            self._saved_hard_state = ready.hard_state

    # -- helpers ---------------------------------------------------------------------------------

    def _tick_leader(self, leader: Leader) -> None:
        member = self._member
        if not heartbeats.quorum_active(member, leader):
            election_record.note_quorum_loss(member, leader)
            leader_elector.become_follower(member, member.term, None)
            return
        transfer.end_overdue(member, leader)
        leader.notices_due = True  # those that were put off while the committed index moved often
        if member.elapsed_ticks >= leader.heartbeat_due:
            heartbeats.send_round(member, leader)
            electorate.stop_pushing_to_removed(member, leader)
            entry_pusher.retry(member, leader)
            transfer.transfer_to_preferred(member, leader)
            transfer.ask_if_caught_up(member, leader)

    def _refuse(self, reason: RefusalReason) -> Refusal:
        return Refusal(reason=reason, leader_id=self._member.leader_id)
