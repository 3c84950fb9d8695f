"""Strikes that set up one specific situation: their seeds, and that they reach it."""

import random
from collections.abc import Callable
from itertools import count

import pytest

from dledger_node.raft import entry_handler
from dledger_node.raft.member_state import Follower, MemberState
from dledger_node.raft.messages import CompareRequest
from dledger_sim.faults import strikes
from dledger_sim.faults.nemesis import ANYWHERE, FAULTS
from dledger_sim.group.conditions import Conditions
from dledger_sim.runs.seeds import conditions_of, is_sharp, keeps_state
from dledger_sim.runs.simulation import simulate
from dledger_sim.runs.transcript import Transcript

EVENT_COUNT = 1500
LIVES = range(8)
DRAWS = (strikes.drawn, strikes.drawn_with_state)


def conditions_for(strike: str, number: int) -> Conditions:
    """Draw conditions that allow only this strike."""
    draw = DRAWS[strike == "short_absence"]
    tries = (draw(random.Random(f"{strike} {number} {attempt}")) for attempt in count())
    return next(drawn for drawn in tries if drawn.faults == (strike,))


def lines_of_lives(strike: str) -> list[str]:
    """Return the transcripts of some runs, none of which breaks a rule."""
    lines: list[str] = []
    for number in LIVES:
        transcript = Transcript(lines_max=100_000)
        simulate(number, EVENT_COUNT, transcript, conditions=conditions_for(strike, number))
        lines += transcript.lines
    return lines


# -- seeds -----------------------------------------------------------------------------------------


def test_one_seed_of_twenty_five_has_such_a_strike() -> None:
    seeds = range(8000)
    with_state = [is_sharp(seed) for seed in seeds if keeps_state(seed)]

    assert 0.035 < sum(map(is_sharp, seeds)) / len(seeds) < 0.05
    assert 0.04 < sum(with_state) / len(with_state) < 0.08


@pytest.mark.parametrize("draw", DRAWS)
def test_conditions_allow_one_strike_and_no_other_fault(
    draw: Callable[[random.Random], Conditions],
) -> None:
    for number in range(50):
        drawn = draw(random.Random(number))
        assert len(drawn.faults) == 1
        assert drawn.faults[0] in strikes.STRIKES
        assert drawn.loss == drawn.crash_in_ready == drawn.flush_failure == drawn.ambush == 0.0


def test_every_strike_has_seeds_of_its_own() -> None:
    seeds = [seed for seed in range(3000) if is_sharp(seed)]
    drawn = [conditions_of(seed, random.Random(seed)) for seed in seeds]

    assert {strike for one in drawn for strike in one.faults} == strikes.STRIKES.keys()
    assert [bool(one.snapshot_entries) for one in drawn] == list(map(keeps_state, seeds))
    assert strikes.STRIKES.keys() <= FAULTS.keys()
    assert not strikes.STRIKES.keys() & set(ANYWHERE), "the draws of all other seeds would change"


# -- situations -----------------------------------------------------------------------------------


def test_a_leader_asks_about_entries_that_its_follower_has_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle, removed = entry_handler.handle_compare, []

    def counting(member: MemberState, follower: Follower, request: CompareRequest) -> None:
        if request.index < member.log.begin_index:
            removed.append(request)
        handle(member, follower, request)

    monkeypatch.setattr(entry_handler, "handle_compare", counting)
    lines_of_lives("unheard_removal")

    assert len(removed) >= len(LIVES)


def test_a_log_starts_over_after_a_short_absence() -> None:
    counts = [
        simulate(number, EVENT_COUNT, conditions=conditions_for("short_absence", number))
        .state_counts["logs_begun_anew"]
        for number in LIVES
    ]  # fmt: skip

    assert sum(counts) >= len(LIVES)


def test_a_voter_refuses_the_second_candidate_of_a_term() -> None:
    lines = lines_of_lives("lost_vote")

    assert sum("its disk is rolled back" in line for line in lines) >= len(LIVES)
    assert sum("REJECT_ALREADY_VOTED" in line for line in lines) >= len(LIVES) // 2


def test_a_member_that_crashes_while_recalling_joins_after_it_recalls_again() -> None:
    lines = lines_of_lives("term_told_first")

    assert sum("its disk is rolled back" in line for line in lines) >= len(LIVES)
    assert sum("crashes  " in line for line in lines) >= len(LIVES)
    assert any(line.endswith("joins") and "mark Mark" in line for line in lines)


def test_a_rolled_back_leader_learns_what_it_had_committed() -> None:
    lines = lines_of_lives("leader_goes_back")

    assert sum("its disk is rolled back" in line for line in lines) >= len(LIVES)
    assert any(line.endswith("joins") and "mark Mark" in line for line in lines)
