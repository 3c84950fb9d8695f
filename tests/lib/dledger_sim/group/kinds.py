"""The kinds of messages for which the simulator has a text of their own, or a place in the log.

Messages of any other kind are sent and checked as well, and printed field by field.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    PreVoteRequest,
    PreVoteResponse,
    PushResponse,
    TakeLeadershipRequest,
    VoteRequest,
    VoteResponse,
)
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.remoting.snapshot_messages import SnapshotChunk, SnapshotChunkRequest


class Place(NamedTuple):
    """An entry of a log that a message names; -1 and -1 before the first."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: int


class Kind(NamedTuple):
    """One kind of message."""

    told: Callable[[Any], str]
    """The text of a message in a transcript, after its names and its term."""
    place: Callable[[Any], Place] | None = None
    """The place in the receiver's log that a message asks about; None if it does not."""


def _told_candidate(message: PreVoteRequest | VoteRequest) -> str:
    return f"end {message.ledger_end_index}/t{message.ledger_end_term}"


def _told_vote(message: PreVoteResponse | VoteResponse) -> str:
    return f"to t{message.requested_term} {message.result.value}"


def _end_of_candidate(message: PreVoteRequest | VoteRequest) -> Place:
    return Place(message.ledger_end_index, message.ledger_end_term)


def _told_append(message: AppendRequest) -> str:
    indexes = ", ".join(str(entry.index) for entry in message.memberships)
    return (
        f"{message.first_index}..{message.last_index}/t{message.entries_term} after "
        f"{message.previous_index}/t{message.previous_term} committed {message.committed_index}"
        + (f" members {indexes}" if indexes else "")
    )


def _told_push_response(message: PushResponse) -> str:
    told = f"to t{message.requested_term} {message.result.value} match {message.match_index}"
    return told if message.probe is None else f"#{message.probe} {told}"


KINDS: dict[type[PeerMessage], Kind] = {
    PreVoteRequest: Kind(_told_candidate, _end_of_candidate),
    PreVoteResponse: Kind(_told_vote),
    VoteRequest: Kind(_told_candidate, _end_of_candidate),
    VoteResponse: Kind(_told_vote),
    TakeLeadershipRequest: Kind(lambda message: "now"),
    HeartBeatRequest: Kind(
        lambda message: f"round {message.round} committed {message.committed_index}"
    ),
    HeartBeatResponse: Kind(lambda message: f"round {message.round}"),
    CompareRequest: Kind(
        lambda message: f"#{message.probe} {message.index}/t{message.index_term}",
        lambda message: Place(message.index, message.index_term),
    ),
    AppendRequest: Kind(
        _told_append, lambda message: Place(message.previous_index, message.previous_term)
    ),
    PushResponse: Kind(_told_push_response),
    SnapshotChunkRequest: Kind(lambda message: f"of {message.index} from byte {message.offset} on"),
    SnapshotChunk: Kind(
        lambda message: (
            f"of {message.last_included_index}/t{message.last_included_term} from byte "
            f"{message.offset} on, {len(message.data)} of {message.data_bytes}"
        )
    ),
}


def _told_fields(message: PeerMessage) -> str:
    fields = [
        field.name
        for field in dataclasses.fields(message)
        if field.name not in ("sender", "receiver", "term", "entries")
        and getattr(message, field.name) not in ((), None, "")
    ]
    return " ".join(f"{name} {getattr(message, name)}" for name in fields)


OTHER_KIND = Kind(_told_fields)


def kind_of(message: PeerMessage) -> Kind:
    """Return the kind of a message."""
    return KINDS.get(type(message), OTHER_KIND)


def described(message: PeerMessage) -> str:
    """Describe a message in a few words."""
    names = f"{type(message).__name__} {message.sender}>{message.receiver}"
    term = getattr(message, "term", None)  # messages that only the shells see have none
    if term is not None:
        names += f" t{term}"
    return f"{names} {kind_of(message).told(message)}".rstrip()
