"""One run of a seed or a tape: a part with faults, which must break no rule, and a calm part, in
which the group must recover.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from dledger_sim.broker.cluster import BrokerCluster
from dledger_sim.faults.acts import Act, perform
from dledger_sim.faults.stress import Stress
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import TICK_US, Conditions
from dledger_sim.group.loaded import LoadedCluster
from dledger_sim.judges import recovery
from dledger_sim.judges.violation import ViolationError
from dledger_sim.runs import families
from dledger_sim.runs.choices import Choices, DrawnChoices, RecordedChoices, TapedReplay
from dledger_sim.runs.coverage import Coverage
from dledger_sim.runs.seeds import conditions_of
from dledger_sim.runs.tape import Tape
from dledger_sim.runs.transcript import Transcript

OTHER_RULE = "no unexpected error"
"""The rule that any error other than a ViolationError breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The counts of a run."""

    event_count: int
    fault_count: int
    virtual_s: float
    leader_count: int
    committed_count: int
    acknowledged_count: int
    state_counts: Counter[str]
    """Events of the members' states by name; empty without states."""
    rot_counts: Counter[str]
    """Events of rotten entries by name; empty without rot."""
    replay_counts: Counter[str]
    """Elections by whether the leader's state was behind."""
    load_counts: Counter[str]
    """Checks of the rules for the load of clients; empty if work takes no time."""
    broker_counts: Counter[str]
    """Checks of the rules for brokers; empty without brokers."""


@dataclass(slots=True, kw_only=True)
class Watch:
    """Observers of a run. They do not change it."""

    transcript: Transcript | None = None
    coverage: Coverage | None = None
    acts: list[tuple[int, Act]] = field(default_factory=list)
    """The performed acts with their times in µs."""
    violated_us: int = 0


def simulate(
    seed: int,
    event_count: int,
    transcript: Transcript | None = None,
    *,
    conditions: Conditions | None = None,
    family: str = "",
    settle: bool = True,
    coverage: Coverage | None = None,
) -> Summary:
    """Run one seed, under the conditions that it draws unless `conditions` are given.

    `family` is the family of runs that the seed belongs to (`runs.families`); empty for ordinary
    seeds.

    Without `settle`, the run ends with the faults, and tests only safety. Raises ViolationError
    with the broken rule, the event and its time.
    """
    rng = random.Random(seed)
    conditions = conditions or _drawn(seed, rng, family)
    watch = Watch(transcript=transcript, coverage=coverage)
    name = f"{family} seed {seed}".lstrip()
    return _live(name, conditions, rng, DrawnChoices(rng), watch, event_count, settle=settle)


def _drawn(seed: int, rng: random.Random, family: str) -> Conditions:
    return families.conditions_of(family, seed) if family else conditions_of(seed, rng)


def record(
    seed: int,
    event_count: int,
    *,
    conditions: Conditions | None = None,
    family: str = "",
    settle: bool = True,
) -> tuple[Tape, ViolationError | None]:
    """Run a seed and record it; return the tape, and the violation or None."""
    rng = random.Random(seed)
    conditions = conditions or _drawn(seed, rng, family)
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
        note=f"{family} seed {seed}, {event_count} events".lstrip(),
    )
    return Tape.from_json(tape.to_json()), violation


def replay(tape: Tape, transcript: Transcript | None = None, *, settle: bool = True) -> Summary:
    """Run a tape. Raises ViolationError if a rule is broken."""
    choices = TapedReplay(tape.choices)
    conditions = tape.conditions
    cluster = _kind(conditions)(conditions, random.Random(0), transcript, choices=choices)
    watch = Watch(transcript=transcript)

    def run() -> None:
        for time_us, act in tape.acts:
            cluster.act_after(time_us, perform, cluster, act)
        while cluster.now_us < tape.end_us:
            cluster.step()
        _end(cluster, settle=settle)

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
    cluster = _kind(conditions)(
        conditions, rng, watch.transcript, choices=choices, coverage=watch.coverage
    )
    stress = Stress(cluster, rng, event_count)
    watch.acts = stress.acts

    def run() -> None:
        stress.run()
        _end(cluster, settle=settle)

    _judged(name, cluster, watch, run)
    return _summary(cluster)


def _kind(conditions: Conditions) -> type[SimCluster]:
    if conditions.broker_speed:
        return BrokerCluster
    return LoadedCluster if conditions.slowness else SimCluster


def _judged(name: str, cluster: SimCluster, watch: Watch, run: Callable[[], None]) -> None:
    """Execute a run, and add the event and its time to any error."""
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
    finally:
        cluster.close()


def _end(cluster: SimCluster, *, settle: bool) -> None:
    """Let the group recover, or end the run here, and check the answers to the clients.

    A recovered group has answered every request. A run that ends here closes the connections of
    all waiting clients.
    """
    if settle:
        recovery.settle(cluster)
    else:
        for member in cluster.members.values():
            member.hang_up()
    cluster.check_answers()


def _summary(cluster: SimCluster) -> Summary:
    return Summary(
        event_count=cluster.event_count,
        fault_count=cluster.fault_count + cluster.network.fault_count,
        virtual_s=cluster.now_us / 1e6,
        leader_count=cluster.checker.leader_count,
        committed_count=len(cluster.checker.committed),
        acknowledged_count=cluster.checker.acknowledged_count,
        state_counts=cluster.checker.states.counts,
        rot_counts=cluster.checker.rot.counts,
        replay_counts=cluster.checker.replays.counts,
        load_counts=(
            cluster.load_rules.counts if isinstance(cluster, LoadedCluster) else Counter()
        ),
        broker_counts=(
            cluster.broker_rules.counts if isinstance(cluster, BrokerCluster) else Counter()
        ),
    )
