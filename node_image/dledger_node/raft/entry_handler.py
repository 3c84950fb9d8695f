"""The follower's side of replication: what it takes from its leader, and what it confirms.

Rules: Raft paper, section 5.3; what is confirmed is durable and known to equal the leader's log.
DLedger's counterpart is `EntryHandler`, whose checks of term, leader and committed index these are
not: it had none, and lost acknowledged entries by it.
"""

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
    """Commit what the leader committed; ask for a COMPARE if it relies on more than is verified.

    That is so after a restart in the leader's term: what this member confirmed before, it holds,
    but it does not know any more that these are the leader's entries.
    """
    commit_verified(member, follower, request.committed_index)
    if request.committed_index > follower.verified_index:
        reject(member, request, follower.verified_index)


def handle_compare(member: MemberState, follower: Follower, request: CompareRequest) -> None:
    """Say whether the entry is here; then all before it is the leader's too.

    What was removed from the front is committed, and the entry behind it too: the leader has both.
    """
    agreed_index = request.index
    if request.index < member.log.begin_index and member.log.begin_index > 0:
        agreed_index = member.log.begin_index
    elif not member.log.holds(request.index, request.index_term):
        reject(member, request, request.index)
        return
    follower.verified_index = max(follower.verified_index, agreed_index)
    commit_verified(member, follower, request.committed_index)
    acknowledge(member, follower, probe=request.probe)


def handle_append(member: MemberState, follower: Follower, request: AppendRequest) -> None:
    """Take the entries that are missing here, and remove those that contradict them.

    Entries behind the pushed ones stay: a push that was overtaken by a later one looks the same.
    """
    if not member.log.holds(request.previous_index, request.previous_term):
        reject(member, request, request.previous_index)
        return
    held_index = _last_index_held(member, request)
    if held_index < min(request.last_index, member.log.end_index):
        if held_index < follower.verified_index:
            # Verified covers committed: a leader that contradicts either is none, or is broken.
            member.refuse(
                RefusalCause.BELOW_COMMITTED,
                f"{request.sender} of term {request.term} would replace entry {held_index + 1}; "
                f"entries up to {member.committed_index} are committed",
            )
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
    follower.verified_index = max(follower.verified_index, request.last_index)
    commit_verified(member, follower, request.committed_index)
    if member.durable_index >= request.last_index:
        acknowledge(member, follower)


def handle_install(
    member: MemberState, follower: Follower, request: InstallSnapshotRequest
) -> None:
    """Take the leader's first entries in place of a log that they cannot be led up to.

    What is removed is needed nowhere. The leader's first entry is committed, so a majority holds it
    and all before it, and this member is not among them: every candidate that could win without
    that majority's consent, it could not before either. And nothing from that entry on was ever
    committed as it is here.
    """
    first_index, verified_index = request.first_index, request.first_index
    if member.log.holds(first_index, request.entries_term):
        pass  # asked twice
    elif first_index > follower.verified_index:  # which covers committed
        write = WriteSnapshot(
            first_index=first_index,
            last_index=request.last_index,
            term=request.entries_term,
            entries=request.entries,
            membership=request.membership,
            memberships=request.memberships,
        )
        member.replace_log(write)
        verified_index = request.last_index
    elif member.log.begin_index <= first_index:
        member.refuse(
            RefusalCause.BELOW_COMMITTED,
            f"{request.sender} of term {request.term} would replace entry {first_index}; "
            f"entries up to {member.committed_index} are committed",
        )
        return
    # Otherwise it is committed here, and was removed since.
    follower.verified_index = max(follower.verified_index, verified_index)
    member.commit(min(request.committed_index, follower.verified_index))
    if confirmed_index(member, follower) >= first_index:
        acknowledge(member, follower)


def handle_persisted(member: MemberState, follower: Follower) -> None:
    """Confirm to the leader, in one answer, what a flush made durable."""
    if confirmed_index(member, follower) > follower.acknowledged_index:
        acknowledge(member, follower)


def confirmed_index(member: MemberState, follower: Follower) -> int:
    """How far this member answers for the leader's log: durable here, and verified as the
    leader's. Its own tail behind that may be another leader's.
    """
    return min(member.durable_index, follower.verified_index)


def commit_verified(member: MemberState, follower: Follower, leader_committed_index: int) -> None:
    """Commit what the leader has committed, as far as it is verified to be here."""
    index = min(leader_committed_index, follower.verified_index)
    follower.advertised_index = max(follower.advertised_index, index)
    member.commit(index)


def acknowledge(member: MemberState, follower: Follower, *, probe: int | None = None) -> None:
    """Tell the leader what it may count on."""
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
    """Say that the entry `index` is not here as the leader has it, and what is here instead."""
    member.refuse(RefusalCause.INDEX_GAP)
    _send_conflict(member, request, index)


def refuse_expired(
    member: MemberState, request: CompareRequest | AppendRequest | InstallSnapshotRequest
) -> None:
    """Tell a deposed leader that there is a newer term."""
    _send_failure(member, request, PushResult.EXPIRED_TERM)


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
    """The last of the pushed entries that are here already; first_index - 1 when none is."""
    if not member.log.holds(request.first_index, request.entries_term):
        return request.previous_index
    return min(request.last_index, member.log.last_index_of_term_at(request.first_index))
