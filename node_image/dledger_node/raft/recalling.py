"""Recalling: how a member that starts with a disk finds out whether the disk is out of date.

A volume may come back in an earlier state: restored from a backup, rolled back, or without its log.
Nothing on it shows that, but the peers can detect it: each keeps in memory the last promise that it
received from every other member (`marks`): a vote, or entries that the member confirmed. So a
member asks all others at its start, and promises nothing until all have answered or recall_ticks
have passed. A disk that lacks the promise in a mark is older than the mark; its member then joins
as if it had lost the disk (`joining`).

This is sufficient if all others answered in time, none of them has restarted since the promise, and
no message that this member sent before its start arrives after a peer's answer (the shell ensures
the last). Let the disk be in term D. The promises that it lacks were made in term D or later:

- Votes: a candidate that got a vote in a term had saved that term before it asked, and has answered
  since. This member adopts the highest term among the answers, and votes only in later ones. It
  adopts that term last: if it crashes while it asks, its disk must still be in term D.
- Confirmed entries: the leader of term T that counts them remembers them, or a later promise in a
  term above T. If that term is above D, it was never on this disk. If it is D, either the disk has
  the last entry that was confirmed, and with it all before, or it is older: within a term, no log
  loses entries that its member has confirmed.
- Leaders below a term that this member knew: it adopts the highest term among the answers before it
  accepts messages.
- A leader's own copy of an entry, which it counts but confirms to no other member: it commits only
  entries that are durable on its disk, and its followers remember the committed index. Entries that
  it committed before it informed any follower are the one promise that no peer remembers.

A sound disk is never mistaken for an older one. Term and vote are saved before they are sent,
entries are flushed before they are confirmed, and a crash loses neither. A log that begins after
the entry of a mark had that entry, because only committed entries are removed. A mark is dropped
when its member is added to the group, since it may return with another disk, and when the member's
leader replaces its log. Until the removal of a member is committed, it may be truncated, and the
member votes again; so its mark outlives the removal.

Two cases stay undetected: promises that no member remembers, because the members that received them
are silent or have restarted; and a log that was rolled back without its term, if that term is above
the last one in which the member confirmed an entry, since a leader of that term may have truncated
the log. So a backup restored to one member of a running group is detected, and one restored while
the whole group was stopped is not. The member keeps asking after recall_ticks until all have
answered, and joins if it learns only then that its disk is older.

Under AsyncFlush (`confirms_unflushed`) a loss of power takes the end of the log, which the member
has confirmed or counted, and nothing else: term and vote are on disk, and entries are written
before they are pushed or confirmed. So the member only has to learn where that log ended. What
counts is the mode in which it confirmed entries, not the one in which it starts again, so the disk
records whether all of them were flushed (`HardState.flushed`). The first Ready under AsyncFlush
clears that record, before any promise. A member under SyncFlush sets it again once all others have
answered and it lacks nothing that they remember.

- Each mark has the latest such end (`Mark.end`): a leader knows what was confirmed to it, and a
  follower what it confirmed to its leader, which counts its own memory. What a learner holds counts
  toward no commit, so only what it knows to be committed matters.
- The latest end of all others is the promised end. If some stay silent for recall_ticks, one mark
  is enough if the peer that remembers it led the term of this disk, and the entry is of that term
  (`Mark.is_whole`): all later promises were made to that leader, and its log has what was committed
  before. Otherwise a member whose disk lacks a reported end joins, and keeps asking.
- Until its disk holds a log that ends no earlier, flushed, the member does not stand for election,
  and votes only for such logs (Raft paper, section 5.4.1): it votes as if it had lost nothing. It
  confirms what it holds. It saves the promised end, since the peers may forget it.

What no peer remembers is lost, by contract: if hosts lose power before the member has asked them,
or together with it, or if the peers' processes have restarted since.
"""

from typing import TypeAlias

