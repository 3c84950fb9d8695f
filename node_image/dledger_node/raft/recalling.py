"""A member that starts with a disk: whether that is the one on which it made its promises.

A volume may come back as it was earlier: restored from a backup, rolled back, or with its log gone.
Nothing on it tells, but the peers can: each keeps in memory the last that a member has promised to
it (`marks`): a vote, or entries that it confirmed. So whoever starts asks all others, and promises
nothing until all have answered, or recall_ticks have passed. A disk that lacks what a mark names is
an older one; its member is then treated as if it had lost it (`joining`).

Why that is enough, when all others answered in time, none of them has started anew since the
promise, and nothing that this member said before its start arrives after a peer's answer (which the
shell sees to). Let the disk be in term D. What it lacks was promised in terms from D on:

- Votes: whoever got one in a term had saved that term before it asked, and has answered since. This
  member takes over the highest term that was told, and votes in later ones only. It does so last:
  if it dies while it asks, its disk must be in term D still.
- Confirmed entries: the leader of term T who counts them remembers them, or a later promise in a
  term above T. If that term is above D, it was never on this disk. If it is D, the disk holds the
  last entry that was confirmed, and with it all before, or it is older: within a term, no log loses
  what its member has confirmed.
- Leaders below a term that it knew: it takes over the term that was told before it heeds anybody.
- A leader's own copy, which it counts and confirms to nobody: it calls committed only what its disk
  holds durably, and its followers remember that. What it committed and has told none of them yet is
  the one promise without a witness.

It never takes a sound disk for an older one. Term and vote are saved before they are told, entries
are flushed before they are confirmed, and a crash takes neither. A log that begins behind the named
entry held it: only committed ones are removed. A mark goes with who leaves the group, since that
may come back with another disk, and with a log that its leader replaces. Under AsyncFlush a crash
may take what was confirmed, by contract, so that terms alone are compared.

What stays unseen: promises that nobody remembers, since whoever got them is silent or has started
anew; and a log that comes back alone, under a term above the last in which its member confirmed
anything, since a leader of that term may have shortened it. So a backup that is restored to one
member of a running group is found out, and one that is restored while the whole group was stopped
is not. Asking goes on after recall_ticks until all have answered, and a member that learns late
that its disk is older joins then.
"""

from typing import TypeAlias

from dledger_node.raft import joining, leader_elector, marks
from dledger_node.raft.log_terms import BEFORE_FIRST
from dledger_node.raft.member_state import Joining, MemberState, Recalling
from dledger_node.raft.messages import JoinRequest, JoinResponse, Message
from dledger_node.raft.recall_messages import Mark, RecallRequest, RecallResponse

_NonBinding: TypeAlias = JoinRequest | JoinResponse | RecallRequest | RecallResponse
"""Messages that promise nothing, so that a member may take them while it recalls."""


def tick(member: MemberState, recalling: Recalling) -> None:
    """Ask again who is silent; at last, promise without them."""
    if member.now_ticks >= recalling.ask_due:
        recalling.ask_due = member.now_ticks + member.config.heartbeat_ticks
        for peer_id in sorted(recalling.asked - recalling.answered):
            ask(member, recalling, peer_id)
    if member.now_ticks >= member.config.recall_ticks:
        _promise_again(member, recalling)


def ask(member: MemberState, recalling: Recalling, peer_id: str) -> None:
    """Ask one peer what it remembers of this member."""
    member.send(
        RecallRequest(
            sender=member.self_id,
            receiver=peer_id,
            term=member.term,
            incarnation=recalling.incarnation,
        )
    )


def answer(member: MemberState, request: RecallRequest) -> None:
    """Tell a peer what this member remembers of its promises; nothing changes here."""
    joining.note_asker(member, request.sender)
    member.send(
        RecallResponse(
            sender=member.self_id,
            receiver=request.sender,
            term=member.term,
            incarnation=request.incarnation,
            memberships=joining.told_memberships(member),
            mark=marks.remembered(member, request.sender),
        )
    )


def forbids(member: MemberState, message: Message) -> bool:
    """Tell whether this member must not heed a message yet."""
    return member.recalls and not isinstance(message, _NonBinding)


def handle_response(member: MemberState, response: RecallResponse) -> None:
    """Compare what a peer remembers with this member's disk."""
    recalling = member.recalling
    if recalling is None or response.incarnation != recalling.incarnation:
        return
    if response.sender in recalling.answered:
        return
    recalling.answered.add(response.sender)
    for membership in response.memberships:
        recalling.asked.update(membership.members)
    recalling.asked.discard(member.self_id)
    recalling.told_term = max(recalling.told_term, response.term)
    if response.mark is not None and _is_older(member, response.mark):
        _join(member, recalling, response.sender, response.mark)
        return
    if recalling.asked <= recalling.answered:
        _promise_again(member, recalling)
        member.recalling = None


def _is_older(member: MemberState, mark: Mark) -> bool:
    """Tell whether this disk lacks what a peer remembers."""
    if mark.term != member.term:
        return mark.term > member.term
    if not member.config.sync_flush or mark.index < member.log.begin_index:
        return False
    if mark.index > member.log.end_index:
        return True
    return mark.index_term not in (BEFORE_FIRST, member.log.term_at(mark.index))


def _join(member: MemberState, recalling: Recalling, peer_id: str, mark: Mark) -> None:
    """Believe this disk no more than an empty one."""
    reason = (
        f"the disk is older than what {peer_id} remembers: promises in term {mark.term}, and "
        f"entries up to {mark.index}; it ends at {member.log.end_index}"
    )
    leader_elector.become_follower(member, max(member.term, recalling.told_term), None)
    member.recalling = None
    member.alone = False
    member.joining = Joining(incarnation=recalling.incarnation, reason=reason)


def _promise_again(member: MemberState, recalling: Recalling) -> None:
    """Vote and follow from now on; in this term a vote may have been given and forgotten."""
    if recalling.waits:
        recalling.waits = False
        if recalling.told_term > member.term:
            leader_elector.become_follower(member, recalling.told_term, None)
        member.unsure_term = member.term
        leader_elector.restart_election_timer(member)
