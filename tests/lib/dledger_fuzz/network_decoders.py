"""Decoders of bytes from the network: frames, requests, and messages between members."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from dledger_formats.json_objects import FormatError
from dledger_formats.log import disk, memberships
from dledger_formats.log.runs import bodies_of
from dledger_formats.protocol import append_batch, codes, frames, requests
from dledger_formats.protocol.append_batch import AppendBatchRequest
from dledger_formats.protocol.entry import entries_from_disk
from dledger_formats.protocol.long_body import LongBody
from dledger_formats.protocol.producers import IdempotentAppendRequest, IdempotentBatchRequest
from dledger_formats.protocol.read_range import ReadRangeRequest, ReadRangeResponse
from dledger_node.errors import RemoteProtocolError
from dledger_node.raft.log_terms import LogEnd
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.messages import (
    AppendRequest,
    InstallSnapshotRequest,
    JoinResponse,
    PreVoteResponse,
    PushResponse,
    VoteResponse,
)
from dledger_node.raft.recall_messages import Mark, RecallResponse
from dledger_node.remoting import native
from dledger_node.remoting.append_reader import (
    AppendBatchReader,
    AppendReader,
    IdempotentAppendReader,
    IdempotentBatchReader,
)
from dledger_node.remoting.message_kinds import KIND_OF, KINDS, PeerMessage
from dledger_node.remoting.snapshot_messages import SnapshotChunk
from dledger_node.store.log.block import check_block
from dledger_node.store.log.entry_runs import Link

Feed: TypeAlias = Callable[[bytes], None]
"""Decodes one input, and catches only the decoder's own error. What it does afterwards with a value
that was decoded, such as a round trip, must not fail with that error either.
"""
Decoder: TypeAlias = Callable[[], tuple[list[bytes], Feed]]
"""Returns sound inputs, and the function that feeds one to the decoder."""
GOLDEN = Path(__file__).resolve().parents[2] / "formats" / "golden" / "frames.jsonl"
JAVA_FRAMES = [bytes.fromhex(json.loads(line)["hex"]) for line in GOLDEN.read_text().splitlines()]


def java_bodies(code: int) -> list[bytes]:
    """Return bodies of Java's requests with this code."""
    commands = [command for raw in JAVA_FRAMES for command in frames.FrameDecoder().feed(raw)]
    return [each.body for each in commands if each.code == code and each.body]


