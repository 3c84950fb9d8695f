"""Brokers whose topics and groups come and go, with returned messages and name servers."""

import pytest

from dledger_sim.broker.bodies import Bodies
from dledger_sim.judges.broker_log import BrokerLog
from dledger_sim.judges.broker_rules import BrokerRules, OffsetKey
from dledger_sim.judges.violation import ViolationError
from dledger_sim.mutants import hunt as mutants
from dledger_sim.runs.campaign import Task, Totals, run_task

EVENT_COUNT = 1500
FAST_SEED_COUNT = 25
SEED_COUNT = 150
HUNTED_SEEDS = 1000
QUICK = (
    "every_member_registers_as_the_master",
    "offsets_of_a_deleted_topic_stay",
    "dead_letter_is_delivered_again",
)
PLANTED = tuple(mutant.name for mutant in mutants.load() if mutant.family == "administered")
KEY = OffsetKey("group0", "projects", 0)


class Clock:
    """The time of a run."""

    now_us = 0


def totals_of(seeds: range) -> Totals:
    task = Task(seeds=seeds, event_count=EVENT_COUNT, covered=False, family="administered")
    totals = run_task(task)
    assert not totals.failures
    return totals


def rules() -> BrokerRules:
    """Return the judge of an empty log."""
    return BrokerRules(BrokerLog(Bodies()), Clock())


def test_a_few_administered_groups_break_no_rule() -> None:
    totals = totals_of(range(FAST_SEED_COUNT))

    counts = totals.broker_counts
    assert totals.leader_count > FAST_SEED_COUNT, "runs without failovers prove nothing"
    assert counts["deletions_acknowledged"] > FAST_SEED_COUNT
    assert counts["returns_acknowledged"] > 10
    assert counts["registrations"] > 10 * FAST_SEED_COUNT


@pytest.mark.parametrize("name", QUICK)
def test_a_few_seeds_find_a_bug_of_administered_brokers(name: str) -> None:
    found = mutants.hunt_apart(name, HUNTED_SEEDS)

    assert found.seed is not None, f"no seed of {found.seeds_tried} found the bug"


@pytest.mark.simulation
@pytest.mark.sampled(1)
@pytest.mark.parametrize("chunk", range(2))
def test_no_administered_group_breaks_a_rule(chunk: int) -> None:
    first_seed = FAST_SEED_COUNT + chunk * SEED_COUNT
    totals_of(range(first_seed, first_seed + SEED_COUNT))


@pytest.mark.simulation
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PLANTED)
def test_seeds_find_a_bug_of_administered_brokers(name: str) -> None:
    found = mutants.hunt_apart(name, HUNTED_SEEDS)

    assert found.seed is not None, f"no seed of {found.seeds_tried} found the bug"


def test_an_offset_of_a_deleted_topic_must_not_be_told_again() -> None:
    judge = rules()
    judge.commit_ends(KEY, judge.commit_begins(KEY), acknowledged=True)
    judge.deletion_ends("projects", judge.deletion_begins("projects"), is_last=True)

    judge.queried(KEY, None, judge.query_begins(KEY))
    judge.judge_offset(KEY, None)
    with pytest.raises(ViolationError, match="are gone"):
        judge.queried(KEY, 0, judge.query_begins(KEY))
    with pytest.raises(ViolationError, match="survives"):
        judge.judge_offset(KEY, 0)


def test_an_offset_that_was_committed_after_a_deletion_survives() -> None:
    judge = rules()
    judge.commit_ends(KEY, judge.commit_begins(KEY), acknowledged=True)
    judge.deletion_ends("projects", judge.deletion_begins("projects"), is_last=True)
    judge.commit_ends(KEY, judge.commit_begins(KEY), acknowledged=True)

    judge.judge_offset(KEY, 1)
    with pytest.raises(ViolationError, match="survives"):
        judge.judge_offset(KEY, None)


def test_a_deletion_without_an_answer_may_have_its_effect_at_any_time() -> None:
    judge = rules()
    judge.deletion_begins("projects")
    judge.commit_ends(KEY, judge.commit_begins(KEY), acknowledged=True)

    judge.judge_offset(KEY, None)
    judge.judge_offset(KEY, 0)


def test_a_return_that_is_acknowledged_must_be_committed() -> None:
    with pytest.raises(ViolationError, match="return is committed"):
        rules().returned(b"message 0 returned 1", "%DLQ%returners")
