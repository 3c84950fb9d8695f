"""The leader's side of replication: find where a peer's log agrees, push entries, and commit.

Rules: Raft paper, section 5.3, with the conflict hints at its end, and 5.4.2 for which entries may
be committed by counting. DLedger's counterpart is `EntryDispatcher`.
"""

from dledger_node.raft import changes, heartbeats, marks, quorum
from dledger_node.raft.log_terms import BEFORE_FIRST
from dledger_node.raft.member_state import Leader, MemberState
from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    InstallSnapshotRequest,
    PushResponse,
    PushResult,
)
from dledger_node.raft.progress import Progress, PushState


def send_due(member: MemberState, leader: Leader) -> None:
    """Queue all probes and ranges that can be sent now.

    Called once per Ready, so that all proposals of one turn travel in one range.
    """
    leader.push_due = False
    for peer_id, progress in leader.progress.items():
        if progress.next_index <= _lowest_index(member):  # the entry before it has been removed
            progress.compare(_lowest_index(member), at_once=progress.probe_due)
        if progress.state is PushState.APPEND:
            _push(member, peer_id, progress)
        elif progress.probe_due:
            _send_probe(member, peer_id, progress)


def handle_response(member: MemberState, leader: Leader, response: PushResponse) -> None:
    """Handle a peer's response to a COMPARE or an APPEND of this term."""
    if response.requested_term != member.term:
        return
    progress = leader.progress[response.sender]
    progress.contact_tick = member.now_ticks
    if response.probe is not None and not progress.awaits(response.probe):
        return
    match response.result:
        case PushResult.SUCCESS:
            _handle_success(member, progress, response)
            advance_commit(member, leader)
        case PushResult.INCONSISTENT_STATE if response.probe is None:
            _handle_refused_push(member, progress, response)
        case PushResult.INCONSISTENT_STATE:
            _handle_denied_probe(member, progress, response)
        case PushResult.EXPIRED_TERM:
            pass  # the newer term has already deposed this leader
    if progress.state is PushState.COMPARE or progress.next_index <= member.log.end_index:
        leader.push_due = True


def advance_commit(member: MemberState, leader: Leader) -> None:
    """Commit up to the last index that is durable on a majority, if that entry is of this term."""
    leader.notices_due = True
    matched = [progress.match_index for progress in leader.progress.values() if progress.is_voter]
    if leader.is_voter:
        matched.append(member.durable_index)
    index = quorum.reached_by_majority(matched)
    if index > member.committed_index and member.log.holds(index, member.term):
        changing = member.memberships.last_index > member.committed_index
        member.commit(index)
        if changing:
            changes.step_down_if_not_voter(member, leader)


def retry(member: MemberState, leader: Leader) -> None:
    """Repeat unanswered probes, and probe stalled peers; called in every heartbeat round."""
    leader.push_due = True
    for progress in leader.progress.values():
        if progress.state is PushState.COMPARE:
            progress.probe_due = True
        elif progress.stalled(member.now_ticks, member.config.stall_ticks):
            # The peer's disk may only be slow: probe for the last entry sent before resending any.
            progress.compare(progress.next_index - 1, at_once=True)


def link_lost(leader: Leader, peer_id: str) -> None:
    """Assume in-flight ranges lost; probe again once the link is back, or at the next heartbeat."""
    progress = leader.progress[peer_id]
    known = progress.match_index > BEFORE_FIRST
    progress.compare(progress.match_index if known else progress.next_index - 1, at_once=False)


def link_restored(leader: Leader, peer_id: str) -> None:
    """Send the open probe now instead of at the next heartbeat."""
    leader.progress[peer_id].probe_due = True
    leader.push_due = True


def _push(member: MemberState, peer_id: str, progress: Progress) -> None:
    """Send ranges, each of one term, until the window is full or the log ends."""
    log, limits, memberships = member.log, member.config, member.memberships
    committed_index = member.advertised_committed_index
    while (
        progress.next_index <= log.end_index and len(progress.inflight) < limits.inflight_ranges_max
    ):
        first_index = progress.next_index
        last_index = min(
            log.last_index_of_term_at(first_index), first_index + limits.push_entries_max - 1
        )
        member.send(
            AppendRequest(
                sender=member.self_id,
                receiver=peer_id,
                term=member.term,
                previous_index=first_index - 1,
                previous_term=log.term_at(first_index - 1),
                first_index=first_index,
                last_index=last_index,
                entries_term=log.term_at(first_index),
                committed_index=committed_index,
                memberships=(
                    memberships.between(first_index, last_index)
                    if first_index <= memberships.last_index
                    else ()
                ),
            )
        )
        progress.pushed(last_index, member.now_ticks)
        heartbeats.note_reported(member, progress, min(committed_index, last_index))