from dledger_node.raft import joining, leader_elector, marks
from dledger_node.raft.log_terms import BEFORE_FIRST, EMPTY, LogEnd
from dledger_node.raft.member_state import MemberState
from dledger_node.raft.membership import Membership
from dledger_node.raft.messages import JoinRequest, JoinResponse, Message
from dledger_node.raft.recall_messages import Mark, RecallRequest, RecallResponse
from dledger_node.raft.start_states import Joining, Recalling

_NonBinding: TypeAlias = JoinRequest | JoinResponse | RecallRequest | RecallResponse
"""Messages that a member may handle while it is recalling, since they lead to no promise."""


def tick(member: MemberState, recalling: Recalling) -> None:
    """Ask the silent peers again; after recall_ticks, continue without them, or join."""
    if member.now_ticks >= recalling.ask_due:
        recalling.ask_due = member.now_ticks + member.config.heartbeat_ticks
        for peer_id in sorted(recalling.asked - recalling.answered):
            ask(member, recalling, peer_id)
    if member.now_ticks >= member.config.recall_ticks and recalling.waits:
        _promise_again(member, recalling)
        _keep_promise(member, recalling)


def ask(member: MemberState, recalling: Recalling, peer_id: str) -> None:
    """Ask one peer for its mark of this member."""
    member.send(
        RecallRequest(
            sender=member.self_id,
            receiver=peer_id,
            term=member.term,
            incarnation=recalling.incarnation,
        )
    )


def answer(member: MemberState, request: RecallRequest) -> None:
    """Send a recalling peer this member's mark of it, without adopting its term."""
    joining.note_asker(member, request.sender)
    member.send(
        RecallResponse(
            sender=member.self_id,
            receiver=request.sender,
            term=member.term,
            incarnation=request.incarnation,
            memberships=joining.possible_memberships(member),
            mark=marks.remembered(member, request.sender),
        )
    )


def forbids(member: MemberState, message: Message) -> bool:
    """Return whether this member must ignore a message for now."""
    return member.recalls and not isinstance(message, _NonBinding)


def handle_response(member: MemberState, response: RecallResponse) -> None:
    """Compare a peer's mark with this member's disk."""
    recalling = member.recalling
    if recalling is None or response.incarnation != recalling.incarnation:
        return
    if response.sender in recalling.answered:
        return
    recalling.answered.add(response.sender)
    for membership in response.memberships:
        recalling.asked.update(membership.members)
    recalling.asked.discard(member.self_id)
    recalling.reported_term = max(recalling.reported_term, response.term)
    if response.mark is not None:
        if _is_older(member, recalling, response.mark):
            _join_older(member, recalling, response.sender, response.mark)
            return
        if not recalling.disk_flushed:
            _note_end(member, recalling, response, response.mark)
    have_all_answered = recalling.asked <= recalling.answered
    if have_all_answered or not recalling.waits:
        _promise_again(member, recalling)
        _keep_promise(member, recalling)
    if have_all_answered:
        member.recalling = None


def note_flushed(member: MemberState, end: LogEnd) -> None:
    """Forget the promised end once the disk holds a log that ends no earlier."""
    if member.promised_end is not None and end >= member.promised_end:
        member.promised_end = None
        leader_elector.restart_election_timer(member)


def note_settled(member: MemberState) -> None:
    """Record under SyncFlush that this disk has all that the member confirmed in AsyncFlush before.

    All others have answered by then, and what they remember is here and flushed.
    """
    config = member.config
    waits = member.recalling or member.joining or member.promised_end
    if config.recall_ticks and not config.confirms_unflushed and waits is None:
        member.flushed = True


def awaited(member: MemberState, promised_end: LogEnd) -> str:
    """Return human-readable text: which entries this member lacks, and what that means."""
    return (
        f"its host lost the end of the log, which it had confirmed up to entry "
        f"{promised_end.index} of term {promised_end.term}, and the disk ends at "
        f"{member.durable_index}; it votes only for members that have these entries, and waits for "
        "a leader that pushes them"
    )


