"""Snapshots of the state are verified by their bytes, by the log, and by each other."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_audit.checks.electorate import Electorate, Held
from dledger_audit.checks.snapshot import snapshots
from dledger_audit.snapshots.gathering import Gathered, gather
from dledger_audit.snapshots.reading import Listed, Outcome, SnapshotRead, read_newest
from dledger_audit.snapshots.replay import Replayed
from dledger_audit.verdict import CRITICAL
from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.http.retention import HeldSnapshot
from dledger_formats.http.served_files import SNAPSHOT_DATA, SNAPSHOT_META, snapshot_file
from dledger_formats.http.status import Manifest, StorageState
from dledger_logs import damage
from dledger_logs.fronts import by_rule, with_retention
from dledger_logs.histories import register_history, small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.state import register_after, remove_snapshot, with_snapshots, write_snapshot
from dledger_logs.write import write_log
from dledger_scan.local_audit import local_audit
from dledger_scan.scanning import LocalFiles

COUNT = 400
ENTRIES = register_history(COUNT)
KEPT = {"n0": (250, 300, 350), "n1": (260, 300, 370), "n2": (300, 390)}
"""The snapshots of each member, by their last included index."""
ELECTORATE = Electorate(
    voters=frozenset(KEPT),
    counted=frozenset(KEPT),
    held={member: Held(first=0, last=9) for member in KEPT},
    cuts=(),
)


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, Log]:
    """Three members, of which two have removed the front of their logs."""
    whole = {name: write_log(tmp_path / name, ENTRIES, small_shape()) for name in KEPT}
    return whole | {name: damage.remove_front(whole[name], 2) for name in ("n0", "n1")}


@pytest.fixture
def says(logs: dict[str, Log]) -> dict[str, Manifest]:
    """What the members tell, with their snapshots on the disk."""
    return {name: told(logs, name, {k: saved(logs, name, k) for k in KEPT[name]}) for name in KEPT}


def saved(logs: Mapping[str, Log], name: str, index: int, term: int | None = None) -> HeldSnapshot:
    data = register_after(ENTRIES, index)
    return write_snapshot(logs[name].root, index, term or ENTRIES[index].term, data)


def told(
    logs: Mapping[str, Log], name: str, held: Mapping[int, HeldSnapshot], **known: object
) -> Manifest:
    begin = logs[name].first_index
    served = manifest(logs[name], name, peers=logs)
    oldest = min(held, default=-1)
    removed = [by_rule(0, begin - 1, covered_index=max(begin, oldest))] if begin else []
    return with_snapshots(with_retention(served, *removed), *held.values(), **known)


def found(summary: AuditSummary) -> list[tuple[str, str, int]]:
    return [(each.check, each.member, each.first_index) for each in summary.first_findings]


def test_snapshots_as_members_write_them_are_sound(
    logs: dict[str, Log], says: dict[str, Manifest]
) -> None:
    summary = local_audit(logs, says)

    assert summary.verdict is Verdict.SOUND, summary
    assert summary.findings == 0


def damaged(raw: bytes, kind: str, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw))
    match kind:
        case "flipped":
            return raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :]
        case "short":
            return raw[:at]
        case "zeroed":
            return bytes(len(raw))
        case _:
            return raw + rng.randbytes(1 + at)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", [SNAPSHOT_DATA, SNAPSHOT_META])
@pytest.mark.parametrize("kind", ["flipped", "short", "zeroed", "long"])
def test_a_rotten_snapshot_is_named_by_member_and_index(
    logs: dict[str, Log], says: dict[str, Manifest], kind: str, name: str, seed: int
) -> None:
    rng = random.Random(seed)
    member = rng.choice(list(KEPT))
    index = rng.choice(KEPT[member])
    path = logs[member].root / snapshot_file(index, name)
    path.write_bytes(damaged(path.read_bytes(), kind, rng))

    summary = local_audit(logs, says)

    assert found(summary) == [("bad_snapshot", member, index)]
    assert summary.verdict is Verdict.DAMAGED
    assert f"snapshot_{index}: " in summary.first_findings[0].detail


def test_a_snapshot_that_the_member_knows_to_be_damaged_is_told(
    logs: dict[str, Log], says: dict[str, Manifest]
) -> None:
    held = {k: saved(logs, "n1", k) for k in (260, 370)}

    summary = local_audit(logs, says | {"n1": told(logs, "n1", held, damaged_snapshots=[300])})

    assert found(summary) == [("bad_snapshot", "n1", 300)]
    assert "the member has found it damaged" in summary.first_findings[0].detail


def test_a_snapshot_of_another_term_than_its_entry_is_named(
    logs: dict[str, Log], says: dict[str, Manifest]
) -> None:
    held = {k: saved(logs, "n2", k, term=9 if k == 390 else None) for k in KEPT["n2"]}

    summary = local_audit(logs, says | {"n2": told(logs, "n2", held)})

    assert found(summary) == [("snapshot_term", "n2", 390)]
    assert "it says term 9, and the entry has term 4" in summary.first_findings[0].detail


def test_a_term_is_compared_with_an_intact_copy_of_the_entry(
    logs: dict[str, Log], says: dict[str, Manifest]
) -> None:
    damage.flip_header(logs["n2"], 390, "term", 1)

    assert ("snapshot_term", "n2", 390) not in found(local_audit(logs, says))


def test_a_snapshot_beyond_all_logs_is_named(
    logs: dict[str, Log], says: dict[str, Manifest]
) -> None:
    held = {k: saved(logs, "n0", k) for k in KEPT["n0"]}
    held[COUNT] = write_snapshot(logs["n0"].root, COUNT, 4, b"a state")

    summary = local_audit(logs, says | {"n0": told(logs, "n0", held)})

    assert found(summary) == [("snapshot_ahead", "n0", COUNT)]
    assert f"end with entry {COUNT - 1}" in summary.first_findings[0].detail


def test_a_member_without_any_sound_snapshot_that_its_log_continues_is_told_so(
    logs: dict[str, Log], says: dict[str, Manifest]
) -> None:
    for index in KEPT["n0"]:
        path = logs["n0"].root / snapshot_file(index, SNAPSHOT_DATA)
        path.write_bytes(damaged(path.read_bytes(), "flipped", random.Random(index)))

    summary = local_audit(logs, says)

    assert sorted(found(summary)) == [
        ("bad_snapshot", "n0", 250), ("bad_snapshot", "n0", 300), ("bad_snapshot", "n0", 350),
        ("no_snapshot", "n0", 0),
    ]  # fmt: skip
    (lost,) = (each for each in summary.first_findings if each.check == "no_snapshot")
    assert lost.last_index == logs["n0"].first_index - 1
    assert "(n1, n2 can give it)" in lost.detail


def test_snapshots_that_are_replaced_while_they_are_read_are_no_fault(
    logs: dict[str, Log], says: dict[str, Manifest]
) -> None:
    later = told(logs, "n1", {k: saved(logs, "n1", k) for k in (370, 380, 390)})
    for index in (260, 300):
        remove_snapshot(logs["n1"].root, index)

    summary = local_audit(logs, says, later=[{}, {"n1": later}, {"n1": later}])

    assert summary.findings == 0


def test_a_rotten_snapshot_that_replaced_others_meanwhile_is_found(
    logs: dict[str, Log], says: dict[str, Manifest]
) -> None:
    later = told(logs, "n1", {k: saved(logs, "n1", k) for k in (370, 390)})
    for index in (260, 300):
        remove_snapshot(logs["n1"].root, index)
    (logs["n1"].root / snapshot_file(390, SNAPSHOT_DATA)).write_bytes(b"rot")

    summary = local_audit(logs, says, later=[{}, *({"n1": later} for _ in range(4))])

    assert found(summary) == [("bad_snapshot", "n1", 390)]


def test_a_member_whose_snapshots_are_always_gone_makes_the_audit_incomplete(
    logs: dict[str, Log], says: dict[str, Manifest]
) -> None:
    manifests = [{"n2": told(logs, "n2", {300 + k: saved(logs, "n2", 300 + k)})} for k in range(10)]
    for k in range(10):
        remove_snapshot(logs["n2"].root, 300 + k)
    remove_snapshot(logs["n2"].root, 390)

    summary = local_audit(logs, says | manifests[0], later=manifests)

    assert found(summary) == [("snapshot_unread", "n2", -1)]
    assert summary.verdict is Verdict.INCOMPLETE


def test_a_member_of_an_earlier_release_serves_no_snapshots_and_is_sound(
    logs: dict[str, Log], says: dict[str, Manifest]
) -> None:
    for index in KEPT["n2"]:
        remove_snapshot(logs["n2"].root, index)

    summary = local_audit(logs, says)

    assert found(summary) == [("snapshot_not_served", "n2", index) for index in KEPT["n2"]]
    assert summary.verdict is Verdict.SOUND


def test_the_snapshots_of_a_member_that_heals_are_not_judged(
    logs: dict[str, Log], says: dict[str, Manifest]
) -> None:
    (logs["n0"].root / snapshot_file(250, SNAPSHOT_DATA)).write_bytes(b"rot")
    heals = replace(says["n0"].status, storage=StorageState.HEALING)

    summary = local_audit(logs, says | {"n0": replace(says["n0"], status=heals)})

    assert [each.check for each in summary.first_findings] == ["not_counted"]


def test_the_snapshot_that_replaced_the_newest_one_is_read_in_its_place(
    logs: dict[str, Log], says: dict[str, Manifest]
) -> None:
    files = LocalFiles(logs["n1"].root, says["n1"])
    gone, later = (saved(logs, "n1", k) for k in (370, 380))
    remove_snapshot(logs["n1"].root, 370)

    followed = read_newest(files, Listed("n1", gone), lambda: later)
    not_followed = [read_newest(files, Listed("n1", gone), lambda held=held: held)
                    for held in (None, gone)]  # fmt: skip

    assert (followed.outcome, followed.listed.index) == (Outcome.WHOLE, 380)
    assert [(each.outcome, each.listed.index) for each in not_followed] == [(Outcome.GONE, 370)] * 2


class Silent:
    """Members that answer no request for a snapshot."""

    def __init__(self) -> None:
        self.asked: list[Listed] = []

    def snapshots(
        self, manifests: Mapping[str, Manifest], wanted: Sequence[Listed]
    ) -> list[SnapshotRead]:
        self.asked += wanted
        return [SnapshotRead(each, Outcome.UNREAD, "timed out") for each in wanted]


@pytest.mark.parametrize(("answers", "looks"), [(True, 2), (False, 1)])
def test_a_silent_member_is_asked_again_only_if_it_answers_otherwise(
    says: dict[str, Manifest], answers: bool, looks: int
) -> None:
    silent = Silent()

    gathered = gather(silent, {"n2": says["n2"]}, lambda: says if answers else {})

    assert [each.index for each in silent.asked if each.member == "n2"] == looks * [300, 390]
    named = [run.check for run in snapshots(gathered, ELECTORATE, Replayed())]
    assert set(named) == {"snapshot_unread"}


def judged(*held: tuple[str, int, bytes]) -> list[tuple[str, int]]:
    """Return the members and snapshots that differ, of (member, index, digest)."""
    reads = [
        SnapshotRead(
            Listed(
                member,
                HeldSnapshot(
                    last_included_index=index, last_included_term=1, data_bytes=1, data_crc32=0
                ),
            ),
            Outcome.WHOLE,
            digest=digest,
        )
        for member, index, digest in held
    ]
    found_runs = snapshots(Gathered({}, tuple(reads)), ELECTORATE, Replayed())
    runs = [run for run in found_runs if run.check == "snapshot_differs"]
    assert all(run.severity == CRITICAL for run in runs)
    return [(run.member, run.first_index) for run in runs]


def test_a_snapshot_that_differs_from_a_majority_is_named() -> None:
    assert judged(("n0", 7, b"a"), ("n1", 7, b"b"), ("n2", 7, b"a")) == [("n1", 7)]


def test_all_are_named_if_no_snapshot_has_a_majority() -> None:
    assert judged(("n0", 7, b"a"), ("n1", 7, b"b")) == [("n0", 7), ("n1", 7)]
    assert judged(("n0", 7, b"a"), ("l0", 7, b"b"), ("l1", 7, b"b")) == [
        ("n0", 7), ("l0", 7), ("l1", 7),
    ]  # fmt: skip


def test_snapshots_of_different_indexes_are_not_compared() -> None:
    assert judged(("n0", 7, b"a"), ("n1", 8, b"b"), ("n2", 9, b"c")) == []


def test_differing_states_are_a_divergence(logs: dict[str, Log], says: dict[str, Manifest]) -> None:
    held = {k: saved(logs, "n2", k) for k in KEPT["n2"]}
    other = register_after(ENTRIES, 290)
    assert other != register_after(ENTRIES, 300)
    held[300] = write_snapshot(logs["n2"].root, 300, ENTRIES[300].term, other)

    summary = local_audit(logs, says | {"n2": told(logs, "n2", held)})

    assert ("snapshot_differs", "n2", 300) in found(summary)
    assert summary.verdict is Verdict.DIVERGED
