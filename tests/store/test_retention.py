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


def test_what_is_older_than_the_reserved_hours_goes_at_the_hour_of_deletion() -> None:
    assert removed(sealed(100, 73, 71, 10)) == (2, False)


def test_at_another_hour_nothing_goes() -> None:
    assert removed(sealed(100, 73), local_hour=5) == (0, False)


def test_on_a_filling_volume_what_is_too_old_goes_at_any_hour() -> None:
    assert removed(sealed(100, 73, 71), local_hour=5, used_percent=71) == (2, False)


def test_on_a_volume_nearly_full_the_oldest_goes_at_any_age_one_at_a_time() -> None:
    assert removed(sealed(3, 2, 1), used_percent=86) == (1, False)


def test_a_young_segment_keeps_those_behind_it() -> None:
    assert removed(sealed(100, 10, 100)) == (1, False)


@pytest.mark.parametrize("used_percent", [50, 99])
def test_nothing_that_is_not_committed_goes_even_by_force(used_percent: int) -> None:
    segments = sealed(100, 100)

    assert removed(segments, used_percent=used_percent, committed_index=8) == (0, False)


@pytest.mark.parametrize("used_percent", [50, 99])
def test_a_log_begins_with_a_committed_entry(used_percent: int) -> None:
    segments = sealed(100, 100)

    assert removed(segments, used_percent=used_percent, committed_index=9) == (0, False)
    assert removed(segments, used_percent=used_percent, committed_index=10) == (1, False)


@pytest.mark.parametrize("used_percent", [50, 99])
def test_nothing_that_a_state_needs_goes_even_by_force(used_percent: int) -> None:
    assert removed(sealed(100, 100), used_percent=used_percent, covered_index=8) == (0, False)
    assert removed(sealed(100, 100), used_percent=used_percent, covered_index=9) == (1, False)


def test_nothing_that_a_voter_may_lack_goes() -> None:
    assert removed(sealed(100, 100, 100), held_by_all_index=10) == (1, False)
    assert removed(sealed(100, 100, 100), held_by_all_index=-1) == (0, False)


def test_by_force_what_a_voter_lacks_goes_too_and_that_is_told() -> None:
    assert removed(sealed(1, 1), used_percent=86, held_by_all_index=3) == (1, True)


def test_a_volume_is_not_cleaned_by_force_where_that_is_switched_off() -> None:
    policy = replace(POLICY, force_clean_percent=100)

    assert removed(sealed(1, 1), policy, used_percent=100) == (0, False)


def test_the_oldest_go_until_the_log_is_within_its_bytes() -> None:
    policy = replace(POLICY, reserved_s=None, bytes_max=350)

    assert removed(sealed(5, 4, 3, 2, 1), policy) == (3, False)
    assert removed(sealed(5, 4, 3, 2, 1), policy, held_by_all_index=19) == (2, False)


def test_a_round_removes_a_few() -> None:
    assert removed(sealed(*[100] * 9), committed_index=9999, held_by_all_index=9999) == (9, False)
    assert removed(sealed(*[100] * 50), committed_index=9999, held_by_all_index=9999) == (
        SEGMENTS_OF_A_ROUND,
        False,
    )


def test_without_a_limit_everything_is_kept() -> None:
    policy = replace(POLICY, reserved_s=None)

    assert policy.keeps_everything
    assert decide(policy, replace(SITUATION, used_percent=100), sealed(1000)) == Decision(
        segments=0
    )
