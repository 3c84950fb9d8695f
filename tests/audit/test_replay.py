"""Snapshots are what the log leads to: a state and the entries after it give the next state."""

import random
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_audit.checks.electorate import Electorate, Held
from dledger_audit.checks.replayed import wrong_snapshots
from dledger_audit.snapshots import replay
from dledger_audit.snapshots.reading import Listed
from dledger_audit.snapshots.registers import Register
from dledger_audit.snapshots.replay import Chain, Replayed, Version
from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.http.retention import HeldSnapshot
from dledger_formats.http.status import Manifest
from dledger_logs import damage
from dledger_logs.fronts import by_rule, with_retention
from dledger_logs.histories import register_history, small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.state import PAIR, register_after, with_snapshots, write_snapshot
from dledger_logs.write import Entry, write_log
from dledger_node.state_machine.machine import CommittedEntry
from dledger_node.state_machine.register import Register as NodeRegister
from dledger_scan.local_audit import local_audit

COUNT = 400
ENTRIES = register_history(COUNT)
HEAD_BYTES = 16


class Group:
    """Members with logs and snapshots on the disk."""

    def __init__(
        self, folder: Path, kept: Mapping[str, Sequence[int]], fronts: Mapping[str, int],
        entries: Sequence[Entry] = ENTRIES,
    ) -> None:  # fmt: skip
        """`kept` are the snapshots of each member; `fronts` how many segments it has removed."""
        self.entries = entries
        self.logs = dict[str, Log]()
        self.held = dict[str, dict[int, HeldSnapshot]]()
        for name, indexes in kept.items():
            log = write_log(folder / name, entries, small_shape())
            self.logs[name] = damage.remove_front(log, fronts.get(name, 0))
            self.held[name] = {}
            for index in indexes:
                self.save(name, index, register_after(entries, index))

    def save(self, name: str, index: int, data: bytes) -> None:
        """Write a snapshot under right checksums."""
        term = self.entries[index].term
        self.held[name][index] = write_snapshot(self.logs[name].root, index, term, data)

    def manifests(self) -> dict[str, Manifest]:
        """Return what the members tell."""
        said = {}
        for name, log in self.logs.items():
            begin, held = log.first_index, self.held[name]
            covered = max(begin, *held) if held else begin
            removed = [by_rule(0, begin - 1, covered_index=covered)] if begin else []
            served = with_retention(manifest(log, name, peers=self.logs), *removed)
            said[name] = with_snapshots(served, *held.values())
        return said

    def audited(self) -> AuditSummary:
        """Audit the group."""
        return local_audit(self.logs, self.manifests())


KEPT = {"n0": (250, 310, 350), "n1": (260, 310, 370), "n2": (320, 390)}
WHOLE: dict[str, int] = {}
REMOVED = {"n0": 2, "n1": 3, "n2": 2}


def found(summary: AuditSummary) -> list[tuple[str, str, int]]:
    return [(each.check, each.member, each.first_index) for each in summary.first_findings]


def changed(data: bytes, kind: str, rng: random.Random) -> bytes:
    """Return another register, under a right header."""
    at = range(HEAD_BYTES, len(data), PAIR.size)
    pairs = [data[start : start + PAIR.size] for start in at]
    k = rng.randrange(len(pairs))
    match kind:
        case "value":
            pairs[k] = pairs[k][:4] + bytes([pairs[k][4] ^ 1]) + pairs[k][5:]
        case "lost":
            del pairs[k]
        case "added":
            pairs.insert(k, PAIR.pack(1 << 20, 7))
        case "swapped":
            other = (k + 1) % len(pairs)
            pairs[k], pairs[other] = pairs[other], pairs[k]
        case "doubled":
            pairs.append(pairs[k])
        case _:
            pairs = []
    return data[:12] + len(pairs).to_bytes(4, "little") + b"".join(pairs)


KINDS = ("value", "lost", "added", "swapped", "doubled", "empty")


