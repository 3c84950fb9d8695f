"""Every decoder takes or refuses whatever comes, with its own error, in bounded time and memory.

`--fuzz-inputs` says how many inputs there are in all, `--fuzz-seed` where their sequence begins. A
failure names its decoder, and the input in full.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats import settings
from dledger_formats.audit import AuditSummary, Finding, Verdict
from dledger_formats.http.status import (
    FlushDiskType,
    LeaderView,
    Manifest,
    NodeStatus,
    PeerStatus,
    Role,
    SegmentFile,
)
from dledger_formats.json_objects import FormatError
from dledger_formats.log import disk, memberships
from dledger_formats.log.channels import ChannelEntry, channel_of
from dledger_formats.log.checksum import crc32
from dledger_formats.protocol import append_batch, frames, requests
from dledger_formats.protocol.append_batch import AppendBatchRequest
from dledger_formats.protocol.producers import IdempotentAppendRequest
from dledger_formats.settings import NodeSettings, SettingsError
from dledger_fuzz.mutate import Mutator
from dledger_node.errors import RemoteProtocolError
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
)
from dledger_node.remoting.message_kinds import KIND_OF, KINDS, PeerMessage
from dledger_node.remoting.snapshot_messages import SnapshotChunk
from dledger_node.store.derived import memberships_file, producers_file
from dledger_node.store.derived.producers import Producers
from dledger_node.store.log.block import check_block
from dledger_node.store.log.entry_runs import Link

pytestmark = pytest.mark.fuzz
MEMORY_BYTES_MAX = 64 << 20
INPUT_S_MAX = 10.0
"""One input may take this long, on a machine that does other things too."""
GOLDEN = Path(__file__).resolve().parent.parent / "formats" / "golden" / "frames.jsonl"
JAVA_FRAMES = [bytes.fromhex(json.loads(line)["hex"]) for line in GOLDEN.read_text().splitlines()]
Feed = Callable[[bytes], None]


def java_bodies(code: int) -> list[bytes]:
    """Bodies of Java's requests of one code."""
    commands = [command for raw in JAVA_FRAMES for command in frames.FrameDecoder().feed(raw)]
    return [each.body for each in commands if each.code == code and each.body]


# Each decoder: sound inputs, and a function that feeds one and lets nothing but its own error by.


