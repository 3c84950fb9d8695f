"""The JSON of nodes and audits, and its encoder and decoder."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_formats.audit import (
    FIRST_FINDINGS_MAX,
    TERMINATION_MESSAGE_BYTES_MAX,
    AuditSummary,
    ExitCode,
    Finding,
    Verdict,
)
from dledger_formats.http.status import (
    FlushDiskType,
    LeaderView,
    Manifest,
    NodeStatus,
    PeerStatus,
    Role,
    SegmentFile,
)
from dledger_formats.json_objects import INTEGER_MAX, INTEGER_MIN, FormatError

STATUS = NodeStatus(
    group="orders",
    self_id="n0",
    role=Role.LEADER,
    term=3,
    leader_id="n0",
    master=True,
    ready=True,
    reason="",
    broker_id=0,
    ledger_begin_index=0,
    ledger_end_index=41,
    ledger_end_term=3,
    committed_index=40,
    durable_index=41,
    flush_disk_type=FlushDiskType.SYNC_FLUSH,
    peers={"n0": "10.0.0.1:40911", "n1": "10.0.0.2:40911"},
    followers=[PeerStatus(peer_id="n1", match_index=40, reachable=True, full=True)],
    voters=["n0", "n1"],
    learners=["n2"],
    addable=["n3"],
    membership_index=12,
    joined_index=7,
    unheard_voters=["n1"],
    settings={"DLEDGER_RETENTION_BYTES": "0"},
    settings_problem="live: line 1",
    group_identity="an-identity",
    demands_admin_token=True,
    admin_tokens_version="7",
    scrub_passes=3,
    scrub_position_bytes=4096,
    mended_ranges=2,
    unmended="entry 7",
    recovery_size_bytes=8192,
    recovery_verified_bytes=4096,
    volume_size_bytes=10_000,
    volume_available_bytes=900,
    version="0.1.0",
)
FINDING = Finding(
    check="bad_body_crc",
    severity="critical",
    member="n1",
    segment="00000000000000000000",
    first_index=7,
    last_index=7,
    detail="body of entry 7 at byte 336",
)
repeatable = settings(max_examples=50)


def without(key: str) -> bytes:
    plain = json.loads(STATUS.to_json())
    del plain[key]
    return json.dumps(plain).encode()


def replacing(key: str, value: Any) -> bytes:
    return json.dumps(json.loads(STATUS.to_json()) | {key: value}).encode()


def with_integers(kind: type[Any], **parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Build objects whose integers have at most 64 bits."""
    integers = st.integers(INTEGER_MIN, INTEGER_MAX)
    told = {each.name: integers for each in dataclasses.fields(kind) if each.type is int}
    return st.builds(kind, **told | parts)


STATUSES = with_integers(NodeStatus, followers=st.lists(with_integers(PeerStatus), max_size=3))
SEGMENTS = st.lists(with_integers(SegmentFile), max_size=3)
MANIFESTS = with_integers(Manifest, status=STATUSES, data=SEGMENTS, index=SEGMENTS)


@repeatable
@given(st.one_of(STATUSES, with_integers(LeaderView), MANIFESTS))
def test_the_pages_of_a_node_are_decoded_unchanged(
    said: NodeStatus | LeaderView | Manifest,
) -> None:
    assert type(said).from_json(said.to_json()) == said


def test_the_keys_of_a_status_stay_the_same() -> None:
    assert json.loads(STATUS.to_json()) == {
        "group": "orders",
        "selfId": "n0",
        "settings": {"DLEDGER_RETENTION_BYTES": "0"},
        "settingsProblem": "live: line 1",
        "demandsAdminToken": True,
        "adminTokensVersion": "7",
        "groupIdentity": "an-identity",
        "scrubPasses": 3,
        "scrubPositionBytes": 4096,
        "mendedRanges": 2,
        "unmended": "entry 7",
        "recoverySizeBytes": 8192,
        "recoveryVerifiedBytes": 4096,
        "volumeSizeBytes": 10_000,
        "volumeAvailableBytes": 900,
        "storage": "Sound",
        "joining": False,
        "unheardVoters": ["n1"],
        "seedSha256": "",
        "role": "LEADER",
        "term": 3,
        "leaderId": "n0",
        "master": True,
        "ready": True,
        "reason": "",
        "brokerId": 0,
        "broker": None,
        "ledgerBeginIndex": 0,
        "ledgerEndIndex": 41,
        "ledgerEndTerm": 3,
        "committedIndex": 40,
        "durableIndex": 41,
        "appliedIndex": -1,
        "stateBehind": False,
        "flushDiskType": "SyncFlush",
        "peers": {"n0": "10.0.0.1:40911", "n1": "10.0.0.2:40911"},
        "followers": [{"peerId": "n1", "matchIndex": 40, "reachable": True, "full": True}],
        "membership": "Voter",
        "voters": ["n0", "n1"],
        "learners": ["n2"],
        "addable": ["n3"],
        "membershipIndex": 12,
        "joinedIndex": 7,
        "version": "0.1.0",
    }


def test_an_unknown_key_of_a_newer_program_is_ignored() -> None:
    assert NodeStatus.from_json(replacing("later", [1, {"x": None}])) == STATUS


def test_a_key_that_an_older_program_lacks_gets_its_default() -> None:
    assert NodeStatus.from_json(without("voters")) == dataclasses.replace(STATUS, voters=[])
    assert NodeStatus.from_json(without("joining")) == dataclasses.replace(STATUS, joining=False)


