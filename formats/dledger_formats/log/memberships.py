"""The entry that says who belongs to a group from its index on: its channel, and its body.

    magic NOOP, channel MEMBERSHIP_CHANNEL, body {"voters":["n0","n1","n2"],"learners":["n3"]}

Java takes it for the empty entry of a new leader; no client's append is a NOOP, so none is taken
for one. The body has one form: both keys, ids sorted and distinct, no white space. A key that this
version does not know says something that it could not heed, so it is refused and not skipped.
"""

import json
from typing import Any, Final, NamedTuple

from dledger_formats import json_objects
from dledger_formats.json_objects import FormatError
from dledger_formats.log import disk
from dledger_formats.log.channels import PRODUCERS_MAX, channel_of
from dledger_formats.settings import MEMBER_ID_PATTERN, MEMBERS_MAX

BODY_BYTES_MAX: Final = 2560
"""More than so many ids need; it fits the smallest segment that there may be."""
MEMBERSHIP_CHANNEL: Final = channel_of(0x7FFF, 0)

assert PRODUCERS_MAX < 0x7FFF, "no producer's registration looks like it"


class MembershipBody(NamedTuple):
    """Who votes, and who takes entries without a vote; each sorted."""

    voters: tuple[str, ...]
    learners: tuple[str, ...]


def is_membership(magic: int, channel: int) -> bool:
    """Tell from an entry's header whether its body is one of these."""
    return channel == MEMBERSHIP_CHANNEL and magic == disk.NOOP


def encode(voters: tuple[str, ...], learners: tuple[str, ...]) -> bytes:
    """The body of an entry."""
    said = {"voters": voters, "learners": learners}
    return json.dumps(said, separators=(",", ":")).encode()


def decode(body: disk.Buffer) -> MembershipBody:
    """Read the body of an entry; FormatError when it is not as `encode` writes it."""
    if len(body) > BODY_BYTES_MAX:
        raise FormatError(f"a membership of {len(body)} bytes; at most {BODY_BYTES_MAX} are read")
    raw = bytes(body)
    plain = json_objects.parse(raw)
    if not isinstance(plain, dict) or plain.keys() != {"voters", "learners"}:
        raise FormatError("a membership has voters and learners, and nothing else")
    said = MembershipBody(_ids(plain["voters"]), _ids(plain["learners"]))
    if not said.voters or not set(said.voters).isdisjoint(said.learners):
        raise FormatError("a membership has voters, and nobody is a voter and a learner")
    if len(said.voters) + len(said.learners) > MEMBERS_MAX:
        raise FormatError(f"a membership has {MEMBERS_MAX} members at most")
    if encode(*said) != raw:
        raise FormatError("a membership is written in one way, and this is another")
    return said


def _ids(plain: Any) -> tuple[str, ...]:
    if not isinstance(plain, list):
        raise FormatError("the members are a list")
    for one in plain:
        if not isinstance(one, str) or not MEMBER_ID_PATTERN.fullmatch(one):
            raise FormatError(f"{one!r} is no member's id")
    if plain != sorted(set(plain)):
        raise FormatError("the members are sorted, and each is there once")
    return tuple(plain)