@pytest.mark.parametrize("fronts", [WHOLE, REMOVED], ids=["whole", "removed"])
def test_snapshots_that_the_log_leads_to_are_sound(tmp_path: Path, fronts: dict[str, int]) -> None:
    summary = Group(tmp_path, KEPT, fronts).audited()

    assert summary.verdict is Verdict.SOUND, summary
    assert summary.findings == 0


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_state_under_right_checksums_is_named(tmp_path: Path, kind: str, seed: int) -> None:
    """The log has its first entry, so it decides."""
    rng = random.Random(f"{kind} {seed}")
    group = Group(tmp_path, KEPT, {"n0": 2})
    name = rng.choice(list(KEPT))
    index = rng.choice([each for each in KEPT[name] if each != 310])
    group.save(name, index, changed(register_after(ENTRIES, index), kind, rng))

    summary = group.audited()

    assert found(summary) == [("wrong_snapshot", name, index)]
    assert summary.verdict is Verdict.DAMAGED
    assert f"snapshot_{index}: the log from entry 0" in summary.first_findings[0].detail


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_state_is_named_when_the_front_of_the_log_is_gone(
    tmp_path: Path, kind: str, seed: int
) -> None:
    """Snapshots of a majority of the voters decide, if later entries do not hide the fault."""
    rng = random.Random(f"{kind} {seed}")
    group = Group(tmp_path, KEPT, REMOVED)
    name, index = rng.choice([("n0", 350), ("n1", 370), ("n2", 320), ("n2", 390)])
    group.save(name, index, changed(register_after(ENTRIES, index), kind, rng))

    assert found(group.audited()) == [("wrong_snapshot", name, index)]


def test_a_wrong_oldest_snapshot_is_named_if_the_later_ones_contradict_it(tmp_path: Path) -> None:
    group = Group(tmp_path, KEPT, REMOVED)
    data = register_after(ENTRIES, 250)
    group.save("n0", 250, changed(data, "added", random.Random(1)))

    assert found(group.audited()) == [("wrong_snapshot", "n0", 250)]


def test_a_state_that_lags_behind_its_index_is_named(tmp_path: Path) -> None:
    group = Group(tmp_path, KEPT, WHOLE)
    group.save("n1", 370, register_after(ENTRIES, 365))

    assert found(group.audited()) == [("wrong_snapshot", "n1", 370)]


def test_of_two_states_at_one_index_only_the_wrong_one_is_named(tmp_path: Path) -> None:
    group = Group(tmp_path, {"n0": (310,), "n1": (310,), "n2": ()}, WHOLE)
    group.save("n1", 310, register_after(ENTRIES, 250))

    assert sorted(found(group.audited())) == [
        ("snapshot_differs", "n1", 310), ("wrong_snapshot", "n1", 310),
    ]  # fmt: skip


def test_another_kind_of_state_than_the_others_is_named(tmp_path: Path) -> None:
    group = Group(tmp_path, KEPT, WHOLE)
    group.save("n2", 390, b"no register")

    assert found(group.audited()) == [("wrong_snapshot", "n2", 390)]


def test_the_report_says_that_the_states_of_an_unknown_machine_are_not_replayed(
    tmp_path: Path,
) -> None:
    group = Group(tmp_path, KEPT, WHOLE)
    for name, indexes in KEPT.items():
        for index in indexes:
            group.save(name, index, b"a state of its own %d" % index)

    summary = group.audited()

    assert found(summary) == [("state_not_replayed", "", -1)]
    assert "(this state machine is not replayed)" in summary.first_findings[0].detail
    assert summary.verdict is Verdict.SOUND


def test_nothing_is_judged_across_entries_that_no_member_has_intact(tmp_path: Path) -> None:
    group = Group(tmp_path, KEPT, WHOLE)
    for log in group.logs.values():
        damage.flip_body(log, 340)
    group.save("n1", 370, changed(register_after(ENTRIES, 370), "value", random.Random(1)))

    wrong = [each for each in found(group.audited()) if each[0] == "wrong_snapshot"]

    assert wrong == [("wrong_snapshot", "n1", 370)], "n0 and n2 agree after the entry"