def _note_end(
    member: MemberState, recalling: Recalling, response: RecallResponse, mark: Mark
) -> None:
    """Record the end of the log that this member had promised, as far as a peer knows it.

    What a learner holds counts toward no commit. Only what it knows to be committed counts. Under
    SyncFlush a peer may know that an entry is committed before it has flushed that entry itself.
    """
    known_term = mark.term if mark.index_term == BEFORE_FIRST else mark.index_term
    known_end = LogEnd(known_term, mark.index) if mark.index > BEFORE_FIRST else EMPTY
    end = max(mark.end, known_end)
    reported = response.memberships or (Membership(member.config.voters),)
    possible = (*reported, *member.memberships.possible(member.committed_index))
    if not any(response.sender in membership.voters for membership in possible):
        end = known_end
    recalling.reported_end = max(recalling.reported_end, end)
    recalling.knows_all |= mark.is_whole and mark.term == member.term


def _keep_promise(member: MemberState, recalling: Recalling) -> None:
    """Neither stand nor vote against the promised end, if this disk lacks it.

    If a silent peer may know of a later one, the member joins instead, and keeps asking. An end
    that the member has saved before is not surpassed: nothing later was promised since.
    """
    end, known_end = recalling.reported_end, member.promised_end or EMPTY
    if end > known_end and member.log.end < end:
        if recalling.knows_all or recalling.asked <= recalling.answered:
            leader_elector.become_follower(member, member.term, None)
            member.promised_end = end
        elif member.joining is None:
            _join_unsure(member, recalling)
            return
    if recalling.knows_all or recalling.asked <= recalling.answered:
        member.joining = None


def _is_older(member: MemberState, recalling: Recalling, mark: Mark) -> bool:
    """Return whether this disk lacks the promise in a mark. If a loss of power may have taken the
    end of the log, only a later term shows it.
    """
    if mark.term != member.term or not recalling.disk_flushed:
        return mark.term > member.term
    if mark.index < member.log.begin_index:
        return False
    if mark.index > member.log.end_index:
        return True
    return mark.index_term not in (BEFORE_FIRST, member.log.term_at(mark.index))


def _join_older(member: MemberState, recalling: Recalling, peer_id: str, mark: Mark) -> None:
    """Join because a peer remembers a promise that this disk lacks."""
    reason = (
        f"the disk is older than what {peer_id} remembers: promises in term {mark.term}, and "
        f"entries up to {mark.index}; it ends at {member.log.end_index}"
    )
    _join(member, recalling, reason)


def _join_unsure(member: MemberState, recalling: Recalling) -> None:
    """Join because the disk lacks a promised end, and silent peers may know of a later one."""
    end = recalling.reported_end
    silent = ", ".join(sorted(recalling.asked - recalling.answered))
    reason = (
        f"its host lost the end of the log, which it had confirmed at least up to entry "
        f"{end.index} of term {end.term}, and {silent} may remember more; the disk ends at "
        f"{member.log.end_index}"
    )
    _join(member, recalling, reason)
    member.recalling = recalling


def _join(member: MemberState, recalling: Recalling, reason: str) -> None:
    """Join, as with an empty disk."""
    leader_elector.become_follower(member, max(member.term, recalling.reported_term), None)
    member.recalling = None
    member.alone = False
    member.joining = Joining(incarnation=recalling.incarnation, reason=reason)


def _promise_again(member: MemberState, recalling: Recalling) -> None:
    """Stop waiting, but give no new vote in this term: the disk may have lost an earlier one."""
    if recalling.waits:
        recalling.waits = False
        if recalling.reported_term > member.term:
            leader_elector.become_follower(member, recalling.reported_term, None)
        member.unsure_term = member.term
        leader_elector.restart_election_timer(member)
