"""Linearizable reads: a leader proves that it still leads, without writing to the log.

ReadIndex: a read at the current committed index is released once a quorum has answered a heartbeat
round that started after the read arrived (Raft dissertation, 6.4). Lease: a read is released at
once while no other leader can have been elected since the last such round; this relies on every
member's clock, see `RaftConfig.lease_ticks`.
"""

from dledger_node.raft import heartbeats
from dledger_node.raft.member_state import Leader, MemberState, PendingRead
from dledger_node.raft.ready import ReadState


def begin(member: MemberState, leader: Leader, handle: object) -> None:
    """Release a read by the lease, or queue it for the next heartbeat round.

    A new leader does not know the committed index yet, but its no-op comes after all committed
    entries.
    """
    index = max(member.committed_index, leader.noop_index)
    if _lease_holds(member, leader):
        member.reads.append(ReadState(handle=handle, index=index))
        return
    first_round = leader.heartbeat_round + 1
    leader.reads.append(PendingRead(first_round=first_round, index=index, handle=handle))


def release_confirmed(member: MemberState, leader: Leader) -> None:
    """Release the reads whose round a quorum has answered, and start a round for the others.

    At most one round is open at a time, so the number of rounds does not grow with that of reads.
    """
    _confirm(member, leader)
    if leader.reads and leader.reads[0].first_round > leader.heartbeat_round:
        heartbeats.send_round(member, leader)
        _confirm(member, leader)  # a single voter is a quorum by itself


def fail_pending(member: MemberState, leader: Leader) -> None:
    """Release all pending reads as unconfirmed, since this member no longer leads."""
    member.reads += [ReadState(handle=read.handle, index=None) for read in leader.reads]
    leader.reads.clear()


def _confirm(member: MemberState, leader: Leader) -> None:
    """Release the reads whose round a quorum has answered."""
    confirmed_round = heartbeats.confirmed_round(leader)
    while leader.reads and leader.reads[0].first_round <= confirmed_round:
        read = leader.reads.popleft()
        member.reads.append(ReadState(handle=read.handle, index=read.index))


def _lease_holds(member: MemberState, leader: Leader) -> bool:
    """Return whether no other leader can have been elected since the last confirmed round.

    Members that answered a round do not vote for election_ticks after it. But a member that was
    asked to take the leadership may stand at any time, so a transfer ends the lease for this term.
    """
    if not member.config.lease_ticks or leader.lease_ended:
        return False
    sent_tick = heartbeats.confirmed_sent_tick(leader)
    return sent_tick is not None and member.now_ticks - sent_tick < member.config.lease_ticks
