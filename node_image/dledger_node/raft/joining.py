"""A member that comes up with an empty disk: what it must learn before it may vote.

It is new, or has lost its volume, and cannot tell which. In the second case its earlier self made
promises that it does not know of: votes, and entries that it confirmed. So while `Joining` is there
it does not vote. It asks all others, again and again, and becomes a voter in one of two ways:

- All others that there can be are blank, in term 0 with an empty log: the group is new, and nothing
  was promised. Where the settings say that it is new, all other voters must be blank, and whoever
  else answers; otherwise one who was added may have what the voters have lost.
- A leader has answered, in a term T, that its log ends at E, and which memberships may hold: the
  current one and, while it is not committed, the one before. All others of these memberships,
  learners too, have answered since this start, with terms up to T. Then this member takes entries
  of that leader and confirms them; before that it heeds nobody. Once all up to E is here, durably,
  as that leader pushed it in T, it votes.

Why the second is safe, given that no other voter's volume was lost:

- Votes: whoever got the earlier self's vote in a term had saved that term before it asked, and
  whoever elected the earlier self before it answered; both have answered since, as shown below. So
  these terms are at most T, and T + 1 is the first that this member can vote in.
- Terms below T: the leader of T was elected without this member, or by the earlier self while it
  still knew its promises. Either way it holds all that was committed before (quorum intersection).
- Term T: what the earlier self confirmed to this leader lay at or below E when the leader said so.
- Leaders above T had no vote of the earlier self, or somebody's term would have been above T.
- Confirming is safe then: it says what is on this disk now. A commit that counts what only the lost
  disk held is safe too, since whoever lacks the entry wins no election without this member.

Why the leader's memberships name all who can have stood above T: let C be the last membership that
is committed in terms up to T. The leader's log holds C; it is the current one, or the one before
it, since nothing is changed while a change is not committed. A candidate above T holds C too, or it
loses anyway, and at most one change more, by another leader. Voters of that change are members of
C: nobody becomes a voter who was not a learner before. Its voters alone can be elected, and elect.

A learner joins by the same rule, as it cannot know that it is none: its id may have voted before it
was removed, or it may have been promoted by an entry that this leader lacks. Who was removed may
lose its disk once that is committed: from then on every majority is one of others, who hold all
that it ever confirmed, and if it is added again, it is another volume that was lost. Who kept its
disk knows its promises and need not join.

Every start draws a number of its own (`incarnation`), and only answers to it count: an older answer
knows nothing of what this member promised in between.

More volumes may be lost at once. While those who still know their promises are in every majority of
each of these memberships, the argument holds; with fewer, this member refuses. The exception is a
group that grows from one member by its settings. That one knows that it was alone
(`HardState.alone`) and that nobody else has led since, so it holds all that was ever acknowledged,
and may have this member's vote above the highest term that was told before anybody can lead.
"""

from collections.abc import Iterable

from dledger_node.raft import entry_handler, leader_elector, quorum
from dledger_node.raft.member_state import Follower, Joining, Leader, MemberState
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


def tick(member: MemberState, joining: Joining) -> None:
    """Ask, and ask again; where others would stand for election, only forget a silent leader."""
    if member.now_ticks >= joining.ask_due:
        joining.ask_due = member.now_ticks + member.config.heartbeat_ticks
        for peer_id in member.config.peers:
            ask(member, joining, peer_id)
    if member.now_ticks >= member.election_deadline:
        leader_elector.forget_leader(member)


def ask(member: MemberState, joining: Joining, peer_id: str) -> None:
    """Ask one peer what must be known."""
    member.send(
        JoinRequest(
            sender=member.self_id,
            receiver=peer_id,
            term=member.term,
            incarnation=joining.incarnation,
        )
    )


def answer(member: MemberState, request: JoinRequest) -> None:
    """Say what this member knows; whatever the terms are, nothing changes here."""
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
            memberships=told_memberships(member),
        )
    )


def note_asker(member: MemberState, peer_id: str) -> None:
    """Remember, on a leader, that a peer is not ready to lead: it still joins or recalls."""
    if isinstance(member.role_state, Leader) and peer_id in member.role_state.progress:
        member.role_state.progress[peer_id].join_asked_tick = member.now_ticks


def told_memberships(member: MemberState) -> tuple[Membership, ...]:
    """Return the memberships that may hold, or none if the first voters never changed."""
    memberships = member.memberships
    return memberships.possible(member.committed_index) if memberships.changed else ()


def handle_response(member: MemberState, response: JoinResponse) -> None:
    """Learn from an answer to this start's question; the term rises with it."""
    joining = member.joining
    if joining is None or response.incarnation != joining.incarnation:
        return
    if response.term > member.term:
        leader_elector.become_follower(member, response.term, None)
    known = joining.answers.get(response.sender)
    # A leader's first answer that is of use stands: its log grows, and E need not run away.
    if known is None or known.term != response.term or not _may_be_heeded(member, joining, known):
        joining.answers[response.sender] = response


