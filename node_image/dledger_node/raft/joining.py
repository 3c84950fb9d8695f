"""Joining: what a member with an empty disk must learn before it may vote.

The member is new, or has lost its volume, and cannot tell which. In the second case it no longer
knows the promises that it made: votes, and entries that it confirmed. So while `Joining` is set,
the member does not vote. It asks all others repeatedly, and becomes a voter in one of two ways:

- All other possible members are blank, in term 0 with an empty log: the group is new, and nothing
  was promised. If the settings say that the group is new, all other voters must be blank, and every
  other member that answers; the only voter waits an election timeout for such answers. Otherwise
  an added member may have entries that the voters have lost. The folders of a new group's first
  voters may also begin with the log of one archive (`HardState.seed`). Such members count as blank
  while their log ends with the archive's and their term is that of its last entry: no member has
  voted in a later term, and every later leader has a later term. All of them must be in that state,
  and the settings must say that the group begins with an archive (`needs_seed`): a folder may be
  left over from an earlier group. If one is blank, or began with another archive, no group begins.
  Archives that end in the same place are distinguished by their digests. So a member that has
  nothing but an archive's log also ignores every leader that does not name the same digest: the
  entries that both have could differ.
- A leader has answered, in a term T, that its log ends at E, and which memberships may be in
  effect: the current one and, until that is committed, the previous one. All other members of these
  memberships, including learners, have answered since this start, with terms up to T. From then on
  this member accepts and confirms entries from that leader only. Once its disk has all entries up
  to E, as that leader pushed them in T, and has flushed them, in AsyncFlush too, it votes.

Why the second way is safe, if no other voter's volume was lost:

- Votes: a candidate that got a vote of this member's earlier incarnation in a term had saved that
  term before it asked. A voter that elected the earlier incarnation had saved the term before it
  answered. Both have answered since, as shown below. So these terms are at most T, and T + 1 is the
  first term in which this member can vote.
- Terms below T: the leader of T was elected without this member, or by its earlier incarnation
  while it still knew its promises. Either way it has all entries that were committed before (quorum
  intersection).
- Term T: the entries that the earlier incarnation confirmed to this leader were at or below E when
  the leader answered.
- Leaders above T had no vote of the earlier incarnation, or some member's term would have been
  above T.
- Confirming is safe then: it states what is on this disk now. A commit that counts entries which
  only the lost disk had is safe too, since a candidate that lacks such an entry wins no election
  without this member.

Why the leader's memberships name every member that can have stood above T: let C be the last
membership that is committed in terms up to T. The leader's log has C. C is the current membership
or the previous one, since no change begins before the last one is committed. A candidate above T
also has C, or it loses anyway, and at most one more change, by another leader. The voters after
that change are members of C, because only a learner becomes a voter. Only they can vote or be
elected.

A learner joins by the same rule, because it cannot know that it is one: its id may have voted
before it was removed, or it may have been promoted by an entry that this leader lacks. A removed
member may lose its disk once its removal is committed: from then on every majority consists of
other members, which have all entries that it ever confirmed. If it is added again, it counts as one
more lost volume. A member that kept its disk knows its promises and need not join.

Every start draws a random number (`incarnation`), and only answers to this number count: an older
answer does not cover what this member promised in between.

Several volumes may be lost at once. The argument holds while every majority of each of these
memberships contains a member that still knows its promises; otherwise this member does not become a
voter. The exception is a group that grows from one member by its settings. That member knows that
it was alone (`HardState.alone`) and that no other member has led since. So it has every entry that
was ever acknowledged. To let it become the leader, this member may vote for it in a term above the
highest term in the answers.
"""

from collections.abc import Iterable

from dledger_node.raft import completeness, leader_elector, quorum
from dledger_node.raft.member_state import Follower, Leader, MemberState
from dledger_node.raft.membership import Membership
from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    InstallSnapshotRequest,
    JoinRequest,
    JoinResponse,
    Message,
    PreVoteRequest,
    TakeLeadershipRequest,
    VoteRequest,
)
from dledger_node.raft.start_states import Joining


def tick(member: MemberState, joining: Joining) -> None:
    """Ask all peers when a round is due. At an election timeout, only forget the leader."""
    if member.now_ticks >= joining.ask_due:
        joining.ask_due = member.now_ticks + member.config.heartbeat_ticks
        for peer_id in member.config.peers:
            ask(member, joining, peer_id)
    if member.now_ticks >= member.election_deadline:
        leader_elector.forget_leader(member)


