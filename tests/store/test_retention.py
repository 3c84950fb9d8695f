from dataclasses import replace

import pytest

from dledger_node.store.log.retention import (
    SEGMENTS_OF_A_ROUND,
    Decision,
    Policy,
    SealedSegment,
    Situation,
    decide,
)

HOUR_S = 3600.0
NOW_S = 1_000_000.0
POLICY = Policy(
    reserved_s=72 * HOUR_S,
    delete_hours=(4,),
    check_expired_percent=70,
    force_clean_percent=85,
    bytes_max=None,
)
SITUATION = Situation(
    now_s=NOW_S,
    local_hour=4,
    used_percent=50,
    total_bytes=600,
    committed_index=99,
    covered_index=1 << 62,
    held_by_all_index=99,
)


def sealed(*ages_hours: float) -> list[SealedSegment]:
    """Segments of ten entries and 100 bytes each, the oldest first."""
    return [
        SealedSegment(last_index=number * 10 + 9, size_bytes=100, modified_s=NOW_S - age * HOUR_S)
        for number, age in enumerate(ages_hours)
    ]


def removed(
    segments: list[SealedSegment], policy: Policy = POLICY, **situation: int
) -> tuple[int, bool]:
    decision = decide(policy, replace(SITUATION, **situation), segments)
    assert bool(decision.reason) == bool(decision.segments)
    return decision.segments, decision.forced


def test_expired_segments_are_removed_at_the_hour_of_deletion() -> None:
    assert removed(sealed(100, 73, 71, 10)) == (2, False)


def test_no_segment_is_removed_at_another_hour() -> None:
    assert removed(sealed(100, 73), local_hour=5) == (0, False)


def test_expired_segments_are_removed_at_any_hour_on_a_filling_volume() -> None:
    assert removed(sealed(100, 73, 71), local_hour=5, used_percent=71) == (2, False)


def test_one_segment_of_any_age_is_removed_per_round_on_a_nearly_full_volume() -> None:
    assert removed(sealed(3, 2, 1), used_percent=86) == (1, False)


def test_a_young_segment_keeps_all_later_ones() -> None:
    assert removed(sealed(100, 10, 100)) == (1, False)


@pytest.mark.parametrize("used_percent", [50, 99])
def test_uncommitted_entries_are_never_removed(used_percent: int) -> None:
    segments = sealed(100, 100)

    assert removed(segments, used_percent=used_percent, committed_index=8) == (0, False)


@pytest.mark.parametrize("used_percent", [50, 99])
def test_a_log_begins_with_a_committed_entry(used_percent: int) -> None:
    segments = sealed(100, 100)

    assert removed(segments, used_percent=used_percent, committed_index=9) == (0, False)
    assert removed(segments, used_percent=used_percent, committed_index=10) == (1, False)


@pytest.mark.parametrize("used_percent", [50, 99])
def test_entries_that_the_state_needs_are_never_removed(used_percent: int) -> None:
    assert removed(sealed(100, 100), used_percent=used_percent, covered_index=8) == (0, False)
    assert removed(sealed(100, 100), used_percent=used_percent, covered_index=9) == (1, False)


def test_entries_that_a_voter_may_lack_are_kept() -> None:
    assert removed(sealed(100, 100, 100), held_by_all_index=10) == (1, False)
    assert removed(sealed(100, 100, 100), held_by_all_index=-1) == (0, False)


def test_a_forced_removal_of_entries_that_a_voter_lacks_is_reported() -> None:
    assert removed(sealed(1, 1), used_percent=86, held_by_all_index=3) == (1, True)


def test_no_removal_is_forced_at_a_limit_of_100_percent() -> None:
    policy = replace(POLICY, force_clean_percent=100)

    assert removed(sealed(1, 1), policy, used_percent=100) == (0, False)


def test_the_oldest_segments_are_removed_until_the_log_fits_its_limit() -> None:
    policy = replace(POLICY, reserved_s=None, bytes_max=350)

    assert removed(sealed(5, 4, 3, 2, 1), policy) == (3, False)
    assert removed(sealed(5, 4, 3, 2, 1), policy, held_by_all_index=19) == (2, False)


def test_a_round_removes_a_bounded_number_of_segments() -> None:
    assert removed(sealed(*[100] * 9), committed_index=9999, held_by_all_index=9999) == (9, False)
    assert removed(sealed(*[100] * 50), committed_index=9999, held_by_all_index=9999) == (
        SEGMENTS_OF_A_ROUND,
        False,
    )


def test_everything_is_kept_without_a_limit() -> None:
    policy = replace(POLICY, reserved_s=None)

    assert policy.keeps_everything
    assert decide(policy, replace(SITUATION, used_percent=100), sealed(1000)) == Decision(
        segments=0
    )
