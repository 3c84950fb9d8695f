"""The entry that changes a group's membership from its index on.

    magic NOOP, channel MEMBERSHIP_CHANNEL, body {"voters":["n0","n1","n2"],"learners":["n3"]}

Java treats it as the empty entry of a new leader. No client's append is a NOOP, so none is mistaken
for it. The body has one canonical form: both keys, ids sorted and distinct, no white space. An
unknown key is refused, because a member that skipped it could miss a rule of a later version.
"""

import json
from typing import Any, Final, NamedTuple

from dledger_formats import json_objects
from dledger_formats.json_objects import FormatError
from dledger_formats.log import disk
from dledger_formats.log.channels import PRODUCERS_MAX, channel_of
from dledger_formats.peers import MEMBER_ID_PATTERN
from dledger_formats.settings import MEMBERS_MAX

BODY_BYTES_MAX: Final = 2560
"""Enough for MEMBERS_MAX ids, and small enough for the smallest segment."""
MEMBERSHIP_CHANNEL: Final = channel_of(0x7FFF, 0)

assert PRODUCERS_MAX < 0x7FFF, "no registration of a producer has this channel"


class MembershipBody(NamedTuple):
    """The ids of the voters and of the learners, each sorted."""

    voters: tuple[str, ...]
    learners: tuple[str, ...]


def is_membership(magic: int, channel: int) -> bool:
    """Return whether the body of an entry with this magic and channel is a membership."""
    return channel == MEMBERSHIP_CHANNEL and magic == disk.NOOP


def encode(voters: tuple[str, ...], learners: tuple[str, ...]) -> bytes:
    """Encode the body of an entry."""
    members = {"voters": voters, "learners": learners}
    return json.dumps(members, separators=(",", ":")).encode()


def decode(body: disk.Buffer) -> MembershipBody:
    """Decode the body of an entry. Raises FormatError unless it is what `encode` would write."""
    if len(body) > BODY_BYTES_MAX:
        raise FormatError(
            f"a membership of {len(body)} bytes; at most {BODY_BYTES_MAX} are allowed"
        )
    raw = bytes(body)
    plain = json_objects.parse(raw)
    if not isinstance(plain, dict) or plain.keys() != {"voters", "learners"}:
        raise FormatError("a membership must have the keys voters and learners, and nothing else")
    found = MembershipBody(_ids(plain["voters"]), _ids(plain["learners"]))
    if not found.voters or not set(found.voters).isdisjoint(found.learners):
        raise FormatError(
            "a membership must have voters, and no member that is both a voter and a learner"
        )
    if len(found.voters) + len(found.learners) > MEMBERS_MAX:
        raise FormatError(f"a membership has more than {MEMBERS_MAX} members")
    if encode(*found) != raw:
        raise FormatError("the membership is not in canonical form")
    return found


def _ids(plain: Any) -> tuple[str, ...]:
    if not isinstance(plain, list):
        raise FormatError("the ids of a membership are not a list")
    for one in plain:
        if not isinstance(one, str) or not MEMBER_ID_PATTERN.fullmatch(one):
            raise FormatError(f"{one!r} is not a valid id of a member")
    if plain != sorted(set(plain)):
        raise FormatError("the ids of a membership are not sorted, or not distinct")
    return tuple(plain)