def ask(member: MemberState, joining: Joining, peer_id: str) -> None:
    """Send one peer a JoinRequest."""
    member.send(
        JoinRequest(
            sender=member.self_id,
            receiver=peer_id,
            term=member.term,
            incarnation=joining.incarnation,
            seed_sha256=joining.seed.sha256 if joining.seed is not None else "",
        )
    )


def answer(member: MemberState, request: JoinRequest) -> None:
    """Answer a joining member, whatever its term, without adopting that term."""
    note_asker(member, request.sender)
    member.send(
        JoinResponse(
            sender=member.self_id,
            receiver=request.sender,
            term=member.term,
            incarnation=request.incarnation,
            ledger_end_index=member.log.end_index,
            leading=isinstance(member.role_state, Leader),
            joining=member.joining is not None,
            alone=member.alone,
            # A member of an earlier release asks without a digest, and cannot read one.
            seed_sha256=member.seed.sha256 if member.seed and request.seed_sha256 else "",
            memberships=possible_memberships(member),
        )
    )


def note_asker(member: MemberState, peer_id: str) -> None:
    """Record, on a leader, that a peer cannot lead yet because it is joining or recalling."""
    if isinstance(member.role_state, Leader) and peer_id in member.role_state.progress:
        member.role_state.progress[peer_id].join_asked_tick = member.now_ticks


def possible_memberships(member: MemberState) -> tuple[Membership, ...]:
    """Return the memberships that may be in effect; none if the first voters never changed."""
    memberships = member.memberships
    return memberships.possible(member.committed_index) if memberships.changed else ()


def handle_response(member: MemberState, response: JoinResponse) -> None:
    """Record an answer to this incarnation, and adopt its term if it is higher."""
    joining = member.joining
    if joining is None or response.incarnation != joining.incarnation:
        return
    if response.term > member.term:
        leader_elector.become_follower(member, response.term, None)
    known = joining.answers.get(response.sender)
    # A leader's first usable answer is kept: its log grows, and E must not grow with it.
    if known is None or known.term != response.term or not _may_be_heeded(member, joining, known):
        joining.answers[response.sender] = response


def forbids(member: MemberState, joining: Joining, message: Message) -> bool:
    """Return whether this member must ignore a message for now."""
    match message:
        case PreVoteRequest():
            return not _may_vote_for(member, joining, message.sender, message.term + 1)
        case VoteRequest():
            return not _may_vote_for(member, joining, message.sender, message.term)
        case HeartBeatRequest() | CompareRequest() | AppendRequest() | InstallSnapshotRequest():
            known = joining.answers.get(message.sender)
            has_answered = known is not None and known.term == message.term
            return not (has_answered and known and _may_be_heeded(member, joining, known))
        case TakeLeadershipRequest():
            return True
        case _:
            return False


def become_voter_if_safe(member: MemberState, joining: Joining) -> None:
    """Become a voter once it is safe. The shell saves the change before anything depends on it."""
    caught_up = _has_caught_up(member, joining)
    if not (caught_up or _is_new_group(member, joining)):
        return
    if caught_up and member.is_voter and member.leader_id:
        member.joined_index = joining.answers[member.leader_id].ledger_end_index
    member.joining = None
    leader_elector.restart_election_timer(member)


def _may_be_heeded(member: MemberState, joining: Joining, known: JoinResponse) -> bool:
    """Return whether the sender is a leader that began alike, and all members that it names have
    answered.
    """
    return (
        known.leading
        and began_alike(joining, known)
        and are_covered(member, joining, memberships_of(member, known))
    )


def began_alike(joining: Joining, known: JoinResponse) -> bool:
    """Return whether the sender began with the archive whose log is all that this member has; True
    if this member has no such archive.
    """
    return joining.seed is None or known.seed_sha256 == joining.seed.sha256


def lacks_seed(member: MemberState, joining: Joining) -> bool:
    """Return whether this member must not begin a group, because it lacks the group's archive."""
    return member.config.needs_seed and joining.seed is None


def memberships_of(member: MemberState, known: JoinResponse | None) -> tuple[Membership, ...]:
    """Return the memberships in an answer, or the one in the settings if it has none."""
    if known is not None and known.memberships:
        return known.memberships
    return (Membership(member.config.voters),)


