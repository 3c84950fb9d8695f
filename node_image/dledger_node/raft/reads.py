"""Linearizable reads: a leader proves that it still leads, without writing to the log.

By read-index: what is committed now may be shown once a heartbeat round that began later was
answered by a quorum (Raft dissertation, 6.4). By lease: while no other can have been elected since
the last such round; that trusts every member's clock, see `RaftConfig.lease_ticks`.
"""

from dledger_node.raft import heartbeats
from dledger_node.raft.member_state import Leader, MemberState, PendingRead
from dledger_node.raft.ready import ReadState


def begin(member: MemberState, leader: Leader, handle: object) -> None:
    """Confirm a read by the lease, or let it wait for the next heartbeat round.

    A new leader does not know yet what is committed, but its first entry comes after all of that.
    """
    index = max(member.committed_index, leader.noop_index)
    if _lease_holds(member, leader):
        member.reads.append(ReadState(handle=handle, index=index))
        return
    first_round = leader.heartbeat_round + 1
    leader.reads.append(PendingRead(first_round=first_round, index=index, handle=handle))


def release_confirmed(member: MemberState, leader: Leader) -> None:
    """Release what is proved, and begin a round for the reads that wait for one, unless another is
    on its way: so any number of reads costs one round after the other.
    """
    if not leader.reads:
        return
    _confirm(member, leader)
    if leader.reads and leader.reads[0].first_round > leader.heartbeat_round:
        heartbeats.send_round(member, leader)
        _confirm(member, leader)  # a group of one needs no answer


def fail_pending(member: MemberState, leader: Leader) -> None:
    """Release what waits, unconfirmed: this member leads no more."""
    member.reads += [ReadState(handle=read.handle, index=None) for read in leader.reads]
    leader.reads.clear()


def _confirm(member: MemberState, leader: Leader) -> None:
    """Release the reads whose round a quorum has answered."""
    confirmed_round = heartbeats.confirmed_round(leader)
    while leader.reads and leader.reads[0].first_round <= confirmed_round:
        read = leader.reads.popleft()
        member.reads.append(ReadState(handle=read.handle, index=read.index))


def _lease_holds(member: MemberState, leader: Leader) -> bool:
    """Tell whether nobody can have been elected since.

    Members that answered a round vote for nobody for election_ticks after it; but a member that was
    ever asked to take the leadership may stand at any time, so a transfer ends the lease for good.
    """
    if not member.config.lease_ticks or leader.lease_ended:
        return False
    sent_tick = heartbeats.confirmed_sent_tick(leader)
    return sent_tick is not None and member.now_ticks - sent_tick < member.config.lease_ticks
