"""What an audit says that retention removes next is what the node's own decision removes."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dledger_audit import outlook_text
from dledger_audit.checks.next_removal import HeldBy, NextRemoval, Outlook, outlook, outlooks
from dledger_formats.http.retention import RemovalRule, RetentionPolicy, RetentionState
from dledger_formats.http.status import SegmentFile
from dledger_formats.log import disk
from dledger_logs.fronts import retention
from dledger_node.store.log.retention import (
    Decision,
    Policy,
    SealedSegment,
    Situation,
    decide,
)

HOUR_MS = 3_600_000
NOW_MS = 1_764_043_200_000 + 7 * 125
"""A time whose eighths of a second are exact as floating-point seconds, as all times here are."""
SEGMENT_BYTES = 100
ENTRIES = 10
"""Entries of a segment."""


def files(modified_ms: list[int], first_index: int = 0) -> list[SegmentFile]:
    """Return data files, the last of them not sealed."""
    return [
        SegmentFile(
            name=disk.file_name(number * SEGMENT_BYTES),
            size_bytes=SEGMENT_BYTES,
            readable_bytes=SEGMENT_BYTES,
            first_index=first_index + number * ENTRIES,
            modified_ms=modified,
        )
        for number, modified in enumerate([*modified_ms, NOW_MS])
    ]


def decided(state: RetentionState, data: list[SegmentFile]) -> Decision:
    """Return the node's decision in the situation that a manifest tells."""
    policy = state.policy
    local_ms = state.now_ms + state.utc_offset_s * 1000
    return decide(
        Policy(
            reserved_s=None if policy.reserved_ms is None else policy.reserved_ms / 1000,
            delete_hours=tuple(policy.delete_hours),
            check_expired_percent=policy.check_expired_percent,
            force_clean_percent=policy.force_clean_percent,
            bytes_max=policy.bytes_max,
        ),
        Situation(
            now_s=state.now_ms / 1000,
            local_hour=local_ms // HOUR_MS % 24,
            used_percent=state.used_percent,
            total_bytes=state.log_bytes,
            committed_index=state.committed_index,
            covered_index=1 << 62 if state.covered_index is None else state.covered_index,
            held_by_all_index=state.held_by_all_index,
        ),
        [
            SealedSegment(
                last_index=following.first_index - 1,
                size_bytes=file.size_bytes,
                modified_s=file.modified_ms / 1000,
            )
            for file, following in itertools.pairwise(data)
        ],
    )


def situations(count: int, seed: int) -> Iterator[tuple[RetentionState, list[SegmentFile]]]:
    """Yield random situations, in which every limit is often just met and just missed."""
    rng = random.Random(seed)
    for _ in range(count):
        sealed, first_index = rng.randint(0, 14), rng.choice([0, 1, 1000])
        reserved_ms = rng.choice([None, 1000, HOUR_MS, 72 * HOUR_MS])
        edge = reserved_ms or HOUR_MS
        oldest = rng.randint(-1, sealed)
        ages = [
            edge + rng.choice([-edge, -125, 0, 125]) if number > oldest else edge + 125
            for number in range(sealed)
        ]
        total = SEGMENT_BYTES * sealed + rng.randint(0, SEGMENT_BYTES)
        last = first_index + sealed * ENTRIES

        def index(last: int = last, first: int = first_index) -> int:
            near = first - 1 + ENTRIES * rng.randint(0, 15) + rng.randint(-1, 1)
            return rng.choice([last + 100, last + 100, min(near, last + 100), -1])

        now_ms = NOW_MS + 125 * rng.randint(0, 24 * 3600 * 8)
        policy = RetentionPolicy(
            reserved_ms=reserved_ms,
            delete_hours=sorted(rng.sample(range(24), rng.choice([1, 3, 12, 24]))),
            check_expired_percent=rng.choice([0, 69, 70, 71]),
            force_clean_percent=rng.choice([71, 85, 85, 100]),
            bytes_max=rng.choice([None, total, total - 1, max(1, total - 350), 1]),
        )
        state = retention(
            policy=policy,
            now_ms=now_ms,
            utc_offset_s=rng.choice([0, 0, 3600, -34200, 20700]),
            used_percent=rng.choice([10, 70, 71, 72, 85, 86]),
            log_bytes=total,
            committed_index=max(index(), first_index - 1),
            covered_index=rng.choice([None, index()]),
            held_by_all_index=index(),
        )
        yield state, files([now_ms - age for age in ages], first_index)


def test_the_next_round_is_the_nodes_decision_in_ten_thousand_situations() -> None:
    seen: Counter[object] = Counter()
    for state, data in situations(10_000, seed=17):
        expected = decided(state, data)

        found = outlook("n0", state, data, {})

        told = found.next_round
        assert (told.segments, told.rule, told.is_forced) == (
            expected.segments,
            expected.rule,
            expected.forced,
        ), (state, data)
        seen.update([told.rule, min(told.segments, 3), ("forced", told.is_forced)])
        seen.update(held for each in found.segments for held in each.held_by if each.is_due)
    kinds = {
        rule for rule in RemovalRule if rule.value in ("Size", "Age", "FillingVolume", "Force")
    }
    wanted = kinds | set(HeldBy) | {None, 1, 2, 3, ("forced", True)}
    assert min(seen[kind] for kind in wanted) >= 100, seen


