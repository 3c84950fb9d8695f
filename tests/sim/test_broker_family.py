"""Groups of brokers under faults: what clients are told is in the log, and stays there.

In the family `administered`, topics and groups come and go as well, with returned messages and name
servers.
"""

from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_record

from dledger_formats.log import disk
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.rocketmq import message_record
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.topic_names import SCHEDULE_TOPIC
from dledger_sim.broker.bodies import Bodies
from dledger_sim.group.conditions import SKEW_MS_MAX
from dledger_sim.group.disk import Entry
from dledger_sim.judges.broker_log import BrokerLog, Place
from dledger_sim.judges.broker_rules import BrokerRules, OffsetKey
from dledger_sim.judges.violation import ViolationError
from dledger_sim.mutants import hunt as mutants
from dledger_sim.mutants.found_by_tests import is_found_by_tests
from dledger_sim.mutants.hunt import Mutant
from dledger_sim.runs.campaign import Task, Totals, run_task
from dledger_sim.runs.simulation import record, replay, simulate
from dledger_sim.runs.transcript import Transcript

EVENT_COUNT = 1500
FAST_SEED_COUNT = 25
SEED_COUNT = 150
HUNTED_SEEDS = 1000
QUICK = (
    "send_is_answered_before_its_quorum",
    "pull_goes_on_behind_what_it_returns",
    "delivery_is_no_progress",
    "every_member_registers_as_the_master",
    "offsets_of_a_deleted_topic_stay",
    "dead_letter_is_delivered_again",
)
FAMILIES = ("broker", "administered")
OF_BROKERS = tuple(mutant for mutant in mutants.load() if mutant.family in FAMILIES)
PLANTED = tuple(mutant.name for mutant in OF_BROKERS if not mutant.found_by)
RARELY_MET = tuple(mutant for mutant in OF_BROKERS if mutant.found_by)
KEY = OffsetKey("group0", "orders", 0)
DELETED_KEY = OffsetKey("group0", "projects", 0)


class Clock:
    """The time of a run."""

    now_us = 0


def totals_of(family: str, seeds: range) -> Totals:
    totals = run_task(Task(seeds=seeds, event_count=EVENT_COUNT, covered=False, family=family))
    assert not totals.failures
    return totals


def rules() -> BrokerRules:
    """Return the judge of an empty log."""
    return BrokerRules(BrokerLog(Bodies()), Clock())


def logged(*written: tuple[int, MessageRecord]) -> None:
    """Let the judge take a log of such messages, each with its term."""
    bodies, log, pos = Bodies(), [], 0
    for term, message in written:
        at = replace_record(message, physical_offset=pos + ENTRY_HEADER_SIZE)
        body = message_record.encode(at)
        log.append(Entry(term, bodies.add(body, 0, disk.NORMAL), len(log)))
        pos += ENTRY_HEADER_SIZE + len(body)
    BrokerLog(bodies).take(log)


def test_a_few_groups_of_brokers_break_no_rule() -> None:
    totals = totals_of("broker", range(FAST_SEED_COUNT))

    counts = totals.broker_counts
    assert totals.leader_count > FAST_SEED_COUNT, "runs without failovers prove nothing"
    assert counts["sends_acknowledged"] > 20 * FAST_SEED_COUNT
    assert counts["messages_pulled"] > 100 * FAST_SEED_COUNT
    assert counts["commits_acknowledged"] > FAST_SEED_COUNT
    assert counts["locks"] > 0
    assert counts["delayed"] > 0
    assert totals.state_counts["restarts_from_snapshot"] > 0


def test_a_few_administered_groups_break_no_rule() -> None:
    totals = totals_of("administered", range(FAST_SEED_COUNT))

    counts = totals.broker_counts
    assert totals.leader_count > FAST_SEED_COUNT, "runs without failovers prove nothing"
    assert counts["deletions_acknowledged"] > FAST_SEED_COUNT
    assert counts["returns_acknowledged"] > 10
    assert counts["registrations"] > 10 * FAST_SEED_COUNT


def test_a_seed_repeats_its_run() -> None:
    digests = []
    for _ in range(2):
        transcript = Transcript(1)
        simulate(3, EVENT_COUNT, transcript, family="broker")
        digests.append(transcript.hexdigest())

    assert digests[0] == digests[1]


def test_a_tape_repeats_the_requests_of_clients() -> None:
    tape, violation = record(0, EVENT_COUNT, family="broker")

    assert violation is None
    last_act_us, _ = tape.acts[-1]
    assert replay(replace(tape, end_us=last_act_us)).broker_counts["sends_acknowledged"] > 0


@pytest.mark.parametrize("name", QUICK)
def test_a_few_seeds_find_a_bug_of_the_broker(name: str) -> None:
    found = mutants.hunt_apart(name, HUNTED_SEEDS)

    assert found.seed is not None, f"no seed of {found.seeds_tried} found the bug"


@pytest.mark.simulation
@pytest.mark.sampled(2)
@pytest.mark.parametrize("chunk", range(2))
@pytest.mark.parametrize("family", FAMILIES)
def test_no_group_of_brokers_breaks_a_rule(family: str, chunk: int) -> None:
    first_seed = FAST_SEED_COUNT + chunk * SEED_COUNT
    totals_of(family, range(first_seed, first_seed + SEED_COUNT))


@pytest.mark.simulation
@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", PLANTED)
def test_seeds_find_a_bug_of_the_broker(name: str) -> None:
    found = mutants.hunt_apart(name, HUNTED_SEEDS)

    assert found.seed is not None, f"no seed of {found.seeds_tried} found the bug"