def frame_decoder() -> tuple[list[bytes], Feed]:
    """Frames, in one piece and in two."""

    def feed(raw: bytes) -> None:
        decoder = frames.FrameDecoder(frame_bytes_max=1 << 16)
        commands: list[frames.RemotingCommand] = []
        with contextlib.suppress(frames.FrameError):
            decoder.feed(raw[: len(raw) // 2])
            commands = decoder.feed(raw[len(raw) // 2 :])
        for command in commands:
            assert frames.FrameDecoder().feed(frames.encode(command)) == [command]
        assert decoder.pending_bytes < 1 << 16

    plain = [frames.encode_requests(50001, [(k, b"{}") for k in range(3)])]
    return [raw for raw in JAVA_FRAMES if len(raw) < 4096] + plain, feed


def request_decoders() -> tuple[list[bytes], Feed]:
    """Bodies of requests and responses."""
    kinds: tuple[type[requests.Request | requests.Response], ...] = (
        requests.MetadataRequest, requests.MetadataResponse, requests.AppendEntryRequest,
        requests.AppendEntryResponse, requests.GetEntriesRequest, requests.GetEntriesResponse,
        ReadRangeRequest,
    )  # fmt: skip

    def feed(raw: bytes) -> None:
        kind = kinds[len(raw) % len(kinds)]
        try:
            message = kind.from_json(raw)
        except FormatError:
            return
        assert kind.from_json(message.to_json()) == message

    bodies = [body for code in (50000, 50001, 50002, 200) for body in java_bodies(code)]
    return [body for body in bodies if len(body) < 4096], feed


def append_reader() -> tuple[list[bytes], Feed]:
    """Appends of one connection; a remembered envelope must give the result of the format."""
    reader = AppendReader(lambda request: None if request.group else codes.DLedgerResponseCode(400))

    def feed(raw: bytes) -> None:
        try:
            refused, body = reader.read(raw)
        except FormatError:
            return
        request = requests.AppendEntryRequest.from_json(raw)
        assert (request.body, not request.group) == (body, refused is not None)

    ours = [requests.AppendEntryRequest(group="g", body=bytes(k)).to_json() for k in range(9)]
    return [*ours, *(body for body in java_bodies(50001) if len(body) < 4096)], feed


def long_body() -> tuple[list[bytes], Feed]:
    """Requests divided at their body; what is accepted means the same as JSON."""

    def feed(raw: bytes) -> None:
        try:
            divided = LongBody(raw)
            while not divided.read_part():
                pass
            request = requests.AppendEntryRequest.around(divided)
        except FormatError:
            return
        assert requests.AppendEntryRequest.from_json(raw) == request

    appends = [requests.AppendEntryRequest(group="g", body=bytes(range(k))) for k in range(1, 9)]
    ours = [
        each.to_json(bytes_as_numbers=as_numbers)
        for each in appends
        for as_numbers in (False, True)
    ]
    return [*ours, *(body for body in java_bodies(50001) if len(body) < 4096)], feed


def idempotent_append_reader() -> tuple[list[bytes], Feed]:
    """Idempotent appends of one connection, as in `append_reader`."""
    reader = IdempotentAppendReader(
        lambda request: None if request.group else codes.DLedgerResponseCode(400)
    )

    def feed(raw: bytes) -> None:
        try:
            refused, *fields = reader.read(raw)
        except FormatError:
            return
        request = IdempotentAppendRequest.from_json(raw)
        assert [request.body, request.producer, request.sequence] == fields
        assert (not request.group) == (refused is not None)

    ours = [
        IdempotentAppendRequest(group="g", body=bytes(k), producer=10**k, sequence=k + 1).to_json()
        for k in range(9)
    ]
    return ours, feed


def append_batch_reader() -> tuple[list[bytes], Feed]:
    """Batches of appends of one connection, as in `append_reader`."""
    reader = AppendBatchReader(
        lambda request: None if request.group else codes.DLedgerResponseCode(400)
    )

    def feed(raw: bytes) -> None:
        try:
            refused, bodies = reader.read(raw)
        except FormatError:
            return
        envelope, again = append_batch.split(raw)
        group = requests.Request.from_json(envelope).group
        assert (again, not group) == (bodies, refused is not None)

    ours = [
        AppendBatchRequest(group="g", bodies=[bytes(k), b"x" * k, b""]).to_bytes() for k in range(9)
    ]
    return ours, feed


def idempotent_batch_reader() -> tuple[list[bytes], Feed]:
    """Idempotent batches of one connection, as in `append_reader`."""
    reader = IdempotentBatchReader(
        lambda request: None if request.group else codes.DLedgerResponseCode(400)
    )

    def feed(raw: bytes) -> None:
        try:
            refused, envelope, bodies = reader.read(raw)
        except FormatError:
            return
        assert (not envelope.group) == (refused is not None)
        assert (envelope.producer, envelope.sequence) >= (0, 1)
        again = IdempotentBatchRequest(
            group=envelope.group, remote_id=envelope.remote_id, bodies=bodies,
            producer=envelope.producer, sequence=envelope.sequence,
        )  # fmt: skip
        assert reader.read(again.to_bytes())[2] == bodies

    ours = [
        IdempotentBatchRequest(
            group="g", bodies=[bytes(k), b"x" * k, b""], producer=10**k, sequence=k + 1
        ).to_bytes()
        for k in range(9)
    ]
    return ours, feed


def native_messages() -> tuple[list[bytes], Feed]:
    """Messages between members."""

    def feed(raw: bytes) -> None:
        try:
            message = native.decode(raw, "n1", "n0")
        except RemoteProtocolError:
            return
        pushes = isinstance(message, AppendRequest | InstallSnapshotRequest)
        entries = [message.entries] if pushes else []
        again = b"".join(native.encode(message, entries))  # type: ignore[arg-type]
        assert again.endswith(raw)

    sound = [
        bytes((number,)) + kind.numbers.pack(*range(1, len(kind.fields) + 1))
        for number, kind in KINDS.items()
        if "result" not in kind.fields
    ]
    results = [
        bytes((KIND_OF[kind].number,)) + KIND_OF[kind].numbers.pack(*numbers)
        for kind, *numbers in (
            (PreVoteResponse, 5, 5, 0), (VoteResponse, 5, 5, 0),
            (PushResponse, 5, 5, 0, 9, 9, -1, -1, -1),
        )
    ]  # fmt: skip
    both = (Membership(("n0", "n1")), Membership(("n0",), ("n1", "n2")))
    entries = tuple(MembershipEntry(3 + at, one) for at, one in enumerate(both))
    told: list[PeerMessage] = [
        SnapshotChunk(
            sender="n1", receiver="n0", last_included_index=9, last_included_term=3, data_bytes=40,
            data_crc32=7, offset=4, data=b"a piece of a state",
        ),
        JoinResponse(
            sender="n1", receiver="n0", term=4, incarnation=1, ledger_end_index=9, leading=True,
            joining=False, alone=False, memberships=both,
        ),
        *(
            RecallResponse(
                sender="n1", receiver="n0", term=4, incarnation=1, memberships=some, mark=mark
            )
            for some in ((), both)
            for mark in (None, Mark(4, 7, 3, end=LogEnd(3, 7)))
        ),
        InstallSnapshotRequest(
            sender="n1", receiver="n0", term=4, first_index=3, last_index=4, entries_term=4,
            committed_index=9, membership=both[1], memberships=entries,
        ),
        AppendRequest(
            sender="n1", receiver="n0", term=4, previous_index=2, previous_term=3, first_index=3,
            last_index=4, entries_term=4, committed_index=9, memberships=entries,
        ),
    ]  # fmt: skip
    bodies = [
        bytes(frames.FrameDecoder().feed(b"".join(native.encode(message)))[0].body)
        for message in told
    ]
    return [*sound, *results, *bodies], feed


def hello() -> tuple[list[bytes], Feed]:
    """The body of a HELLO."""

    def feed(raw: bytes) -> None:
        with contextlib.suppress(RemoteProtocolError):
            native.decode_hello(raw)

    greeting = native.Hello(
        group="g", sender_id="n1", receiver_id="n0", segment_size_bytes=4096, incarnation=1,
        protocol=native.OLDEST_PROTOCOL,
    )  # fmt: skip
    return [frames.FrameDecoder().feed(native.encode_hello(greeting, 1))[0].body], feed


def pushed_entries() -> tuple[list[bytes], Feed]:
    """The stored bytes of a push."""

    def feed(raw: bytes) -> None:
        with contextlib.suppress(RemoteProtocolError):
            block = check_block(
                raw, first_index=7, last_index=9, term=3, segment_size=4096, link=Link(480, 11)
            )
            assert sum(len(run.data) for run in block.runs) == len(raw)

    sound = [
        disk.pack_entries(
            [b"a" * size] * 3, magic=1, first_index=7, term=3, pos=480, previous_chain_crc=11
        ).data
        for size in (0, 1, 300)
    ]
    body = memberships.encode(("n0", "n1"), ("n2",))
    changes = disk.pack_entries(
        [body] * 3, magic=disk.NOOP, first_index=7, term=3, pos=480, previous_chain_crc=11,
        channels=[0, memberships.MEMBERSHIP_CHANNEL, 0],
    ).data  # fmt: skip
    return [*sound, changes], feed


def range_answers() -> tuple[list[bytes], Feed]:
    """Answers to READ_RANGE."""

    def feed(raw: bytes) -> None:
        try:
            answer = ReadRangeResponse.from_bytes(raw)
            bodies = bodies_of(answer.stored, 7)
        except (FormatError, disk.DamagedRecordError):
            return
        assert [entry.body for entry in entries_from_disk(answer.stored)] == bodies

    head = ReadRangeResponse(group="g", leader_id="n0", term=3).head()
    return [
        head + disk.pack_entries(
            [b"a" * size, b"b" * 20, b"c" * size], magic=1, first_index=7, term=3, pos=480,
            previous_chain_crc=11,
        ).data
        for size in (0, 20, 300)
    ], feed  # fmt: skip


DECODERS: tuple[Decoder, ...] = (
    frame_decoder, request_decoders, append_reader, idempotent_append_reader,
    append_batch_reader, idempotent_batch_reader, native_messages, hello, pushed_entries,
    range_answers, long_body,
)  # fmt: skip
