"""The follower's side of replication: which entries it takes from its leader, and confirms.

Rules: Raft paper, section 5.3. A follower confirms only entries that are durable and known to equal
the leader's. DLedger's counterpart is `EntryHandler`, which did not check term, leader and
committed index, and so lost acknowledged entries.
"""

from dledger_node.raft import completeness, yielding
from dledger_node.raft.member_state import Follower, MemberState
from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    InstallSnapshotRequest,
    PushResponse,
    PushResult,
    Request,
)
from dledger_node.raft.ready import WritePushed, WriteSnapshot
from dledger_node.raft.refusals import RefusalCause


def handle_heartbeat(member: MemberState, follower: Follower, request: HeartBeatRequest) -> None:
    """Advance the committed index; ask for a COMPARE if the leader's is beyond the verified index.

    The committed index is beyond it after a restart in the leader's term: this member holds the
    entries that it confirmed before, but no longer knows that they equal the leader's.
    """
    commit_verified(member, follower, request.committed_index)
    if request.committed_index > follower.verified_index:
        reject(member, request, follower.verified_index)


def handle_compare(member: MemberState, follower: Follower, request: CompareRequest) -> None:
    """Answer whether this log holds the entry; if so, it equals the leader's up to that entry.

    Removed entries were committed, and so is the first entry that remains: the leader has both.
    """
    agreed_index = request.index
    if request.index < member.log.begin_index and member.log.begin_index > 0:
        agreed_index = member.log.begin_index
    elif not member.log.holds(request.index, request.index_term):
        reject(member, request, request.index)
        return
    completeness.note_agreed(follower, agreed_index)
    completeness.note_shown(follower, request.index)
    commit_verified(member, follower, request.committed_index)
    acknowledge(member, follower, probe=request.probe)


def handle_append(member: MemberState, follower: Follower, request: AppendRequest) -> None:
    """Append the pushed entries that are missing here, and truncate conflicting ones.

    Entries after the pushed range stay: the push may be older than one that was already handled.
    """
    if not member.log.holds(request.previous_index, request.previous_term):
        reject(member, request, request.previous_index)
        return
    follower.logs_differ &= request.previous_index < 0  # the shell has compared the checksums
    held_index = _last_index_held(member, request)
    if held_index < min(request.last_index, member.log.end_index):
        if held_index < follower.verified_index:
            # The verified index is never below the committed one. A leader whose entries contradict
            # either is not the term's leader, or is broken.
            _refuse_to_replace(member, follower, request, held_index + 1)
            _send_conflict(member, request, held_index + 1)
            return
        member.truncate(held_index + 1)
    if held_index < request.last_index:
        write = WritePushed(
            first_index=held_index + 1,
            last_index=request.last_index,
            term=request.entries_term,
            entries=request.entries,
            memberships=request.memberships and request.memberships_after(held_index),
        )
        member.append(write, request.last_index, request.entries_term)
        for entry in write.memberships:
            member.adopt_membership(entry)
    completeness.note_agreed(follower, request.last_index)
    completeness.note_shown(follower, request.last_index)
    commit_verified(member, follower, request.committed_index)
    if confirmed_index(member, follower) >= request.last_index:
        acknowledge(member, follower)


def handle_install(
    member: MemberState, follower: Follower, request: InstallSnapshotRequest
) -> None:
    """Replace the log by the leader's first entries, if the two have no entry in common.

    No entry that this removes is needed. The leader's first entry is committed, so a majority
    without this member holds it and all entries before it, and no candidate can win without a vote
    from that majority. No entry of this log from that index on was ever committed.
    """
    first_index, agreed_index = request.first_index, request.first_index
    if member.log.holds(first_index, request.entries_term):
        pass  # a repeated request
    elif first_index > follower.verified_index:  # which is at or after the committed index
        write = WriteSnapshot(
            first_index=first_index,
            last_index=request.last_index,
            term=request.entries_term,
            entries=request.entries,
            membership=request.membership,
            memberships=request.memberships,
        )
        member.replace_log(write)
        agreed_index = request.last_index
    elif member.log.begin_index <= first_index:
        _refuse_to_replace(member, follower, request, first_index)
        return
    else:
        agreed_index = member.log.begin_index  # the entry was committed and is removed here
    completeness.note_agreed(follower, agreed_index)
    completeness.note_shown(follower, max(request.last_index, request.committed_index))
    member.commit(min(request.committed_index, follower.verified_index))
    yielding.note_reported(member, request.committed_index)
    if confirmed_index(member, follower) >= first_index:
        acknowledge(member, follower)


