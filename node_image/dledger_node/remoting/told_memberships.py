"""Memberships in a message's bytes: how many bytes, 4 of them, and then that much JSON.

[[index, [voters], [learners]], …]    index -1 where a membership is told without its entry
"""

import struct
from typing import Any, Final

import msgspec

from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.messages import AppendRequest, InstallSnapshotRequest, JoinResponse

NO_INDEX: Final = -1
_LENGTH: Final = struct.Struct(">I")


class _Told(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    index: int
    voters: tuple[str, ...]
    learners: tuple[str, ...]


_decoder: Final = msgspec.json.Decoder(list[_Told])


def encode(message: AppendRequest | InstallSnapshotRequest | JoinResponse) -> bytes:
    """Return what a message tells of memberships; no bytes when that is nothing."""
    told: list[tuple[int, Membership]] = []
    match message:
        case JoinResponse():
            told += [(NO_INDEX, membership) for membership in message.memberships]
        case InstallSnapshotRequest(membership=Membership() as membership):
            told += [(NO_INDEX, membership), *message.memberships]
        case _:
            told += message.memberships
    return _pack(told) if told else b""


def decode(message: type, body: memoryview) -> tuple[dict[str, Any], memoryview]:
    """Read the fields of a message of this type, and return what lies behind them.

    ValueError, struct.error or MsgspecError when they are not as `encode` writes them.
    """
    (length,) = _LENGTH.unpack_from(body)
    end = _LENGTH.size + length
    told = [
        (one.index, Membership(one.voters, one.learners))
        for one in _decoder.decode(body[_LENGTH.size : end])
    ]
    if not told or _pack(told) != body[:end]:
        raise ValueError("memberships are not told in this way")
    entries = tuple(MembershipEntry(*one) for one in told if one[0] != NO_INDEX)
    alone = tuple(membership for index, membership in told if index == NO_INDEX)
    if message is JoinResponse and not entries:
        return {"memberships": alone}, body[end:]
    if message is InstallSnapshotRequest and told[0][0] == NO_INDEX and len(alone) == 1:
        return {"membership": alone[0], "memberships": entries}, body[end:]
    if message is JoinResponse or alone:
        raise ValueError(f"a {message.__name__} tells no such memberships")
    return {"memberships": entries}, body[end:]


def _pack(told: list[tuple[int, Membership]]) -> bytes:
    packed = msgspec.json.encode([(index, one.voters, one.learners) for index, one in told])
    return _LENGTH.pack(len(packed)) + packed