def forbids(member: MemberState, joining: Joining, message: Message) -> bool:
    """Tell whether this member must not heed a message yet."""
    match message:
        case PreVoteRequest():
            return not _may_vote_for(member, joining, message.sender, message.term + 1)
        case VoteRequest():
            return not _may_vote_for(member, joining, message.sender, message.term)
        case HeartBeatRequest() | CompareRequest() | AppendRequest() | InstallSnapshotRequest():
            known = joining.answers.get(message.sender)
            told = known is not None and known.term == message.term
            return not (told and known and _may_be_heeded(member, joining, known))
        case TakeLeadershipRequest():
            return True
        case _:
            return False


def become_voter_if_safe(member: MemberState, joining: Joining) -> None:
    """Become a voter as soon as that is safe; the shell saves it before anything depends on it."""
    if _is_new_group(member, joining) or _has_caught_up(member, joining):
        member.joining = None
        leader_elector.restart_election_timer(member)


def awaited(member: MemberState, joining: Joining) -> str:
    """Why this member joins, if that is known, and what it waits for; for people."""
    waits = _awaited(member, joining)
    return f"{joining.reason}; {waits}" if joining.reason else waits


def _awaited(member: MemberState, joining: Joining) -> str:
    leading = [known for known in joining.answers.values() if known.leading]
    known = max(leading, key=lambda answer: answer.term, default=None)
    memberships = _memberships_of(member, known)
    others = _others(member, memberships)
    silent = [peer_id for peer_id in others if peer_id not in joining.answers]
    if silent:
        return f"waits for {', '.join(silent)}: all others must answer before it may vote"
    if not _are_covered(member, joining, memberships):
        blank = [peer_id for peer_id in others if joining.answers[peer_id].joining]
        return f"waits for members that kept their logs; {', '.join(blank)} have none either"
    if known is None or member.leader_id is None:
        return "waits for a leader"
    if known.sender == member.leader_id and known.term == member.term:
        return f"waits for the entries of {known.sender} up to {known.ledger_end_index}"
    return f"waits for {member.leader_id} to say where its log ends"


def _may_be_heeded(member: MemberState, joining: Joining, known: JoinResponse) -> bool:
    """Tell whether who answered leads, and all have answered who must by what it knows."""
    return known.leading and _are_covered(member, joining, _memberships_of(member, known))


def _memberships_of(member: MemberState, known: JoinResponse | None) -> tuple[Membership, ...]:
    """The memberships that may hold, as somebody told; those of the settings if nobody has."""
    if known is not None and known.memberships:
        return known.memberships
    return (Membership(member.config.voters),)


def _others(member: MemberState, memberships: Iterable[Membership]) -> list[str]:
    """All who belong to one of some memberships, but for this member."""
    return sorted({one for membership in memberships for one in membership.members}
                  - {member.self_id})  # fmt: skip


def _are_covered(
    member: MemberState, joining: Joining, memberships: tuple[Membership, ...]
) -> bool:
    """Tell whether the answers cover all that the earlier self can have promised."""
    answers = joining.answers
    others = _others(member, memberships)
    if any(peer_id not in answers for peer_id in others):
        return False
    if any(answers[peer_id].alone for peer_id in others):
        return True
    for membership in memberships:
        voters = [one for one in membership.voters if one != member.self_id]
        keeper_count = sum(not answers[voter_id].joining for voter_id in voters)
        if not quorum.meets_every_majority(keeper_count, len(membership.voters)):
            return False
    return True


def _may_vote_for(member: MemberState, joining: Joining, candidate_id: str, term: int) -> bool:
    """Tell whether a candidate surely holds all that the earlier self confirmed.

    It does if it was its group's only member and no majority was ever there without it: those who
    are voters by now, and the earlier self, are too few.
    """
    memberships = _memberships_of(member, None)
    answers = joining.answers.values()
    if any(known.memberships for known in answers) or not _are_covered(
        member, joining, memberships
    ):
        return False
    if term <= max(known.term for known in answers) or not joining.answers[candidate_id].alone:
        return False
    others = [known for peer_id, known in joining.answers.items() if peer_id != candidate_id]
    voter_count = 1 + sum(not known.joining for known in others)
    return not quorum.is_majority(voter_count, len(member.config.voters))


def _is_new_group(member: MemberState, joining: Joining) -> bool:
    """Tell whether nobody can have been promised anything: all are blank, this member too."""
    first_voters = _memberships_of(member, None)
    awaited = _others(member, first_voters) if member.config.new_group else member.config.peers
    return (
        all(peer_id in joining.answers for peer_id in awaited)
        and member.term == 0
        and member.log.end_index < 0
        and member.is_voter
        and all(known.blank for known in joining.answers.values())
    )


def _has_caught_up(member: MemberState, joining: Joining) -> bool:
    """Tell whether all is here that this term's leader had when it answered."""
    role_state = member.role_state
    if not isinstance(role_state, Follower) or role_state.leader_id is None:
        return False
    known = joining.answers.get(role_state.leader_id)
    return (
        known is not None
        and known.term == member.term
        and _may_be_heeded(member, joining, known)
        and entry_handler.confirmed_index(member, role_state) >= known.ledger_end_index
    )