def frame_decoder() -> tuple[list[bytes], Feed]:
    """Frames, in one piece and in two."""

    def feed(raw: bytes) -> None:
        decoder = frames.FrameDecoder(frame_bytes_max=1 << 16)
        with contextlib.suppress(frames.FrameError):
            decoder.feed(raw[: len(raw) // 2])
            for command in decoder.feed(raw[len(raw) // 2 :]):
                assert frames.FrameDecoder().feed(frames.encode(command)) == [command]
        assert decoder.pending_bytes < 1 << 16

    plain = [frames.encode_requests(50001, [(k, b"{}") for k in range(3)])]
    return [raw for raw in JAVA_FRAMES if len(raw) < 4096] + plain, feed


def request_decoders() -> tuple[list[bytes], Feed]:
    """Bodies of requests and responses."""
    kinds: tuple[type[requests.Request | requests.Response], ...] = (
        requests.MetadataRequest, requests.MetadataResponse, requests.AppendEntryRequest,
        requests.AppendEntryResponse, requests.GetEntriesRequest, requests.GetEntriesResponse,
    )  # fmt: skip

    def feed(raw: bytes) -> None:
        kind = kinds[len(raw) % len(kinds)]
        with contextlib.suppress(FormatError):
            message = kind.from_json(raw)
            assert kind.from_json(message.to_json()) == message

    bodies = [body for code in (50000, 50001, 50002, 200) for body in java_bodies(code)]
    return [body for body in bodies if len(body) < 4096], feed


def append_reader() -> tuple[list[bytes], Feed]:
    """Appends of one connection; what it takes for known must be what the format says."""
    reader = AppendReader(
        lambda request: None if request.group else requests.DLedgerResponseCode(400)
    )

    def feed(raw: bytes) -> None:
        with contextlib.suppress(FormatError):
            refused, body = reader.read(raw)
            request = requests.AppendEntryRequest.from_json(raw)
            assert (request.body, not request.group) == (body, refused is not None)

    ours = [requests.AppendEntryRequest(group="g", body=bytes(k)).to_json() for k in range(9)]
    return [*ours, *(body for body in java_bodies(50001) if len(body) < 4096)], feed


def append_once_reader() -> tuple[list[bytes], Feed]:
    """The same of appends that may be sent again."""
    reader = IdempotentAppendReader(
        lambda request: None if request.group else requests.DLedgerResponseCode(400)
    )

    def feed(raw: bytes) -> None:
        with contextlib.suppress(FormatError):
            refused, *fields = reader.read(raw)
            request = IdempotentAppendRequest.from_json(raw)
            assert [request.body, request.producer, request.sequence] == fields
            assert (not request.group) == (refused is not None)

    ours = [
        IdempotentAppendRequest(group="g", body=bytes(k), producer=10**k, sequence=k + 1).to_json()
        for k in range(9)
    ]
    return ours, feed


def append_batch_reader() -> tuple[list[bytes], Feed]:
    """The same of appends that share a request."""
    reader = AppendBatchReader(
        lambda request: None if request.group else requests.DLedgerResponseCode(400)
    )

    def feed(raw: bytes) -> None:
        with contextlib.suppress(FormatError):
            refused, bodies = reader.read(raw)
            envelope, again = append_batch.split(raw)
            assert (again, not requests.Request.from_json(envelope).group) == (
                bodies,
                refused is not None,
            )

    ours = [
        AppendBatchRequest(group="g", bodies=[bytes(k), b"x" * k, b""]).to_bytes() for k in range(9)
    ]
    return ours, feed


def producers_files() -> tuple[list[bytes], Feed]:
    """The file of the table of producers, with its checksum made right."""
    table = Producers()
    table.note(ChannelEntry(0, disk.NOOP, channel_of(1, 0)))
    table.note(ChannelEntry(1, disk.NOOP, channel_of(2, 0)))
    table.note(ChannelEntry(2, disk.NORMAL, channel_of(2, 1)))

    def feed(raw: bytes) -> None:
        with contextlib.suppress(ValueError):
            image = producers_file.decode(raw + crc32(raw).to_bytes(4, "big"))
            assert producers_file.encode(image)[:-4] == raw

    images = [
        producers_file.Image(index=2, term=1, chain_crc=7, producers=list(table)[:count])
        for count in range(3)
    ]
    return [producers_file.encode(image)[:-4] for image in images], feed


def membership_bodies() -> tuple[list[bytes], Feed]:
    """The body of an entry that changes the membership: what is read is written alike."""

    def feed(raw: bytes) -> None:
        with contextlib.suppress(FormatError):
            said = memberships.decode(raw)
            assert memberships.encode(*said) == raw
            Membership(*said)

    sound = ((("n0",), ()), (("n0", "n1", "n2"), ("n3",)), (("a", "b"), ("c", "d")))
    return [memberships.encode(*said) for said in sound], feed


def memberships_files() -> tuple[list[bytes], Feed]:
    """The file of committed memberships, with its checksum made right."""

    def feed(raw: bytes) -> None:
        with contextlib.suppress(ValueError):
            whole = raw + b"#crc32=%08x\n" % crc32(raw)
            assert memberships_file.encode(memberships_file.decode(whole)) == whole

    entries = [
        MembershipEntry(3, Membership(("n0",))),
        MembershipEntry(9, Membership(("n0", "n1"))),
    ]
    files = [memberships_file.encode(entries[:count]) for count in range(3)]
    return [raw[: raw.index(b"#")] for raw in files], feed


def native_messages() -> tuple[list[bytes], Feed]:
    """Messages between members."""

    def feed(raw: bytes) -> None:
        with contextlib.suppress(RemoteProtocolError):
            message = native.decode(raw, "n1", "n0")
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
            for mark in (None, Mark(4, 7, 3))
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
        protocol=native.PROTOCOL,
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


def json_of_programs() -> tuple[list[bytes], Feed]:
    """What programs tell each other over HTTP."""
    node = NodeStatus(
        group="g", self_id="n0", role=Role.LEADER, term=3, leader_id="n0", master=True, ready=True,
        reason="", broker_id=0, ledger_begin_index=0, ledger_end_index=41, ledger_end_term=3,
        committed_index=40, durable_index=41, flush_disk_type=FlushDiskType.SYNC_FLUSH,
        peers={"n0": "h:1"}, version="1",
        followers=[PeerStatus(peer_id="n1", match_index=40, reachable=True)],
    )  # fmt: skip
    view = LeaderView(
        self_id="n0", term=1, leader_id=None, master=False, ledger_end_index=1, committed_index=1
    )
    fields = {field.name: 0 for field in dataclasses.fields(SegmentFile)} | {"name": "0" * 20}
    file = SegmentFile(**fields)  # type: ignore[arg-type]
    manifest = Manifest(status=node, data=[file], index=[file])
    finding = Finding(
        check="c", severity="s", member="n1", segment="0", first_index=0, last_index=1, detail="d"
    )
    audit = AuditSummary(
        verdict=next(iter(Verdict)), message="m", members=["n0"], entries=1, record_bytes=1,
        agreed_index=0, findings=1, first_findings=[finding],
    )  # fmt: skip
    kinds = (NodeStatus, LeaderView, Manifest, AuditSummary)

    def feed(raw: bytes) -> None:
        kind = kinds[len(raw) % len(kinds)]
        with contextlib.suppress(FormatError):
            decoded = kind.from_json(raw)
            assert isinstance(decoded.to_json(), bytes)

    return [each.to_json() for each in (node, view, manifest, audit)], feed


def node_settings() -> tuple[list[bytes], Feed]:
    """A member's environment."""
    sound = NodeSettings(group="g", self_id="n0", peers={"n0": "h:1"}, store_base_dir="/d")
    names = sorted(sound.to_environment())

    def feed(raw: bytes) -> None:
        name = names[len(raw) % len(names)]
        text = raw.decode("utf-8", "replace")
        with contextlib.suppress(SettingsError):
            NodeSettings.from_environment(sound.to_environment() | {name: text})
        with contextlib.suppress(SettingsError):
            settings.parse_peers(text)

    return [b"n0-h:1;n1-host.example:40911", b"4096", b"SyncFlush", b"json"], feed


DECODERS = (
    frame_decoder, request_decoders, append_reader, append_once_reader,
    append_batch_reader, producers_files,
    membership_bodies, memberships_files, native_messages, hello, pushed_entries,
    json_of_programs, node_settings,
)  # fmt: skip


def own_memory_bytes() -> int:
    """What this process holds, without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.__name__)
def test_whatever_comes_is_taken_or_refused(
    decoder: Callable[[], tuple[list[bytes], Feed]], pytestconfig: pytest.Config
) -> None:
    count = pytestconfig.getoption("--fuzz-inputs") // len(DECODERS)
    corpus, feed = decoder()
    mutator = Mutator(corpus, pytestconfig.getoption("--fuzz-seed"))
    for raw in mutator.inputs(min(count, 1000)):
        feed(raw)
    memory_bytes = own_memory_bytes()

    begun_s = time.perf_counter()
    raw = b""
    try:
        for raw in mutator.inputs(count):
            fed_s = time.perf_counter()
            feed(raw)
            assert time.perf_counter() - fed_s < INPUT_S_MAX
    except Exception as error:
        raise AssertionError(f"{decoder.__name__}: {error!r} for {raw!r}") from error
    took_s = time.perf_counter() - begun_s

    print(f"{decoder.__name__}: {count:,} inputs in {took_s:.1f} s")
    assert own_memory_bytes() - memory_bytes <= MEMORY_BYTES_MAX