def alone(planned: NextRemoval, data: list[SegmentFile]) -> list[SegmentFile]:
    """Return the files from this segment on, as if all before it had gone."""
    at = next(number for number, file in enumerate(data) if file.name == planned.segment)
    return data[at:]


def test_a_segment_is_due_by_its_age_from_just_the_moment_that_is_told() -> None:
    """The node removes it then, and not an eighth of a second earlier."""
    checked = Counter[RemovalRule | None]()
    for state, data in situations(3_000, seed=18):
        by_age = replace(
            state,
            policy=replace(state.policy, bytes_max=None, force_clean_percent=100),
            committed_index=1 << 40,
            covered_index=None,
            held_by_all_index=1 << 40,
        )
        for planned in outlook("n0", by_age, data, {}).segments:
            rest = alone(planned, data)
            if planned.due_at_ms is None:
                assert by_age.policy.reserved_ms is None
                continue
            then = decided(replace(by_age, now_ms=planned.due_at_ms), rest)
            assert then.segments >= 1
            assert then.rule is planned.rule
            if planned.due_at_ms > by_age.now_ms:
                before = decided(replace(by_age, now_ms=planned.due_at_ms - 125), rest)
                assert before.segments == 0
            checked[planned.rule] += 1
    assert min(checked[rule] for rule in (RemovalRule.AGE, RemovalRule.FILLING_VOLUME)) > 500


def test_a_segment_is_due_by_its_size_after_just_the_growth_that_is_told() -> None:
    grown = 0
    for state, data in situations(3_000, seed=19):
        by_size = replace(
            state,
            policy=replace(state.policy, reserved_ms=None, force_clean_percent=100),
            committed_index=1 << 40,
            covered_index=None,
            held_by_all_index=1 << 40,
        )
        for number, planned in enumerate(outlook("n0", by_size, data, {}).segments):
            if planned.due_after_bytes is None:
                assert planned.rule is None
                continue
            log_bytes = by_size.log_bytes - SEGMENT_BYTES * number + planned.due_after_bytes
            rest = alone(planned, data)
            assert decided(replace(by_size, log_bytes=log_bytes), rest).rule is RemovalRule.SIZE
            if planned.due_after_bytes:
                fewer = replace(by_size, log_bytes=log_bytes - 1)
                assert decided(fewer, rest).segments == 0
                grown += 1
    assert grown > 500


POLICY = RetentionPolicy(
    reserved_ms=HOUR_MS,
    delete_hours=[4],
    check_expired_percent=70,
    force_clean_percent=85,
    bytes_max=350,
)


def shown(state: RetentionState, durable: dict[str, int], sealed: int = 3) -> list[str]:
    data = files([NOW_MS - HOUR_MS * (10 - number) for number in range(sealed)])
    return list(outlook_text.lines([outlook("n0", state, data, durable)]))


def test_the_report_names_what_goes_now_and_what_holds_the_others_back() -> None:
    state = retention(
        policy=POLICY,
        now_ms=NOW_MS,
        utc_offset_s=3600,
        log_bytes=460,
        covered_index=15,
        held_by_all_index=12,
    )

    later = (
        "due by rule Age on 2025-11-26 03:00:00 UTC, or due by rule Size when the log has grown by "
        "91 bytes"
    )

    held = "held back: the state still needs it, n1 holds entries up to 12, n2 was not read"
    assert shown(state, {"n0": 99, "n1": 12, "n2": -1}) == [
        "Next removals",
        "n0: removes 1 segment now, to entry 9, by rule Size",
        "  segment 00000000000000000000, entries 0-9: due by rule Size",
        f"  segment 00000000000000000100, entries 10-19: due by rule Size; {held}",
        f"  segment 00000000000000000200, entries 20-29: {later}; {held}",
    ]


def test_the_report_says_that_force_overrides_a_voter() -> None:
    state = retention(policy=POLICY, now_ms=NOW_MS, used_percent=86, held_by_all_index=-1)

    lines = shown(state, {"n1": 3})

    assert lines[1] == (
        "n0: removes 1 segment now, to entry 9, by rule Force, although a voter may lack its "
        "entries"
    )
    assert "held back" not in lines[2]


def test_the_report_sums_up_many_segments() -> None:
    lines = shown(
        retention(policy=POLICY, now_ms=NOW_MS, utc_offset_s=3600, log_bytes=100), {}, sealed=40
    )

    assert lines[1] == "n0: removes nothing now"
    assert lines[-1] == "  and 35 more sealed segments, to entry 399"
    assert len(lines) == 2 + 5 + 1


@pytest.mark.parametrize("used_percent", [10, 99])
def test_a_group_without_retention_has_no_such_part_in_its_report(used_percent: int) -> None:
    assert shown(retention(used_percent=used_percent), {}) == []


def test_a_member_that_does_not_tell_its_retention_is_left_out() -> None:
    assert outlooks({}, {"n0"}) == []


def test_an_unknown_time_of_a_file_is_no_time_to_remove_it() -> None:
    state = retention(policy=replace(POLICY, bytes_max=None), now_ms=NOW_MS)
    data = [replace(file, modified_ms=-1) for file in files([0, 0])]

    found: Outlook = outlook("n0", state, data, {})

    assert [(each.rule, each.is_due) for each in found.segments] == [(None, False)] * 2
