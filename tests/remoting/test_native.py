"""Messages between members as bytes: each is read as it was written, and nothing else is read."""

import msgspec
import pytest

from dledger_formats.protocol.frames import FrameDecoder
from dledger_node.errors import RemoteProtocolError
from dledger_node.raft.log_terms import LogEnd
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.messages import (
    AppendRequest,
    HeartBeatResponse,
    InstallSnapshotRequest,
    JoinRequest,
    JoinResponse,
    PushResponse,
    PushResult,
    VoteRequest,
)
from dledger_node.raft.recall_messages import Mark, RecallRequest, RecallResponse
from dledger_node.remoting import native
from dledger_node.remoting.message_kinds import KIND_OF, KINDS, PeerMessage
from dledger_node.remoting.read_index_messages import ReadIndexRequest, ReadIndexResponse
from dledger_node.remoting.snapshot_messages import SnapshotChunk
from dledger_wire.listener import hello_to

ENDS = {"sender": "n1", "receiver": "n0", "term": 4}
BOTH = (Membership(("n0", "n1")), Membership(("n0",), ("n1", "n2")))
ENTRIES = tuple(MembershipEntry(3 + at, one) for at, one in enumerate(BOTH))
JOINED = {
    **ENDS, "incarnation": 1, "ledger_end_index": 9, "leading": True, "joining": False,
    "alone": False,
}  # fmt: skip
PUSHED = {
    **ENDS, "previous_index": 2, "previous_term": 3, "first_index": 3, "last_index": 4,
    "entries_term": 4, "committed_index": 9,
}  # fmt: skip
INSTALLED = {
    **ENDS, "first_index": 3, "last_index": 4, "entries_term": 4, "committed_index": 9,
}  # fmt: skip
MESSAGES: list[PeerMessage] = [
    VoteRequest(**ENDS, ledger_end_index=-1, ledger_end_term=-1, take_leadership=True),
    HeartBeatResponse(**ENDS, round=7),
    HeartBeatResponse(**ENDS, round=7, joining=True),
    HeartBeatResponse(**ENDS, round=7, full=True),
    PushResponse(
        **ENDS, requested_term=4, result=PushResult.SUCCESS, match_index=8, ledger_end_index=9
    ),
    PushResponse(
        **ENDS, requested_term=4, result=PushResult.INCONSISTENT_STATE, match_index=-1,
        ledger_end_index=9, conflict_term=2, conflict_index=0, probe=3,
    ),
    JoinRequest(**ENDS, incarnation=1 << 62),
    JoinRequest(**ENDS, incarnation=1 << 62, seed_sha256="0a" * 32),
    JoinResponse(**JOINED),
    JoinResponse(**JOINED, memberships=BOTH),
    JoinResponse(**JOINED, memberships=BOTH, seed_sha256="0a" * 32),
    RecallRequest(**ENDS, incarnation=1 << 62),
    RecallResponse(**ENDS, incarnation=1),
    RecallResponse(**ENDS, incarnation=1, memberships=BOTH),
    RecallResponse(**ENDS, incarnation=1, mark=Mark(4, 7, -1)),
    RecallResponse(**ENDS, incarnation=1, mark=Mark(4, 7, -1, end=LogEnd(3, 9)), memberships=BOTH),
    RecallResponse(**ENDS, incarnation=1, mark=Mark(4, 7, 4, end=LogEnd(4, 7), is_whole=True)),
    AppendRequest(**PUSHED, entries=b"entries"),
    AppendRequest(**PUSHED, entries=b"entries", memberships=ENTRIES),
    InstallSnapshotRequest(**INSTALLED, entries=b"entries"),
    InstallSnapshotRequest(**INSTALLED, entries=b"entries", membership=BOTH[1]),
    InstallSnapshotRequest(
        **INSTALLED, entries=b"entries", membership=BOTH[1], memberships=ENTRIES
    ),
    SnapshotChunk(
        sender="n1", receiver="n0", last_included_index=9, last_included_term=3, data_bytes=40,
        data_crc32=7, offset=4, data=b"a piece of a state",
    ),
    ReadIndexRequest(sender="n1", receiver="n0", incarnation=1 << 62, round=3),
    ReadIndexResponse(sender="n1", receiver="n0", incarnation=1 << 62, round=3, index=-1),
]  # fmt: skip


