"""A member that comes up with an empty disk: what it must learn before it may vote.

It is new, or has lost its volume, and cannot tell which. In the second case its earlier self made
promises that it does not know of: votes, and entries that it confirmed. So while `Joining` is there
it takes entries and confirms them, but does not vote. It asks every other voter, again and again,
and becomes a voter in one of two ways:

- All others are blank, in term 0 with an empty log: the group is new, and nothing was promised.
- All others have answered since this start, which gives the floor, the highest of their terms. Of
  lower terms nothing is heeded from then on, and before that nothing at all. Then a leader has
  answered, in a term T not below the floor, that its log ends at E; and all up to E is here,
  durably, as that leader pushed it in T.

Why the second is safe, given that no other volume was lost:

- Votes: whoever got the earlier self's vote in a term had saved that term before it asked, and
  whoever elected the earlier self before it answered; both have answered since. So these terms are
  at most the floor, and T + 1 is the first that this member can vote in.
- Terms below T: the leader of T was elected without this member, or by the earlier self while it
  still knew its promises. Either way it holds all that was committed before (quorum intersection).
- Term T: what the earlier self confirmed to this leader lay at or below E when the leader said so.
- Leaders above T had no vote of the earlier self, or the floor would be above T.
- Confirming is safe at once: it says what is on this disk now. A commit that counts what only the
  lost disk held is safe too, since whoever lacks the entry wins no election without this member.

Every start draws a number of its own (`incarnation`), and only answers to it count: an older answer
knows nothing of what this member promised in between.

More volumes may be lost at once. While those who still know their promises are in every majority,
the argument holds; with fewer, this member refuses. The exception is a group that grows from one
member. That one knows that it was alone (`HardState.alone`) and that nobody else has led since, so
it holds all that was ever acknowledged, and may have this member's vote above the floor before
anybody can lead.
"""

from dledger_node.raft import entry_handler, leader_elector, quorum
from dledger_node.raft.member_state import Follower, Joining, Leader, MemberState
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
        leader_elector.become_follower(member, member.term, None)
        leader_elector.restart_election_timer(member)


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
    if isinstance(member.part, Leader):
        member.part.progress[request.sender].join_asked_tick = member.now_ticks
    member.send(
        JoinResponse(
            sender=member.self_id,
            receiver=request.sender,
            term=member.term,
            incarnation=request.incarnation,
            ledger_end_index=member.log.end_index,
            leading=isinstance(member.part, Leader),
            joining=member.joining is not None,
            alone=member.alone,
        )
    )


def take_answer(member: MemberState, response: JoinResponse) -> None:
    """Learn from an answer to this start's question; the term rises with it."""
    joining = member.joining
    if joining is None or response.incarnation != joining.incarnation:
        return
    if response.term > member.term:
        leader_elector.become_follower(member, response.term, None)
    known = joining.answers.get(response.sender)
    # A leader's first answer stands: its log grows, and E need not run away.
    if known is None or not (known.leading and known.term == response.term):
        joining.answers[response.sender] = response
    if joining.floor is None and _knows_floor(member, joining):
        joining.floor = max(known.term for known in joining.answers.values())


def forbids(member: MemberState, joining: Joining, message: Message) -> bool:
    """Tell whether this member must not heed a message yet."""
    match message:
        case PreVoteRequest():
            return not _may_vote_for(member, joining, message.sender, message.term + 1)
        case VoteRequest():
            return not _may_vote_for(member, joining, message.sender, message.term)
        case HeartBeatRequest() | CompareRequest() | AppendRequest() | InstallSnapshotRequest():
            return joining.floor is None
        case TakeLeadershipRequest():
            return True
        case _:
            return False


def go_on(member: MemberState, joining: Joining) -> None:
    """Become a voter as soon as that is safe; the shell saves it before anything depends on it."""
    if _is_new_group(member, joining) or _has_caught_up(member, joining):
        member.joining = None
        leader_elector.restart_election_timer(member)


def awaited(member: MemberState, joining: Joining) -> str:
    """What this member waits for, for people."""
    peers = member.config.peers
    silent = [peer_id for peer_id in peers if peer_id not in joining.answers]
    if silent:
        return f"waits for {', '.join(silent)}: all others must answer before it may vote"
    if joining.floor is None:
        others = [peer_id for peer_id in peers if joining.answers[peer_id].joining]
        return f"waits for members that kept their logs; {', '.join(others)} have none either"
    leader_id = member.leader_id
    if leader_id is None:
        return "waits for a leader"
    known = joining.answers[leader_id]
    if known.leading and known.term == member.term:
        return f"waits for the entries of {leader_id} up to {known.ledger_end_index}"
    return f"waits for {leader_id} to say where its log ends"


def _knows_floor(member: MemberState, joining: Joining) -> bool:
    """Tell whether the answers cover all that the earlier self can have promised."""
    answers = joining.answers.values()
    if len(answers) < len(member.config.peers):
        return False
    keeper_count = sum(not answer.joining for answer in answers)
    voter_count = len(member.config.voters)
    return quorum.meets_every_majority(keeper_count, voter_count) or any(
        answer.alone for answer in answers
    )


def _may_vote_for(member: MemberState, joining: Joining, candidate_id: str, term: int) -> bool:
    """Tell whether a candidate surely holds all that the earlier self confirmed.

    It does if it was its group's only member and no majority was ever there without it: those who
    are voters by now, and the earlier self, are too few.
    """
    if joining.floor is None or term <= joining.floor or not joining.answers[candidate_id].alone:
        return False
    others = [known for peer_id, known in joining.answers.items() if peer_id != candidate_id]
    voter_count = 1 + sum(not known.joining for known in others)
    return not quorum.is_majority(voter_count, len(member.config.voters))


def _is_new_group(member: MemberState, joining: Joining) -> bool:
    """Tell whether nobody can have been promised anything: all are blank, this member too."""
    return (
        len(joining.answers) == len(member.config.peers)
        and member.term == 0
        and member.log.end_index < 0
        and all(known.blank for known in joining.answers.values())
    )


def _has_caught_up(member: MemberState, joining: Joining) -> bool:
    """Tell whether all is here that this term's leader had when it answered."""
    part = member.part
    if joining.floor is None or not isinstance(part, Follower) or part.leader_id is None:
        return False
    known = joining.answers[part.leader_id]
    return (
        known.leading
        and known.term == member.term
        and entry_handler.confirmed_index(member, part) >= known.ledger_end_index
    )