@pytest.mark.parametrize("seed", range(60))
def test_random_sound_groups_have_no_finding(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    entries = register_history(rng.randint(150, 500), seed=seed, keys=rng.choice([1, 5, 500]))
    kept, fronts = {}, {}
    for k in range(rng.choice([1, 3, 3, 5])):
        fronts[f"n{k}"] = rng.choice([0, 1, 2])
        kept[f"n{k}"] = sorted(rng.sample(range(120, len(entries)), rng.randint(0, 4)))
    group = Group(tmp_path, kept, fronts, entries)
    for name, log in group.logs.items():
        group.held[name] = {
            k: held for k, held in group.held[name].items() if k >= log.first_index - 1
        }
        if log.first_index and not group.held[name]:
            group.save(name, len(entries) - 1, register_after(entries, len(entries) - 1))

    summary = group.audited()

    assert summary.findings == 0, summary


def test_a_state_that_is_too_large_to_be_replayed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(tmp_path, KEPT, WHOLE)
    monkeypatch.setattr(replay, "STATE_BYTES_MAX", 100)
    by_size = group.audited()
    monkeypatch.undo()
    monkeypatch.setattr(replay, "CHANGES_MAX", 10)
    by_changes = group.audited()

    for summary in (by_size, by_changes):
        assert found(summary) == [("state_not_replayed", "", -1)]
        assert summary.verdict is Verdict.SOUND


def test_a_replay_ends_after_so_many_keys_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    after = Register.after

    def counted(self: Register, *changes: Any) -> Register:
        computed.append(len(self.keys))
        return after(self, *changes)

    monkeypatch.setattr(Register, "after", counted)
    group = Group(tmp_path, KEPT, WHOLE)
    whole = group.audited()
    all_states = computed.copy()
    computed.clear()
    monkeypatch.setattr(replay, "ROLLED_KEYS_MAX", 60)
    part = group.audited()

    assert whole.findings == 0
    assert found(part) == [("state_not_replayed", "", -1)]
    assert part.verdict is Verdict.SOUND
    assert 0 < len(computed) < len(all_states)
    assert sum(computed) <= 60


PAIRS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-9, 9)), max_size=30)


@given(before=PAIRS, later=PAIRS)
def test_a_register_by_columns_is_that_of_the_members(
    before: list[tuple[int, int]], later: list[tuple[int, int]]
) -> None:
    node = NodeRegister()
    node.apply([CommittedEntry(k, PAIR.pack(*pair)) for k, pair in enumerate(before)])
    base = Register.of(b"".join(node.dump()))
    node.apply([CommittedEntry(k, PAIR.pack(*pair)) for k, pair in enumerate(later)])
    first: dict[int, int] = {}
    for k, (key, _) in enumerate(later):
        first.setdefault(key, k)
    values = dict(later)

    after = base.after(
        np.array(list(values), np.int32),
        np.array([first[key] for key in values], np.int64),
        np.array(list(values.values()), np.int32),
    )

    assert after.dump() == b"".join(node.dump())
    NodeRegister().load(BytesIO(after.dump()))


def judged(*chains: Chain, voters: str = "n0 n1 n2") -> dict[tuple[str, int], str]:
    members = frozenset(voters.split())
    held = {member: Held(first=0, last=9) for member in members}
    electorate = Electorate(voters=members, counted=members, held=held, cuts=())
    return {
        (run.member, run.first_index): run.reason
        for run in wrong_snapshots(Replayed(chains), electorate)
    }


def version(index: int, *members: str, digest: bytes = b"right") -> Version:
    held: Any = {"last_included_term": 1, "data_bytes": 1, "data_crc32": 0}
    listed = HeldSnapshot(last_included_index=index, **held)
    return Version(index, digest, tuple(Listed(member, listed) for member in members))


ONE, TWO, THREE = version(1, "n0"), version(2, "n1"), version(3, "n2")
LAST = version(4, "n0", "n1", "n2")


def test_the_members_that_agree_name_the_one_that_does_not() -> None:
    assert judged(Chain(ONE, (TWO,), (THREE,))).keys() == {("n2", 3)}


def test_a_base_that_a_majority_contradicts_is_named() -> None:
    assert judged(Chain(ONE, (), (TWO, THREE)), Chain(TWO, (THREE,), ())).keys() == {("n0", 1)}


def test_without_a_majority_the_finding_says_that_one_of_two_is_wrong() -> None:
    (reason,) = judged(Chain(ONE, (), (TWO,)), Chain(TWO, (), ())).values()

    assert "snapshot_1 of n0" in reason
    assert reason.endswith("one of the two is wrong")


def test_chains_that_meet_again_are_judged_by_what_is_before() -> None:
    meeting = Chain(ONE, (TWO, LAST), (THREE,)), Chain(THREE, (LAST,), ())

    assert judged(*meeting).keys() == {("n2", 3)}


def test_the_empty_state_decides_against_any_majority() -> None:
    wrong = Chain(None, (), (ONE, TWO, THREE)), Chain(ONE, (TWO, THREE), ())

    assert judged(*wrong).keys() == {("n0", 1), ("n1", 2), ("n2", 3)}