def body_of(message: PeerMessage) -> bytes:
    entries = [message.entries] if hasattr(message, "entries") else []
    frame = b"".join(native.encode(message, entries))
    return FrameDecoder().feed(frame)[0].body


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_a_message_is_read_as_it_was_written(message: PeerMessage) -> None:
    assert native.decode(body_of(message), "n1", "n0") == message


def test_every_message_has_one_number_and_every_number_one_message() -> None:
    assert {kind.number for kind in KIND_OF.values()} == KINDS.keys()
    assert {kind.message for kind in KINDS.values()} == KIND_OF.keys()


@pytest.mark.parametrize(
    "message",
    [one for one in MESSAGES if not KIND_OF[type(one)].payload],
    ids=lambda one: type(one).__name__,
)
def test_a_message_with_bytes_behind_it_is_refused(message: PeerMessage) -> None:
    with pytest.raises(RemoteProtocolError):
        native.decode(body_of(message) + b"\0", "n1", "n0")


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_a_message_that_ends_early_is_refused(message: PeerMessage) -> None:
    kind, body = KIND_OF[type(message)], body_of(message)
    shortest = len(body) - (len(getattr(message, kind.payload)) if kind.payload else 0)

    whole = {len(body) - native.SEED_BYTES} if getattr(message, "seed_sha256", "") else set()
    for length in {*range(shortest)} - whole:
        with pytest.raises(RemoteProtocolError):
            native.decode(body[:length], "n1", "n0")


def test_a_mark_whose_last_byte_is_not_a_boolean_is_refused() -> None:
    marked = RecallResponse(**ENDS, incarnation=1, mark=Mark(4, 7, 4, is_whole=True))
    told_bytes = 4  # no memberships: their length alone
    at = len(body_of(marked)) - told_bytes - 1
    body = bytearray(body_of(marked))
    assert body[at] == 1

    body[at] = 0x40
    with pytest.raises(RemoteProtocolError, match="neither 0 nor 1"):
        native.decode(bytes(body), "n1", "n0")


def test_a_message_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        native.decode(b"\xff" + bytes(64), "n1", "n0")


def test_a_hello_is_read_as_it_was_written() -> None:
    (command,) = FrameDecoder().feed(native.encode_hello(hello_to("n0"), opaque=1))

    assert native.decode_hello(command.body) == hello_to("n0")


@pytest.mark.parametrize("field", ["group", "segmentSizeBytes", "incarnation", "protocol"])
def test_a_hello_without_one_of_its_fields_is_refused(field: str) -> None:
    (command,) = FrameDecoder().feed(native.encode_hello(hello_to("n0"), opaque=1))

    with pytest.raises(RemoteProtocolError, match=field):
        native.decode_hello(command.body.replace(field.encode(), b"other"))


PROTOCOL = native.NEWEST_PROTOCOL


@pytest.mark.parametrize(
    ("oldest", "newest"),
    [(PROTOCOL, 0), (PROTOCOL, PROTOCOL), (PROTOCOL, PROTOCOL + 7), (PROTOCOL - 1, PROTOCOL)],
)
def test_members_that_speak_a_common_protocol_version_link(oldest: int, newest: int) -> None:
    theirs = msgspec.structs.replace(hello_to("n0"), protocol=oldest, newest_protocol=newest)

    assert (
        native.refusal(theirs, hello_to(theirs.sender_id, sender_id="n0"), {theirs.sender_id})
        is None
    )


@pytest.mark.parametrize(
    ("oldest", "newest", "words"),
    [
        (PROTOCOL + 1, PROTOCOL + 2, f"versions {PROTOCOL + 1} to {PROTOCOL + 2}"),
        (PROTOCOL + 1, 0, f"version {PROTOCOL + 1} of"),
    ],
)
def test_members_without_a_common_protocol_version_refuse_and_say_why(
    oldest: int, newest: int, words: str
) -> None:
    theirs = msgspec.structs.replace(hello_to("n0"), protocol=oldest, newest_protocol=newest)

    refusal = native.refusal(theirs, hello_to(theirs.sender_id, sender_id="n0"), {theirs.sender_id})

    assert refusal is not None
    assert words in refusal
    assert "run a release on all members that speaks both" in refusal


def test_a_hello_that_a_later_release_wrote_is_refused_by_its_version() -> None:
    body = msgspec.json.encode({"protocol": PROTOCOL + 1, "cluster": "g"})

    with pytest.raises(RemoteProtocolError, match=f"version {PROTOCOL + 1} of the protocol"):
        native.decode_hello(body)
