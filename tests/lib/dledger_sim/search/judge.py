"""The judge of the exhaustive search: rules on a state of the group, whatever led to it."""

from collections.abc import Sequence
from typing import NamedTuple

from dledger_node.raft.member_state import Role
from dledger_node.raft.membership import Membership
from dledger_node.raft.messages import Message, PushResponse, PushResult
from dledger_node.raft.ready import HardState
from dledger_sim.judges.violation import ViolationError

Terms = tuple[int, ...]
"""A log as the term of each entry. An index and a term identify an entry."""


class Seen(NamedTuple):
    """The part of a member's state that the judge inspects."""

    role: Role
    term: int
    terms: Terms
    committed_index: int
    durable_index: int
    changed_at: int
    """Index of the membership change in this log; -1 without one."""
    membership: Membership

    @property
    def committed(self) -> Terms:
        """The entries that this member knows to be committed."""
        return self.terms[: self.committed_index + 1]


def judge(ids: Sequence[str], first: Membership, members: Sequence[Seen], committed: Terms) -> None:
    """Check a state of the group; raises ViolationError if a rule is broken.

    `committed` is the longest log that any member ever knew to be committed, even before a crash.
    """
    leader_terms = [one.term for one in members if one.role is Role.LEADER]
    if len(set(leader_terms)) != len(leader_terms):
        raise ViolationError("one leader per term", f"{members}")
    longest = max(members, key=lambda one: one.committed_index)
    for one in members:
        if one.committed_index >= len(one.terms) or one.durable_index >= len(one.terms):
            raise ViolationError("a member commits only entries that it holds", f"{one}")
        if committed[: one.committed_index + 1] != one.committed:
            raise ViolationError(
                "committed entries are the same on all members", f"{committed} {members}"
            )
        if not committed or one.role is not Role.LEADER or one.term < committed[-1]:
            continue  # the last of these entries was committed in its own term
        if one.terms[: len(committed)] != committed:
            raise ViolationError("a leader holds every committed entry", f"{committed} {members}")
    if committed:
        holders = {
            member_id
            for member_id, one in zip(ids, members, strict=True)
            if one.durable_index + 1 >= len(committed) and one.terms[: len(committed)] == committed
        }
        # Until the change is committed, a leader without it counts by the previous membership.
        counted = {first, *(one.membership for one in members)}
        if 0 <= longest.changed_at < len(committed):
            counted = {longest.membership}
        if not any(2 * len(holders & {*one.voters}) > len(one.voters) for one in counted):
            raise ViolationError(
                "a committed entry is durable on a majority", f"{committed} {members}"
            )


def judge_stranger(stranger: Seen, entries: int) -> None:
    """Check a member that started with another group's committed entries: it keeps them, and its
    copy of the group's entries counts for nothing, since the other rules leave it out.
    """
    if stranger.terms[:entries] != (0,) * entries:
        raise ViolationError("a committed entry is never removed", f"{stranger}")


def judge_step(before: Seen, after: Seen) -> None:
    """Check the effect of an input other than a crash on a member."""
    if after.term < before.term or after.committed_index < before.committed_index:
        raise ViolationError("term and committed index never decrease", f"{before} became {after}")


def judge_told(message: Message, saved: HardState, durable_index: int) -> None:
    """Check that a message promises nothing that a crash may take back."""
    confirmed_index = -1
    if isinstance(message, PushResponse) and message.result is PushResult.SUCCESS:
        confirmed_index = message.match_index
    if message.term > saved.term or confirmed_index > durable_index:
        raise ViolationError(
            "a promise is durable before it is sent",
            f"{message}, where {saved} and entries up to {durable_index} are durable",
        )
