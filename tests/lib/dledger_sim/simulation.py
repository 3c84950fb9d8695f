"""One seed's or one tape's whole life: a while of faults in which nothing may go wrong, then calm,
in which all must be well again.
"""

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from dledger_sim.acts import Act, perform
from dledger_sim.choices import Choices, DrawnChoices, RecordedChoices, TapedReplay
from dledger_sim.cluster import SimCluster
from dledger_sim.conditions import TICK_US, Conditions
from dledger_sim.coverage import Coverage
from dledger_sim.history import Answer, Operation, check_history
from dledger_sim.nemesis import FAULTS
from dledger_sim.stress import Stress
from dledger_sim.tape import Tape
from dledger_sim.transcript import Transcript
from dledger_sim.violation import ViolationError

SETTLE_ELECTION_TIMEOUTS = 20
PUSH_US = 4_000
"""How long one push and its flush may take in calm conditions."""
OTHER_RULE = "nothing breaks"
"""The rule that an error other than a verdict breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run came to."""

    event_count: int
    fault_count: int
    virtual_s: float
    leader_count: int
    committed_count: int
    acknowledged_count: int


@dataclass(slots=True, kw_only=True)
class Watch:
    """Who looks on; nobody changes a run by it."""

    transcript: Transcript | None = None
    coverage: Coverage | None = None
    acts: list[tuple[int, Act]] = field(default_factory=list)
    """What was done, and when."""
    violated_us: int = 0


def simulate(
    seed: int,
    event_count: int,
    transcript: Transcript | None = None,
    *,
    conditions: Conditions | None = None,
    settle: bool = True,
    coverage: Coverage | None = None,
) -> Summary:
    """Run one seed, under conditions of its own unless some are given.

    Without `settle`, only its life under faults, where all that can fail is safety.
    ViolationError says what went wrong, when, and how to see it again.
    """
    rng = random.Random(seed)
    conditions = conditions or Conditions.drawn(rng, tuple(FAULTS))
    watch = Watch(transcript=transcript, coverage=coverage)
    name = f"seed {seed}"
    return _live(name, conditions, rng, DrawnChoices(rng), watch, event_count, settle=settle)


def record(
    seed: int, event_count: int, *, conditions: Conditions | None = None, settle: bool = True
) -> tuple[Tape, ViolationError | None]:
    """Run a seed once more with a tape running; returns the tape, and what went wrong."""
    rng = random.Random(seed)
    conditions = conditions or Conditions.drawn(rng, tuple(FAULTS))
    choices = RecordedChoices(rng)
    watch = Watch()
    violation = None
    try:
        _live(f"seed {seed}", conditions, rng, choices, watch, event_count, settle=settle)
    except ViolationError as error:
        violation = error
    tape = Tape(
        conditions=conditions,
        end_us=watch.violated_us + 2 * conditions.election_ticks * TICK_US,
        acts=tuple(watch.acts),
        choices=choices.taped,
        rule=violation.rule if violation else "",
        note=f"seed {seed}, {event_count} events",
    )
    return Tape.from_json(tape.to_json()), violation


def replay(tape: Tape, transcript: Transcript | None = None, *, settle: bool = True) -> Summary:
    """Run a tape; ViolationError when something goes wrong."""
    choices = TapedReplay(tape.choices)
    conditions = tape.conditions
    cluster = SimCluster(conditions, random.Random(0), transcript, choices=choices)
    watch = Watch(transcript=transcript)

    def run() -> None:
        for time_us, act in tape.acts:
            cluster.act_after(time_us, perform, cluster, act)
        while cluster.now_us < tape.end_us:
            cluster.step()
        if settle:
            _settle(cluster)
        _judge(cluster)

    _judged("the tape", cluster, watch, run)
    return _summary(cluster)


def _live(
    name: str,
    conditions: Conditions,
    rng: random.Random,
    choices: Choices,
    watch: Watch,
    event_count: int,
    *,
    settle: bool,
) -> Summary:
    cluster = SimCluster(
        conditions, rng, watch.transcript, choices=choices, coverage=watch.coverage
    )

    stress = Stress(cluster, rng, event_count)
    watch.acts = stress.acts

    def run() -> None:
        stress.run()
        if settle:
            _settle(cluster)
        _judge(cluster)

    _judged(name, cluster, watch, run)
    return _summary(cluster)


def _judged(name: str, cluster: SimCluster, watch: Watch, run: Callable[[], None]) -> None:
    """Run, and say of what goes wrong where it did."""
    try:
        run()
    except Exception as error:
        watch.violated_us = cluster.now_us
        rule = error.rule if isinstance(error, ViolationError) else OTHER_RULE
        raise ViolationError(
            rule,
            f"{name}, event {cluster.event_count}, {cluster.now_us / 1000:.2f} ms: "
            f"{type(error).__name__}: {error}",
        ) from error


def _settle(cluster: SimCluster) -> None:
    """End all faults: soon all members must follow one leader, and its next entry be committed."""
    calm = dataclasses.replace(
        cluster.conditions, loss=0.0, duplicate=0.0, delay_us=300, notice_link=1.0, flush_us=1_000,
        slow_hard_state=0.0, crash_in_ready=0.0, flush_failure=0.0, strike_interval_us=0,
    )  # fmt: skip
    longest_log = max(len(member.disk.cached) for member in cluster.members.values())
    timeout_us = SETTLE_ELECTION_TIMEOUTS * 2 * calm.election_ticks * TICK_US
    timeout_us += PUSH_US * longest_log // calm.push_entries_max
    cluster.calm(calm)
    cluster.run_until(cluster.agreed, timeout_us)
    operation: Operation | None = None

    def appended() -> bool:
        """Ask again when it is refused: a leader that hands its leadership over takes nothing."""
        nonlocal operation
        leader = cluster.leader()
        if leader and (operation is None or operation.answered not in (None, Answer.DONE)):
            operation = cluster.propose(leader.member_id, 1)
        return operation is not None and operation.answered is Answer.DONE and cluster.agreed()

    cluster.run_until(appended, timeout_us)


def _judge(cluster: SimCluster) -> None:
    """Judge what the clients were told; whatever waits still is answered as unknown."""
    for member in cluster.members.values():
        member.give_up()
        member.give_up_reads()
    check_history(cluster.history, [entry.body for entry in cluster.checker.committed])


def _summary(cluster: SimCluster) -> Summary:
    return Summary(
        event_count=cluster.event_count,
        fault_count=cluster.fault_count + cluster.network.fault_count,
        virtual_s=cluster.now_us / 1e6,
        leader_count=cluster.checker.leader_count,
        committed_count=len(cluster.checker.committed),
        acknowledged_count=cluster.checker.acknowledged_count,
    )
