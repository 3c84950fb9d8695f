"""Decoders of files, of JSON between programs, and of settings."""

import contextlib
import dataclasses

from dledger_formats.audit import AuditSummary, Finding, Verdict
from dledger_formats.http.retention import Removal, RemovalRule
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
from dledger_formats.log.channels import ChannelRun, channel_of
from dledger_formats.log.checksum import crc32
from dledger_formats.peers import PeersError, parse_peers
from dledger_formats.settings import NodeSettings, SettingsError
from dledger_fuzz.network_decoders import Decoder, Feed
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.store.derived import memberships_file, producers_file
from dledger_node.store.derived.producers import Producers
from dledger_node.store.small_files import removals_file


def producers_files() -> tuple[list[bytes], Feed]:
    """The file of the table of producers, with a correct checksum."""
    table = Producers()
    table.note(ChannelRun(0, disk.NOOP, channel_of(1, 0)))
    table.note(ChannelRun(1, disk.NOOP, channel_of(2, 0)))
    table.note(ChannelRun(2, disk.NORMAL, channel_of(2, 1)))

    def feed(raw: bytes) -> None:
        try:
            image = producers_file.decode(raw + crc32(raw).to_bytes(4, "big"))
        except ValueError:
            return
        assert producers_file.encode(image)[:-4] == raw

    images = [
        producers_file.Image(index=2, term=1, chain_crc=7, producers=list(table)[:count])
        for count in range(3)
    ]
    return [producers_file.encode(image)[:-4] for image in images], feed


def membership_bodies() -> tuple[list[bytes], Feed]:
    """The body of a membership entry; a decoded body is encoded back unchanged."""

    def feed(raw: bytes) -> None:
        try:
            said = memberships.decode(raw)
        except FormatError:
            return
        assert memberships.encode(*said) == raw
        Membership(*said)

    sound = ((("n0",), ()), (("n0", "n1", "n2"), ("n3",)), (("a", "b"), ("c", "d")))
    return [memberships.encode(*said) for said in sound], feed


def memberships_files() -> tuple[list[bytes], Feed]:
    """The file of committed memberships, with a correct checksum."""

    def feed(raw: bytes) -> None:
        whole = raw + b"#crc32=%08x\n" % crc32(raw)
        try:
            entries = memberships_file.decode(whole)
        except ValueError:
            return
        assert memberships_file.encode(entries) == whole

    entries = [
        MembershipEntry(3, Membership(("n0",))),
        MembershipEntry(9, Membership(("n0", "n1"))),
    ]
    files = [memberships_file.encode(entries[:count]) for count in range(3)]
    return [raw[: raw.index(b"#")] for raw in files], feed


def removals_files() -> tuple[list[bytes], Feed]:
    """The file of removals, with a correct checksum."""

    def feed(raw: bytes) -> None:
        try:
            known = removals_file.decode(raw + b"#crc32=%08x\n" % crc32(raw))
        except ValueError:
            return
        assert removals_file.decode(removals_file.encode(known)) == known

    removals = [
        Removal(first_index=0, last_index=9, rule=RemovalRule.EARLIER),
        Removal(first_index=10, last_index=40, rule=RemovalRule.SIZE, committed_index=99),
    ]
    files = [removals_file.encode(removals[:count]) for count in range(3)]
    return [raw[: raw.index(b"#")] for raw in files], feed


def json_of_programs() -> tuple[list[bytes], Feed]:
    """The JSON pages of nodes, and the summary of an audit."""
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
        try:
            decoded = kind.from_json(raw)
        except FormatError:
            return
        assert isinstance(decoded.to_json(), bytes)

    return [each.to_json() for each in (node, view, manifest, audit)], feed


def node_settings() -> tuple[list[bytes], Feed]:
    """The environment variables of a member."""
    sound = NodeSettings(group="g", self_id="n0", peers={"n0": "h:1"}, store_base_dir="/d")
    names = sorted(sound.to_environment())

    def feed(raw: bytes) -> None:
        name = names[len(raw) % len(names)]
        text = raw.decode("utf-8", "replace")
        with contextlib.suppress(SettingsError):
            NodeSettings.from_environment(sound.to_environment() | {name: text})
        with contextlib.suppress(PeersError):
            parse_peers(text)

    return [b"n0-h:1;n1-host.example:40911", b"4096", b"SyncFlush", b"json"], feed


DECODERS: tuple[Decoder, ...] = (
    producers_files, membership_bodies, memberships_files, removals_files, json_of_programs,
    node_settings,
)  # fmt: skip
