"""What a joining member waits for, in words. Decides nothing; the rules are in `joining`."""

from dledger_node.raft.joining import (
    are_covered,
    began_alike,
    is_unbegun,
    lacks_seed,
    memberships_of,
    others,
    unheard,
)
from dledger_node.raft.log_terms import Seed
from dledger_node.raft.member_state import MemberState
from dledger_node.raft.messages import JoinResponse
from dledger_node.raft.start_states import Joining


def awaited(member: MemberState, joining: Joining) -> str:
    """Return human-readable text: why this member joins, if known, and what it waits for."""
    waits = _awaited(member, joining)
    return f"{joining.reason}; {waits}" if joining.reason else waits


def _awaited(member: MemberState, joining: Joining) -> str:
    leading = [known for known in joining.answers.values() if known.leading]
    known = max(leading, key=lambda answer: answer.term, default=None)
    memberships = memberships_of(member, known)
    peers = others(member, memberships)
    if silent := unheard(member, joining, memberships):
        return f"waits for {', '.join(silent)}: all others must answer before it may vote"
    if joining.seed is not None and (waits := _with_seed(member, joining, joining.seed, known)):
        return waits
    keepers = [one for one, answer in joining.answers.items() if not is_unbegun(joining, answer)]
    if lacks_seed(member, joining) and known is None:
        return "waits for a leader, or for the archive that the group is to begin with"
    if member.config.new_group and keepers and known is None:
        return f"waits for a leader: the group is not new, {', '.join(sorted(keepers))} has its log"
    if not are_covered(member, joining, memberships):
        blank = [peer_id for peer_id in peers if joining.answers[peer_id].joining]
        return f"waits for members that kept their logs; {', '.join(blank)} have none either"
    if known is None or member.leader_id is None:
        return "waits for a leader"
    if known.sender == member.leader_id and known.term == member.term:
        return f"waits for the entries of {known.sender} up to {known.ledger_end_index}"
    return f"waits for {member.leader_id} to report the end of its log"


def _with_seed(
    member: MemberState, joining: Joining, seed: Seed, known: JoinResponse | None
) -> str:
    """Return what a member that has nothing but an archive's log waits for; empty if it waits
    for nothing more than other members. `known` is the leader's answer.
    """
    if known is not None:
        if began_alike(joining, known):
            return ""
        return (
            f"waits for a leader that began with the same archive, {seed.sha256}: {known.sender} "
            "does not say so; remove this member's folder, so that it gets the log of the leader"
        )
    if not member.config.needs_seed:
        return (
            f"waits for a leader: it has the log of an archive, with copySha256 {seed.sha256}, but "
            "the settings do not say that the group begins with an archive"
        )
    unlike = [one for one, answer in joining.answers.items() if not is_unbegun(joining, answer)]
    if unlike:
        return (
            "waits for a leader, or for all first voters to begin with the archive that ends with "
            f"entry {seed.end.index} of term {seed.end.term} and has copySha256 {seed.sha256}: "
            f"{', '.join(sorted(unlike))} has another log, or none"
        )
    if member.config.new_group:
        return ""
    return (
        "waits for a leader, or for the settings to call the group new: all have the archive with "
        f"copySha256 {seed.sha256}"
    )
