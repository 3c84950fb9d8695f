"""The leader's side of replication: finding where a peer's log agrees, pushing, and committing.

Rules: Raft paper, section 5.3, with the faster way back of its end; 5.4.2 for what may be counted.
DLedger's counterpart is `EntryDispatcher`.
"""

from dledger_node.raft import changes, marks, quorum
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
    """Queue every probe and every range that may go out now.

    Called once for each Ready, so that all proposals of one turn travel in one range.
    """
    leader.push_due = False
    for peer_id, progress in leader.progress.items():
        if progress.next_index <= _lowest_index(member):  # the entry before was removed meanwhile
            progress.compare(_lowest_index(member), at_once=progress.probe_due)
        if progress.state is PushState.APPEND:
            _push(member, peer_id, progress)
        elif progress.probe_due:
            _send_probe(member, peer_id, progress)


def handle_response(member: MemberState, leader: Leader, response: PushResponse) -> None:
    """Take a peer's answer to a COMPARE or an APPEND of this term."""
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
            pass  # its newer term would have deposed this leader already
    if progress.state is PushState.COMPARE or progress.next_index <= member.log.end_index:
        leader.push_due = True


def advance_commit(member: MemberState, leader: Leader) -> None:
    """Commit what a majority holds durably, if it ends in an entry of this leader's own term."""
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
    """Ask again what was not answered; called in every heartbeat round."""
    leader.push_due = True
    for progress in leader.progress.values():
        if progress.state is PushState.COMPARE:
            progress.probe_due = True
        elif progress.stalled(member.now_ticks, member.config.stall_ticks):
            # Perhaps only its disk is slow: ask about the last entry sent before sending any again.
            progress.compare(progress.next_index - 1, at_once=True)


def link_lost(leader: Leader, peer_id: str) -> None:
    """Take what is on its way for lost; ask again once the link is back, or by heartbeat."""
    progress = leader.progress[peer_id]
    known = progress.match_index > BEFORE_FIRST
    progress.compare(progress.match_index if known else progress.next_index - 1, at_once=False)


def link_restored(leader: Leader, peer_id: str) -> None:
    """Ask at once what waits for the next heartbeat."""
    leader.progress[peer_id].probe_due = True
    leader.push_due = True


def _push(member: MemberState, peer_id: str, progress: Progress) -> None:
    """Send ranges, each of one term, until the window or the log ends."""
    log, limits, memberships = member.log, member.config, member.memberships
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
                committed_index=member.advertised_committed_index,
                memberships=(
                    memberships.between(first_index, last_index)
                    if first_index <= memberships.last_index
                    else ()
                ),
            )
        )
        progress.pushed(last_index, member.now_ticks)


def _send_probe(member: MemberState, peer_id: str, progress: Progress) -> None:
    """Send the open question."""
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
    """Send the first entries of this log; the answer comes once they are durable there.

    Sent in every heartbeat round until then: the peer takes them once.
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
    """Count what the peer confirms, and leave COMPARE if that was in question."""
    if response.match_index > member.log.end_index:
        return  # more than this leader has: nothing to count on
    if progress.needs_install and response.match_index < member.log.begin_index:
        return  # said of the log that it is about to drop
    asked_index = progress.next_index - 1
    progress.confirm(response.match_index, member.now_ticks)
    if response.probe is not None:
        progress.append_after(max(asked_index, progress.match_index), member.now_ticks)


def _handle_refused_push(member: MemberState, progress: Progress, response: PushResponse) -> None:
    """Go to COMPARE: the peer has no place for a push.

    Of many pushes refused together, the first leads here and the others find the question open. A
    peer that refuses what follows the entry it has just agreed on is not asked in a busy loop.
    """
    if progress.state is PushState.APPEND:
        index = min(progress.next_index - 1, max(progress.match_index, response.ledger_end_index))
        at_once = progress.match_index > progress.compared_match_index
        progress.compare(max(index, _lowest_index(member)), at_once=at_once)


def _handle_denied_probe(member: MemberState, progress: Progress, response: PushResponse) -> None:
    """Ask about an earlier entry: the peer does not hold the one in question."""
    asked_index = progress.next_index - 1
    index = max(_lowest_index(member), min(asked_index - 1, _hinted_index(member, response)))
    if asked_index > progress.match_index:
        index = max(index, progress.match_index)
    else:
        marks.note(member, response.sender, progress.match_index)
        progress.match_index = index  # it lost what it had confirmed: count it no more
    if 0 < asked_index == member.log.begin_index <= member.committed_index:
        progress.match_index = BEFORE_FIRST
        marks.replaced(member, response.sender)
        progress.compare(index, at_once=True)
        progress.needs_install = True
        return
    progress.compare(index, at_once=index < asked_index)


def _hinted_index(member: MemberState, response: PushResponse) -> int:
    """The highest index at which the logs can still agree, by the peer's hints.

    If this leader has entries of the peer's term, they agree at the last of them. (Going to the
    peer's first one instead made DLedger 0.4 remove what both shared.) Otherwise nothing of that
    term is here, and they can agree only before it.
    """
    if response.conflict_term < 0:
        return response.ledger_end_index
    last_index = member.log.last_index_of_term(response.conflict_term)
    if last_index is None or last_index < response.conflict_index:
        return response.conflict_index - 1
    return last_index


def _lowest_index(member: MemberState) -> int:
    """The lowest entry that can be asked about: the empty prefix, or this log's first entry."""
    begin_index = member.log.begin_index
    return begin_index if begin_index > 0 else BEFORE_FIRST