@pytest.mark.simulation
@pytest.mark.parametrize("mutant", RARELY_MET, ids=lambda mutant: mutant.name)
def test_tests_find_a_bug_that_seeds_meet_too_rarely(mutant: Mutant) -> None:
    assert is_found_by_tests(mutant)


def test_a_message_that_is_not_committed_must_not_be_acknowledged() -> None:
    with pytest.raises(ViolationError, match="is committed"):
        rules().acknowledged([b"message 0"], 0, Place("orders", 0), 0, [48])


@pytest.mark.parametrize(("term", "early_ms"), [(1, 0), (2, 2 * SKEW_MS_MAX)])
def test_a_delivery_must_not_be_earlier_than_clocks_differ(term: int, early_ms: int) -> None:
    stored_ms = 1_000_000
    waiting = MessageRecord(
        SCHEDULE_TOPIC, 1, 0, 0, b"body", properties=b"DELAY\x012\x02", store_timestamp=stored_ms
    )
    delivered = MessageRecord(
        "orders", 0, 0, 0, b"body", properties=b"DLEDGER_SCHEDULED\x012 0\x02",
        store_timestamp=stored_ms + 5000 - early_ms,
    )  # fmt: skip

    logged((1, waiting), (term, delivered))
    delivered = replace_record(delivered, store_timestamp=delivered.store_timestamp - 1)
    with pytest.raises(ViolationError, match="no sooner than it is due"):
        logged((1, waiting), (term, delivered))


def test_a_pull_must_return_what_is_committed() -> None:
    with pytest.raises(ViolationError, match="committed messages of its queue"):
        rules().pulled(Place("orders", 0), 0, [b"invented"], 1, -1)


def test_an_acknowledged_offset_must_not_go_back() -> None:
    judge = rules()
    for _ in range(2):
        judge.commit_ends(KEY, judge.commit_begins(KEY), acknowledged=True)

    judge.judge_offset(KEY, 1)
    with pytest.raises(ViolationError, match="offset survives"):
        judge.judge_offset(KEY, 0)
    with pytest.raises(ViolationError, match="offset survives"):
        judge.judge_offset(KEY, None)


def test_a_commit_without_an_answer_may_have_its_effect() -> None:
    judge = rules()
    judge.commit_ends(KEY, judge.commit_begins(KEY), acknowledged=False)
    judge.commit_ends(KEY, judge.commit_begins(KEY), acknowledged=True)

    judge.judge_offset(KEY, 0)
    judge.judge_offset(KEY, 1)


def test_a_query_must_find_what_was_acknowledged_before_it_began() -> None:
    judge = rules()
    judge.commit_ends(KEY, judge.commit_begins(KEY), acknowledged=True)
    early = judge.query_begins(KEY)
    judge.commit_ends(KEY, judge.commit_begins(KEY), acknowledged=True)
    judge.queried(KEY, 0, early)
    judge.queried(KEY, 1, judge.query_begins(KEY))

    for offset in (0, None):
        with pytest.raises(ViolationError, match="acknowledged before it"):
            judge.queried(KEY, offset, judge.query_begins(KEY))


def test_a_query_may_miss_what_a_deletion_has_taken_meanwhile() -> None:
    judge = rules()
    judge.commit_ends(DELETED_KEY, judge.commit_begins(DELETED_KEY), acknowledged=True)
    before, deleted = judge.query_begins(DELETED_KEY), judge.deletion_begins("projects")
    judge.queried(DELETED_KEY, None, before)
    judge.deletion_ends("projects", deleted, is_last=True)

    judge.queried(DELETED_KEY, None, before)


def test_two_clients_must_not_hold_one_lock() -> None:
    judge = rules()
    judge.locked(0, [0, 1], valid_us=30)

    judge.unlocked(0, kept=[1])
    judge.locked(1, [0], valid_us=30)
    with pytest.raises(ViolationError, match="holds the lock"):
        judge.locked(1, [1], valid_us=30)


def test_an_offset_of_a_deleted_topic_must_not_be_told_again() -> None:
    judge = rules()
    judge.commit_ends(DELETED_KEY, judge.commit_begins(DELETED_KEY), acknowledged=True)
    judge.deletion_ends("projects", judge.deletion_begins("projects"), is_last=True)

    judge.queried(DELETED_KEY, None, judge.query_begins(DELETED_KEY))
    judge.judge_offset(DELETED_KEY, None)
    with pytest.raises(ViolationError, match="are gone"):
        judge.queried(DELETED_KEY, 0, judge.query_begins(DELETED_KEY))
    with pytest.raises(ViolationError, match="survives"):
        judge.judge_offset(DELETED_KEY, 0)


def test_an_offset_that_was_committed_after_a_deletion_survives() -> None:
    judge = rules()
    judge.commit_ends(DELETED_KEY, judge.commit_begins(DELETED_KEY), acknowledged=True)
    judge.deletion_ends("projects", judge.deletion_begins("projects"), is_last=True)
    judge.commit_ends(DELETED_KEY, judge.commit_begins(DELETED_KEY), acknowledged=True)

    judge.judge_offset(DELETED_KEY, 1)
    with pytest.raises(ViolationError, match="survives"):
        judge.judge_offset(DELETED_KEY, None)


def test_a_deletion_without_an_answer_may_have_its_effect_at_any_time() -> None:
    judge = rules()
    judge.deletion_begins("projects")
    judge.commit_ends(DELETED_KEY, judge.commit_begins(DELETED_KEY), acknowledged=True)

    judge.judge_offset(DELETED_KEY, None)
    judge.judge_offset(DELETED_KEY, 0)


def test_a_return_that_is_acknowledged_must_be_committed() -> None:
    with pytest.raises(ViolationError, match="return is committed"):
        rules().returned(b"message 0 returned 1", "%DLQ%returners")