def _send_probe(member: MemberState, peer_id: str, progress: Progress) -> None:
    """Send the open probe, or the log's first entries if the peer needs them."""
    index = progress.next_index - 1
    progress.probe_due = False
    if progress.needs_install:
        _send_first_entries(member, peer_id)
        return
    member.send(
        CompareRequest(
            sender=member.self_id,
            receiver=peer_id,
            term=member.term,
            index=index,
            index_term=member.log.term_at(index),
            committed_index=member.advertised_committed_index,
            probe=progress.probe,
        )
    )


def _send_first_entries(member: MemberState, peer_id: str) -> None:
    """Send the first entries of this log; the peer answers once it holds them durably.

    The leader repeats them in every heartbeat round until then; the peer installs them once.
    """
    log, first_index = member.log, member.log.begin_index
    last_index = min(
        log.last_index_of_term_at(first_index), first_index + member.config.push_entries_max - 1
    )
    member.send(
        InstallSnapshotRequest(
            sender=member.self_id,
            receiver=peer_id,
            term=member.term,
            first_index=first_index,
            last_index=last_index,
            entries_term=log.term_at(first_index),
            committed_index=member.committed_index,
            membership=member.memberships.before(first_index),
            memberships=member.memberships.between(first_index, last_index),
        )
    )


def _handle_success(member: MemberState, progress: Progress, response: PushResponse) -> None:
    """Record the confirmed index, and leave COMPARE if this answers the open probe."""
    if response.match_index > member.log.end_index:
        return  # beyond this leader's log: the peer is wrong
    if progress.needs_install and response.match_index < member.log.begin_index:
        return  # it concerns the log that the peer is about to drop
    asked_index = progress.next_index - 1
    progress.confirm(response.match_index, member.now_ticks)
    if response.probe is not None:
        progress.append_after(max(asked_index, progress.match_index), member.now_ticks)


def _handle_refused_push(member: MemberState, progress: Progress, response: PushResponse) -> None:
    """Enter COMPARE: the peer lacks the entry before a push.

    If several pushes are refused, only the first changes the state. A peer that refuses the entry
    after the one that it has just confirmed is probed at the next heartbeat, to avoid a busy loop.
    """
    if progress.state is PushState.APPEND:
        index = min(progress.next_index - 1, max(progress.match_index, response.ledger_end_index))
        at_once = progress.match_index > progress.compared_match_index
        progress.compare(max(index, _lowest_index(member)), at_once=at_once)


def _handle_denied_probe(member: MemberState, progress: Progress, response: PushResponse) -> None:
    """Probe for an earlier entry, since the peer lacks the one asked about."""
    asked_index = progress.next_index - 1
    index = max(_lowest_index(member), min(asked_index - 1, _hinted_index(member, response)))
    if asked_index > progress.match_index:
        index = max(index, progress.match_index)
    else:
        marks.note(member, response.sender, progress.match_index)
        progress.match_index = index  # the peer lost confirmed entries; they no longer count
    if 0 < asked_index == member.log.begin_index <= member.committed_index:
        progress.match_index = BEFORE_FIRST
        marks.replaced(member, response.sender)
        progress.compare(index, at_once=True)
        progress.needs_install = True
        return
    progress.compare(index, at_once=index < asked_index)


def _hinted_index(member: MemberState, response: PushResponse) -> int:
    """Return the highest index at which the logs can agree, according to the peer's hints.

    If this leader has entries of the conflicting term, the result is their last index. (DLedger 0.4
    used the peer's first entry of the term, and so removed entries that both logs shared.)
    Otherwise the logs can agree only before the peer's first entry of that term.
    """
    if response.conflict_term < 0:
        return response.ledger_end_index
    last_index = member.log.last_index_of_term(response.conflict_term)
    if last_index is None or last_index < response.conflict_index:
        return response.conflict_index - 1
    return last_index


def _lowest_index(member: MemberState) -> int:
    """Return the lowest index that can be probed: that of the first entry; -1 if it is entry 0."""
    begin_index = member.log.begin_index
    return begin_index if begin_index > 0 else BEFORE_FIRST