def handle_persisted(member: MemberState, follower: Follower) -> None:
    """Confirm to the leader, in one response, all entries that a flush made durable."""
    if confirmed_index(member, follower) > follower.acknowledged_index:
        acknowledge(member, follower)


def confirmed_index(member: MemberState, follower: Follower) -> int:
    """Return the last index that is both durable here and shown to equal the leader's log.

    The tail after it may come from another leader. The result is -1 while the leader may lack
    entries that are committed here (`completeness`).
    """
    return min(member.durable_index, completeness.confirmable_index(member, follower))


def commit_verified(member: MemberState, follower: Follower, leader_committed_index: int) -> None:
    """Advance the committed index to the leader's, but not beyond the verified index."""
    completeness.note_shown(follower, leader_committed_index)
    index = min(leader_committed_index, follower.verified_index)
    follower.advertised_index = max(follower.advertised_index, index)
    member.commit(index)
    yielding.note_reported(member, leader_committed_index)


def acknowledge(member: MemberState, follower: Follower, *, probe: int | None = None) -> None:
    """Confirm to the leader all entries up to `confirmed_index`."""
    if follower.leader_id is None:
        return
    follower.acknowledged_index = confirmed_index(member, follower)
    member.send(
        PushResponse(
            sender=member.self_id,
            receiver=follower.leader_id,
            term=member.term,
            requested_term=member.term,
            result=PushResult.SUCCESS,
            match_index=follower.acknowledged_index,
            ledger_end_index=member.log.end_index,
            probe=probe,
        )
    )


def reject(member: MemberState, request: Request, index: int) -> None:
    """Report that this log lacks the leader's entry `index`; hint at where the logs differ."""
    member.refuse(RefusalCause.INDEX_GAP)
    _send_conflict(member, request, index)


def refuse_expired(
    member: MemberState, request: CompareRequest | AppendRequest | InstallSnapshotRequest
) -> None:
    """Report the newer term to a deposed leader."""
    _send_failure(member, request, PushResult.EXPIRED_TERM)


def _refuse_to_replace(
    member: MemberState,
    follower: Follower,
    request: AppendRequest | InstallSnapshotRequest,
    index: int,
) -> None:
    """Refuse a push in the place of entries that are committed, or verified, here.

    Nothing further is confirmed to its sender in this term.
    """
    follower.lacks_committed = True
    member.refuse(
        RefusalCause.BELOW_COMMITTED,
        f"{request.sender}, leader of term {request.term}, asked to replace entry {index}; its "
        f"push ends at entry {request.last_index} of term {request.entries_term}; "
        f"{completeness.own_log(member)}. {completeness.REMEDY}",
    )


def _send_conflict(member: MemberState, request: Request, index: int) -> None:
    conflict_term, conflict_index = -1, -1
    if member.log.begin_index <= index <= member.log.end_index:
        conflict_term = member.log.term_at(index)
        conflict_index = member.log.first_index_of_term_at(index)
    _send_failure(member, request, PushResult.INCONSISTENT_STATE, conflict_term, conflict_index)


def _send_failure(
    member: MemberState,
    request: Request,
    result: PushResult,
    conflict_term: int = -1,
    conflict_index: int = -1,
) -> None:
    member.send(
        PushResponse(
            sender=member.self_id,
            receiver=request.sender,
            term=member.term,
            requested_term=request.term,
            result=result,
            match_index=-1,
            ledger_end_index=member.log.end_index,
            conflict_term=conflict_term,
            conflict_index=conflict_index,
            probe=_probe_of(request),
        )
    )


def _probe_of(request: Request) -> int | None:
    return request.probe if isinstance(request, CompareRequest) else None


def _last_index_held(member: MemberState, request: AppendRequest) -> int:
    """Return the last pushed entry that this log already holds; first_index - 1 if none."""
    if not member.log.holds(request.first_index, request.entries_term):
        return request.previous_index
    return min(request.last_index, member.log.last_index_of_term_at(request.first_index))
