"""What no small group may ever be, whatever happened before."""

from collections.abc import Sequence
from typing import NamedTuple

from dledger_node.raft.member_state import Role
from dledger_node.raft.membership import Membership
from dledger_node.raft.messages import Message, PushResponse, PushResult
from dledger_node.raft.ready import HardState
from dledger_sim.judges.violation import ViolationError

Terms = tuple[int, ...]
"""A log: the term of each entry. Two entries of one index and term are the same one."""


class Seen(NamedTuple):
    """What the judge sees of a member."""

    role: Role
    term: int
    terms: Terms
    committed_index: int
    durable_index: int
    changed_at: int
    """Index of the change in this log; -1 when there is none."""
    membership: Membership

    @property
    def committed(self) -> Terms:
        """All that this member knows as committed."""
        return self.terms[: self.committed_index + 1]


def judge(ids: Sequence[str], first: Membership, members: Sequence[Seen], committed: Terms) -> None:
    """Compare what the members are together with the longest that any of them, also before a crash,
    has known as committed; ViolationError when a rule is broken.
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
            continue  # whoever committed the last of them was of that entry's own term
        if one.terms[: len(committed)] != committed:
            raise ViolationError("a leader holds every committed entry", f"{committed} {members}")
    if committed:
        holders = {
            member_id
            for member_id, one in zip(ids, members, strict=True)
            if one.durable_index + 1 >= len(committed) and one.terms[: len(committed)] == committed
        }
        # Before the change is committed, leaders count by it or, if they lack it, as before.
        counted = {first, *(one.membership for one in members)}
        if 0 <= longest.changed_at < len(committed):
            counted = {longest.membership}
        if not any(2 * len(holders & {*one.voters}) > len(one.voters) for one in counted):
            raise ViolationError(
                "a committed entry is durable on a majority", f"{committed} {members}"
            )


def judge_step(before: Seen, after: Seen) -> None:
    """Look at what an input that is no crash did to a member."""
    if after.term < before.term or after.committed_index < before.committed_index:
        raise ViolationError("term and committed index never decrease", f"{before} became {after}")


def judge_told(message: Message, saved: HardState, durable_index: int) -> None:
    """Look at what a member tells, beside what a crash leaves of it for sure."""
    confirmed_index = -1
    if isinstance(message, PushResponse) and message.result is PushResult.SUCCESS:
        confirmed_index = message.match_index
    if message.term > saved.term or confirmed_index > durable_index:
        raise ViolationError(
            "a promise is durable before it is sent",
            f"{message}, where {saved} and entries up to {durable_index} are durable",
        )
