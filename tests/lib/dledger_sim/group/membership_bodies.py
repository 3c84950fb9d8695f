"""Memberships encoded as the bodies of simulated entries, which are integers.

Clients append bodies of 0 and more. A leader's first entry has the negative term as its body, and
memberships have bodies far below those.
"""

import functools
from typing import Final

from dledger_node.raft.membership import Membership

HIGHEST: Final = -(1 << 40)
IDS_MAX: Final = 8


def body_of(membership: Membership) -> int:
    """Return the body of a membership."""
    return HIGHEST - (_bits(membership.voters) << IDS_MAX | _bits(membership.learners))


@functools.cache
def membership_of(body: int) -> Membership:
    """Return the membership of a body, which must be `HIGHEST` or less."""
    bits = HIGHEST - body
    return Membership(_ids(bits >> IDS_MAX), _ids(bits & ((1 << IDS_MAX) - 1)))


def _bits(member_ids: tuple[str, ...]) -> int:
    return sum(1 << int(member_id.removeprefix("n")) for member_id in member_ids)


def _ids(bits: int) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(IDS_MAX) if bits >> number & 1)
