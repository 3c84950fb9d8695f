"""Memberships in a message's bytes: a length of 4 bytes, followed by that many bytes of JSON.

[[index, [voters], [learners]], …]    index -1 for a membership that is sent without its entry

The length is 0 if the message names no membership.
"""

import struct
from typing import Any, Final

import msgspec

from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.messages import AppendRequest, InstallSnapshotRequest, JoinResponse
from dledger_node.raft.recall_messages import RecallResponse

NO_INDEX: Final = -1
_LENGTH: Final = struct.Struct(">I")
_NONE: Final = _LENGTH.pack(0)


class _Named(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    index: int
    voters: tuple[str, ...]
    learners: tuple[str, ...]


_decoder: Final = msgspec.json.Decoder(list[_Named])


def encode(
    message: AppendRequest | InstallSnapshotRequest | JoinResponse | RecallResponse,
) -> bytes:
    """Return the bytes of the memberships that a message names."""
    named: list[tuple[int, Membership]] = []
    match message:
        case JoinResponse() | RecallResponse():
            named += [(NO_INDEX, membership) for membership in message.memberships]
        case InstallSnapshotRequest(membership=Membership() as membership):
            named += [(NO_INDEX, membership), *message.memberships]
        case _:
            named += message.memberships
    return _pack(named) if named else _NONE


def decode(message: type, body: memoryview) -> tuple[dict[str, Any], memoryview]:
    """Read the fields of a message of this type, and return the bytes after them.

    Raises ValueError, struct.error or MsgspecError if the bytes differ from what `encode` writes.
    """
    (length,) = _LENGTH.unpack_from(body)
    end = _LENGTH.size + length
    if not length:
        return {}, body[end:]
    named = [
        (one.index, Membership(one.voters, one.learners))
        for one in _decoder.decode(body[_LENGTH.size : end])
    ]
    if not named or _pack(named) != body[:end]:
        raise ValueError("the memberships are not in canonical form")
    entries = tuple(MembershipEntry(*one) for one in named if one[0] != NO_INDEX)
    alone = tuple(membership for index, membership in named if index == NO_INDEX)
    if message in (JoinResponse, RecallResponse) and not entries:
        return {"memberships": alone}, body[end:]
    if message is InstallSnapshotRequest and named[0][0] == NO_INDEX and len(alone) == 1:
        return {"membership": alone[0], "memberships": entries}, body[end:]
    if message in (JoinResponse, RecallResponse) or alone:
        raise ValueError(f"a {message.__name__} must not contain these memberships")
    return {"memberships": entries}, body[end:]


def _pack(named: list[tuple[int, Membership]]) -> bytes:
    packed = msgspec.json.encode([(index, one.voters, one.learners) for index, one in named])
    return _LENGTH.pack(len(packed)) + packed