def others(member: MemberState, memberships: Iterable[Membership]) -> list[str]:
    """Return all members of these memberships except this one."""
    return sorted({one for membership in memberships for one in membership.members}
                  - {member.self_id})  # fmt: skip


def unheard(member: MemberState, joining: Joining, memberships: Iterable[Membership]) -> list[str]:
    """Return the other members of these memberships that have not answered since this start.

    This member does not vote before all members of those in effect have answered: both ways to
    become a voter need their answers.
    """
    peers = others(member, memberships)
    return [peer_id for peer_id in peers if peer_id not in joining.answers]


def are_covered(member: MemberState, joining: Joining, memberships: tuple[Membership, ...]) -> bool:
    """Return whether the answers cover all promises of the earlier incarnation."""
    answers = joining.answers
    peers = others(member, memberships)
    if any(peer_id not in answers for peer_id in peers):
        return False
    if any(answers[peer_id].alone for peer_id in peers):
        return True
    for membership in memberships:
        voters = [one for one in membership.voters if one != member.self_id]
        keeper_count = sum(not answers[voter_id].joining for voter_id in voters)
        if not quorum.meets_every_majority(keeper_count, len(membership.voters)):
            return False
    return True


def _may_vote_for(member: MemberState, joining: Joining, candidate_id: str, term: int) -> bool:
    """Return whether a candidate certainly has all entries that the earlier incarnation confirmed.

    It does if it was its group's only member and no majority without it ever existed: the members
    that are voters by now, plus the earlier incarnation, are too few for one.
    """
    memberships = memberships_of(member, None)
    answers = joining.answers.values()
    if any(known.memberships for known in answers) or not are_covered(member, joining, memberships):
        return False
    if term <= max(known.term for known in answers) or not joining.answers[candidate_id].alone:
        return False
    rest = [known for peer_id, known in joining.answers.items() if peer_id != candidate_id]
    voter_count = 1 + sum(not known.joining for known in rest)
    return not quorum.is_majority(voter_count, len(member.config.voters))


def _is_new_group(member: MemberState, joining: Joining) -> bool:
    """Return whether no promise can exist because all members, including this one, are blank, or
    have nothing but the log of the same archive.
    """
    if joining.seed is None:
        is_blank = member.term == 0 and member.log.end_index < 0
        has_begun_nothing = is_blank and not lacks_seed(member, joining)
    else:
        has_begun_nothing = (
            member.config.new_group
            and member.config.needs_seed
            and member.term == joining.seed.end.term
            and member.log.end == joining.seed.end
        )
    return (
        has_begun_nothing
        and all(peer_id in joining.answers for peer_id in _founders(member))
        and member.is_voter
        and all(is_unbegun(joining, known) for known in joining.answers.values())
    )


def is_unbegun(joining: Joining, known: JoinResponse) -> bool:
    """Return whether a peer has never voted in the group, and has only what this member began with.

    The end of its log may be in an earlier term than its own. Then that end is not the archive's:
    the index alone could agree, but the peer has had a leader since.
    """
    if joining.seed is None:
        return known.blank
    has_its_end = (known.term, known.ledger_end_index) == joining.seed.end
    return has_its_end and began_alike(joining, known)


def _founders(member: MemberState) -> Iterable[str]:
    """Return the other members that must answer before a new group may begin.

    A group that is declared new waits for its first voters. A sole first voter has none to wait
    for, so it gives the members that may be added an election timeout to say that the group exists.
    """
    config = member.config
    if not config.new_group:
        return config.peers
    first_voters = others(member, memberships_of(member, None))
    asking = not first_voters and member.now_ticks < config.election_ticks
    return config.peers if asking else first_voters


def _has_caught_up(member: MemberState, joining: Joining) -> bool:
    """Return whether this disk has all entries that this term's leader had when it answered."""
    role_state = member.role_state
    if not isinstance(role_state, Follower) or role_state.leader_id is None:
        return False
    known = joining.answers.get(role_state.leader_id)
    return (
        known is not None
        and known.term == member.term
        and _may_be_heeded(member, joining, known)
        and min(member.flushed_index, completeness.confirmable_index(member, role_state))
        >= known.ledger_end_index
    )
