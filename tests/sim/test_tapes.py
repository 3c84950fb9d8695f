"""Tapes: they replay exactly, shrink, and find their planted bugs."""

import dataclasses
from pathlib import Path

import pytest

from dledger_sim.group.conditions import Conditions
from dledger_sim.judges.violation import ViolationError
from dledger_sim.mutants import hunt as mutants
from dledger_sim.runs.shrink import Shrinker
from dledger_sim.runs.simulation import record, replay, simulate
from dledger_sim.runs.tape import Tape

TAPES = sorted((Path(__file__).parent / "tapes").glob("*.json"))
EVENT_COUNT = 600
WITH_STATE = 7
"""A seed in which members keep a state."""
WITH_ROT = 225
"""A seed in which entries rot."""


@pytest.mark.parametrize("path", TAPES, ids=lambda path: path.stem)
def test_a_tape_passes_without_its_bug(path: Path) -> None:
    replay(Tape.load(path))


@pytest.mark.simulation
@pytest.mark.parametrize(
    "path", [path for path in TAPES if Tape.load(path).mutant], ids=lambda path: path.stem
)
def test_a_tape_finds_its_planted_bug(path: Path) -> None:
    assert mutants.finds_again(path)


@pytest.mark.parametrize("seed", [0, 1, 2, WITH_STATE, WITH_ROT])
def test_a_tape_determines_a_run(seed: int) -> None:
    tape, violation = record(seed, EVENT_COUNT)
    assert violation is None
    drawn = simulate(seed, EVENT_COUNT, settle=False)
    again = Tape.from_json(tape.to_json())
    replayed = replay(dataclasses.replace(again, end_us=int(drawn.virtual_s * 1e6)), settle=False)

    assert again == tape
    assert replayed.committed_count == drawn.committed_count
    assert replayed.acknowledged_count == drawn.acknowledged_count
    assert replayed.leader_count == drawn.leader_count
    assert replayed.state_counts == drawn.state_counts
    assert replayed.rot_counts == drawn.rot_counts
    assert bool(drawn.state_counts) == (seed == WITH_STATE)
    assert bool(drawn.rot_counts) == (seed == WITH_ROT)


def test_a_tape_shrinks_to_the_lines_that_its_failure_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bug: n1 has crashed, a client appends, and one message is lost."""
    crash, append = (50_000, ("crash", "n1", 10_000)), (90_000, ("append", "n0", 1, 0))
    others = [(1_000 * number, ("heal",)) for number in range(1, 40)]
    tape = Tape(
        conditions=Conditions(),
        end_us=200_000,
        acts=tuple(sorted([*others, crash, append])),
        choices={"loss n0>n1": {3: 1, 5: 1}, "flush n2": {0: 7}},
        rule="no append after a crash of n1",
    )

    def broken(tape: Tape) -> None:
        if crash in tape.acts and append in tape.acts and tape.choices.get("loss n0>n1", {}).get(5):
            raise ViolationError(tape.rule, "the planted bug")

    monkeypatch.setattr("dledger_sim.runs.shrink.replay", broken)
    smallest = Shrinker(tape).run()

    assert smallest.acts == (crash, append)
    assert smallest.choices == {"loss n0>n1": {5: 1}}


def test_a_tape_that_does_not_fail_is_not_shrunk() -> None:
    tape, _ = record(1, EVENT_COUNT)

    with pytest.raises(ValueError, match="does not break"):
        Shrinker(dataclasses.replace(tape, rule="one leader per term")).run()
