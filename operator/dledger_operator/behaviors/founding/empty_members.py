"""Decides from the answers of members whether they hold nothing of a group. Pure."""

from collections.abc import Mapping

from dledger_formats.http.status import NodeStatus, StorageState
from dledger_operator import names


def holds_nothing(answer: NodeStatus) -> bool:
    """Return whether a member has promised nothing, knows no leader, and its volume holds nothing,
    or nothing but an archive that a group was to begin with.
    """
    if answer.leader_id or answer.storage is not StorageState.SOUND:
        return False
    if answer.seed_sha256:
        return True
    nothing = answer.ledger_end_index < 0 and answer.committed_index < 0
    return nothing and answer.term <= 0 and answer.membership_index < 0


def never_elected(answers: Mapping[str, NodeStatus], first_voters: int) -> bool:
    """Return whether the answers of the first voters prove that they never elected a leader.

    An elected leader has the votes of a majority, which are durable on their disks. So every member
    that answers must hold nothing, and those that do not answer must be too few for a majority.
    """
    voters = {names.member_id(ordinal) for ordinal in range(first_voters)}
    silent = voters - answers.keys()
    return len(silent) <= first_voters // 2 and all(map(holds_nothing, answers.values()))