@pytest.mark.parametrize(
    "key", ["group", "selfId", "term", "leaderId", "master", "committedIndex", "peers", "version"]
)
def test_a_missing_key_is_named_in_the_error(key: str) -> None:
    with pytest.raises(FormatError, match=f"the key {key} is missing"):
        NodeStatus.from_json(without(key))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("term", "3"),
        ("term", 3.0),
        ("term", True),
        ("term", None),
        ("master", 1),
        ("role", "MASTER"),
        ("role", 1),
        ("leaderId", 0),
        ("peers", ["n0"]),
        ("peers", {"n0": 1}),
        ("followers", {}),
        ("followers", [{"peerId": "n1"}]),
        ("followers", [None]),
    ],
)
def test_a_value_of_another_type_is_named_by_its_path_in_the_error(key: str, value: Any) -> None:
    with pytest.raises(FormatError, match=rf"\.{key}"):
        NodeStatus.from_json(replacing(key, value))


@pytest.mark.parametrize(
    "value", [INTEGER_MAX + 1, INTEGER_MIN - 1, 10**400], ids=["above", "below", "far"]
)
@pytest.mark.parametrize("key", ["term", "committedIndex", "followers"])
def test_an_integer_beyond_64_bits_is_refused(key: str, value: int) -> None:
    """It would fit no file, no metric and no field of Kubernetes."""
    told = [{"peerId": "n1", "matchIndex": value, "reachable": True}]

    with pytest.raises(FormatError, match=rf"\.{key}.*64 bits"):
        NodeStatus.from_json(replacing(key, told if key == "followers" else value))


@pytest.mark.parametrize("value", [INTEGER_MAX, INTEGER_MIN])
def test_every_integer_of_64_bits_is_read(value: int) -> None:
    assert NodeStatus.from_json(replacing("committedIndex", value)).committed_index == value


@pytest.mark.parametrize("raw", [b"", b"{", b"null", b"[]", b"1", b'"x"', b"\xff"])
def test_json_that_is_not_an_object_is_refused(raw: bytes) -> None:
    with pytest.raises(FormatError):
        NodeStatus.from_json(raw)


def test_a_status_without_a_leader_has_null_as_leader() -> None:
    status = dataclasses.replace(STATUS, leader_id=None)

    assert NodeStatus.from_json(status.to_json()).leader_id is None


@pytest.mark.parametrize(("leader_id", "token"), [("n1", "5:n1"), (None, "5:")])
def test_the_token_of_a_view_holds_term_and_leader(leader_id: str | None, token: str) -> None:
    view = LeaderView(
        self_id="n0", term=5, leader_id=leader_id, master=False, ledger_end_index=1,
        committed_index=1,
    )  # fmt: skip

    assert view.token == token


def test_a_manifest_lists_the_files_of_one_instant() -> None:
    file = SegmentFile(
        name="0" * 20,
        size_bytes=8192,
        readable_bytes=4000,
        first_index=0,
        modified_ms=1_700_000_000_000,
    )
    manifest = Manifest(status=STATUS, data=[file], index=[])

    assert json.loads(manifest.to_json())["data"] == [
        {
            "name": "0" * 20,
            "sizeBytes": 8192,
            "readableBytes": 4000,
            "firstIndex": 0,
            "modifiedMs": 1_700_000_000_000,
        }
    ]


# The audit's summary.


def summary_with(findings: list[Finding]) -> AuditSummary:
    return AuditSummary(
        verdict=Verdict.DAMAGED,
        message="one body is damaged",
        members=["n0", "n1", "n2"],
        entries=1000,
        record_bytes=1_048_576,
        agreed_index=999,
        findings=len(findings),
        first_findings=findings,
    )


def test_a_summary_is_decoded_unchanged() -> None:
    summary = summary_with([FINDING])

    assert AuditSummary.from_json(summary.to_json()) == summary


def test_a_summary_keeps_its_first_findings_and_counts_all() -> None:
    summary = AuditSummary.from_json(summary_with([FINDING] * 50).to_json())

    assert (len(summary.first_findings), summary.findings) == (FIRST_FINDINGS_MAX, 50)


@repeatable
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=12))
def test_a_summary_leaves_out_findings_to_stay_below_the_limit_of_kubernetes(
    lengths: list[int],
) -> None:
    findings = [dataclasses.replace(FINDING, detail="x" * length) for length in lengths]

    raw = summary_with(findings).to_json()

    assert len(raw) <= TERMINATION_MESSAGE_BYTES_MAX
    assert AuditSummary.from_json(raw).findings == len(findings)


def test_every_verdict_has_its_exit_code() -> None:
    assert {verdict.name for verdict in Verdict} <= {code.name for code in ExitCode}


def test_a_leader_says_what_each_member_lacks_of_the_committed_entries() -> None:
    away = PeerStatus(peer_id="n1", match_index=30, reachable=False)
    ahead = PeerStatus(peer_id="n2", match_index=41, reachable=True)
    late = PeerStatus(peer_id="n3", match_index=-1, reachable=True)
    leader = dataclasses.replace(STATUS, followers=[away, ahead, late])

    assert [leader.lacks_committed(each) for each in ("n0", "n1", "n2", "n3", "n4")] == [
        0, None, 0, 41, None,
    ]  # fmt: skip
    assert leader.lacks_committed("n1", last_known=True) == 10
    assert leader.lacks_committed("n4", last_known=True) is None
