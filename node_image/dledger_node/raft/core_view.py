"""The read-only side of the core: the member's state, which the shell can read at any time."""

from collections.abc import Mapping

from dledger_node.raft import (
    completeness,
    heartbeats,
    join_reasons,
    joining,
    recalling,
    transfer,
    yielding,
)
from dledger_node.raft.config import RaftConfig
from dledger_node.raft.election_causes import Election, ElectionCause, QuorumLoss
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.member_state import (
    Candidate,
    Follower,
    Leader,
    MemberState,
    PreCandidate,
    Role,
)
from dledger_node.raft.membership import Membership
from dledger_node.raft.refusals import RefusalCause


class CoreView:
    """A member's state as its shell sees it. Reading it changes nothing."""

    _member: MemberState
    _reported_committed_index: int

    @property
    def config(self) -> RaftConfig:
        """The settings that the core was built with."""
        return self._member.config

    # -- role and term ---------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """This member's role in `term`."""
        return self._member.role

    @property
    def term(self) -> int:
        """The highest term that this member knows of."""
        return self._member.term

    @property
    def vote_for(self) -> str | None:
        """The member that this one voted for in `term`."""
        return self._member.vote_for

    @property
    def leader_id(self) -> str | None:
        """The leader of `term`, if this member knows it."""
        return self._member.leader_id

    @property
    def leads(self) -> bool:
        """Whether this member is the leader of `term`, as far as it knows."""
        return isinstance(self._member.role_state, Leader)

    @property
    def reported_commit(self) -> yielding.ReportedCommit:
        """What this member must have applied at least, by what a leader has reported to it."""
        return yielding.reported_commit(self._member)

    @property
    def master(self) -> bool:
        """Whether this member is a leader whose first entry of its term is committed.

        All entries of earlier terms are then committed as well.
        """
        role_state = self._member.role_state
        return (
            isinstance(role_state, Leader) and role_state.noop_index <= self._member.committed_index
        )

    @property
    def quorum_active(self) -> bool:
        """Whether a quorum answers this leader, or this follower has contact with its leader."""
        member = self._member
        match member.role_state:
            case Leader() as leader:
                return heartbeats.quorum_active(member, leader)
            case Follower() as follower:
                return follower.leader_is_alive(member)
            case PreCandidate() | Candidate():
                return False

    @property
    def contradiction(self) -> str:
        """Describe a request in this term that no correct leader sends; empty if there was none.

        While it is not empty, this member should not serve clients.
        """
        return self._member.contradiction

    @property
    def leader_lacks(self) -> str:
        """Describe what this member's leader has not shown: that its log holds all entries that are
        committed here. Empty if it has, or if no leader is known.

        While it is not empty, this member confirms nothing, and should not serve clients.
        """
        return completeness.lacking(self._member)

    @property
    def elections(self) -> Mapping[ElectionCause, int]:
        """The number of elections that this member began since its start, by cause."""
        return self._member.elections

    @property
    def last_election(self) -> Election | None:
        """The last election that this member began; None if it has begun none."""
        return self._member.last_election

    @property
    def last_quorum_loss(self) -> QuorumLoss | None:
        """The last time that this leader gave up because no majority answered; None if never."""
        return self._member.last_quorum_loss

    @property
    def refusals(self) -> Mapping[RefusalCause, int]:
        """The number of refused messages since the start, by cause."""
        return self._member.refusals

    # -- full volumes ----------------------------------------------------------------------------

    @property
    def full_peers(self) -> list[str]:
        """The peers that have reported full volumes to this leader; empty if this member does not
        lead.
        """
        role_state = self._member.role_state
        if not isinstance(role_state, Leader):
            return []
        return heartbeats.full_peers(self._member, role_state)

    @property
    def lacks_room(self) -> bool:
        """Whether this leader knows that the volumes of too many voters are full for any majority
        to take another entry.
        """
        role_state = self._member.role_state
        return isinstance(role_state, Leader) and heartbeats.lacks_room(self._member, role_state)

    # -- membership ------------------------------------------------------------------------------

    @property
    def membership(self) -> Membership:
        """The group's membership, by the last membership entry of this member's log."""
        return self._member.memberships.current

    @property
    def memberships(self) -> LogMemberships:
        """All memberships of this member's log; callers must not change them."""
        return self._member.memberships

    @property
    def seed_sha256(self) -> str:
        """`Seed.sha256` while this member has nothing but that archive's log; empty otherwise."""
        member, seed = self._member, self._member.seed
        if seed is None or (member.term, member.log.end) != (seed.end.term, seed.end):
            return ""
        return seed.sha256

    @property
    def joining(self) -> str:
        """Human-readable: what this member waits for before it may vote; empty if it may."""
        member = self._member
        return join_reasons.awaited(member, member.joining) if member.joining is not None else ""

    @property
    def unheard_voters(self) -> list[str]:
        """The voters in the settings that have yet to answer before this member may vote; empty if
        it may (`joining.unheard`).
        """
        member = self._member
        if member.joining is None:
            return []
        return joining.unheard(member, member.joining, joining.memberships_of(member, None))

    @property
    def joined_index(self) -> int:
        """The entry up to which this voter had to take a leader's log since its start; -1 if it had
        to take none.
        """
        return self._member.joined_index

    @property
    def lacks_promised(self) -> str:
        """Human-readable: which confirmed entries this member's host has lost; empty if none."""
        member = self._member
        end = member.promised_end
        return recalling.awaited(member, end) if end is not None else ""

    @property
    def recalling(self) -> bool:
        """Whether this member has just started and makes no promises until its peers answer."""
        return self._member.recalls

    # -- leadership transfer ---------------------------------------------------------------------

    @property
    def transferee_id(self) -> str | None:
        """The member that this leader is handing over to; None if it is not handing over."""
        role_state = self._member.role_state
        return (
            role_state.transfer.transferee_id
            if isinstance(role_state, Leader) and role_state.transfer
            else None
        )

    @property
    def fit_peer_ids(self) -> tuple[str, ...]:
        """The peers fit to lead, fittest first; empty if this member does not lead."""
        role_state = self._member.role_state
        return (
            transfer.fit_peers(self._member, role_state) if isinstance(role_state, Leader) else ()
        )

    @property
    def declined_peer_ids(self) -> tuple[str, ...]:
        """The peers that are unfit to lead for now, since they have declined the leadership within
        election_ticks; empty if this member does not lead.
        """
        member, role_state = self._member, self._member.role_state
        if not isinstance(role_state, Leader):
            return ()
        return tuple(
            peer_id
            for peer_id in role_state.progress
            if transfer.has_declined(member, role_state, peer_id)
        )

    # -- log -------------------------------------------------------------------------------------

    @property
    def committed_index(self) -> int:
        """The last committed entry; no entry up to it is lost while a majority keeps its disks."""
        return self._member.committed_index

    @property
    def readable_index(self) -> int:
        """The last committed entry that the shell has written, as far as it has reported.

        While the shell saves the hard state, entries up to `committed_index` may not be written
        yet, and others, which are to be removed, may be in their place. Only entries up to this
        one may be read.
        """
        return self._reported_committed_index

    @property
    def durable_index(self) -> int:
        """The last entry that the shell has reported as flushed."""
        return self._member.durable_index

    @property
    def ledger_begin_index(self) -> int:
        """Index of the first entry that has not been removed."""
        return self._member.log.begin_index

    @property
    def ledger_end_index(self) -> int:
        """Index of the last entry, flushed or not; -1 if the log is empty."""
        return self._member.log.end_index

    @property
    def ledger_end_term(self) -> int:
        """Term of the last entry; -1 if the log is empty."""
        return self._member.log.end_term

    def retaining_indexes(self) -> dict[str, int]:
        """Return the match indexes of the peers for which entries must be kept: of all that may be
        voters, and of learners that have answered within election_ticks. Empty on members that do
        not lead.
        """
        member, role_state = self._member, self._member.role_state
        if not isinstance(role_state, Leader):
            return {}
        possible = member.memberships.possible(member.committed_index)
        voters = {one for membership in possible for one in membership.voters}
        return {
            peer_id: one.match_index
            for peer_id, one in role_state.progress.items()
            if peer_id in voters
            or member.now_ticks - one.contact_tick < member.config.election_ticks
        }

    def match_indexes(self) -> dict[str, int]:
        """Return the match index of each peer; empty on members that do not lead."""
        role_state = self._member.role_state
        progress = role_state.progress if isinstance(role_state, Leader) else {}
        return {peer_id: one.match_index for peer_id, one in progress.items()}
