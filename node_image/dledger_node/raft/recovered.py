"""The state in which a member starts, built from its disk after checks."""

from collections.abc import Callable

from dledger_node.raft.config import RaftConfig
from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.log_terms import EMPTY, LogEnd, LogTerms
from dledger_node.raft.member_state import Follower, MemberState
from dledger_node.raft.ready import HardState
from dledger_node.raft.start_states import Joining, Recalling


def recovered(
    config: RaftConfig,
    hard_state: HardState,
    log: LogTerms,
    memberships: LogMemberships,
    committed_index: int,
    incarnation: int,
    randint: Callable[[int, int], int],
) -> MemberState:
    """Return the state of a follower without a leader.

    Raises InvariantError if the term or committed entries were lost.
    """
    has_peers = bool(config.peers)
    possible = memberships.possible(committed_index)
    asked = {one for membership in possible for one in membership.members} - {config.self_id}
    joining = _joining(config, hard_state, log, incarnation)
    member = MemberState(
        config=config,
        randint=randint,
        term=hard_state.term,
        vote_for=hard_state.vote_for,
        log=log,
        memberships=memberships,
        committed_index=committed_index,
        durable_index=log.end_index,
        flushed_index=log.end_index,
        role_state=Follower(leader_id=None, verified_index=committed_index),
        joining=joining,
        seed=hard_state.seed,
        recalling=(
            Recalling(incarnation=incarnation, disk_flushed=hard_state.flushed, asked=asked)
            if config.recall_ticks and asked and not hard_state.joining
            else None
        ),
        promised_end=_promised_end(hard_state, log) if has_peers else None,
        flushed=hard_state.flushed and not config.confirms_unflushed,
        alone=(
            (hard_state.alone or not (has_peers or joining is not None)) and not memberships.changed
        ),
    )
    if log.end_term > member.term:
        raise InvariantError(
            f"{member.self_id}: the log holds entries of term {log.end_term}, but the stored term "
            f"is {member.term}: term and vote were lost"
        )
    if committed_index > log.end_index:
        raise InvariantError(
            f"{member.self_id}: the log ends at {log.end_index}, but entries up to "
            f"{committed_index} were committed: committed entries were lost"
        )
    if memberships.last_index > log.end_index:
        raise InvariantError(
            f"{member.self_id}: the log ends at {log.end_index}, but its last membership entry is "
            f"at index {memberships.last_index}"
        )
    return member


def _joining(
    config: RaftConfig, hard_state: HardState, log: LogTerms, incarnation: int
) -> Joining | None:
    """Return the state of a joining member. A sole member need not join, unless its group must
    begin with an archive that it does not have, or without the one that it has.
    """
    seed = hard_state.seed
    if seed is not None and seed.end != log.end:
        seed = None
    is_unlike = log.end == EMPTY if config.needs_seed else seed is not None
    if not hard_state.joining or not (config.peers or is_unlike):
        return None
    return Joining(incarnation=incarnation, seed=seed)


def _promised_end(hard_state: HardState, log: LogTerms) -> LogEnd | None:
    """Return the end of the log that the member had promised; None if this log ends no earlier: a
    member that is killed right after it got the missing entries has them.
    """
    end = hard_state.promised_end
    return end if end is not None and log.end < end else None
