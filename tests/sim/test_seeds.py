"""Many seeds, each of which runs a group under faults and its recovery; see `dledger_sim`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dledger_sim.runs import campaign
from dledger_sim.runs.simulation import simulate
from dledger_sim.runs.transcript import Transcript

EVENT_COUNT = 2000
FAST_SEED_COUNT = 30
SEEDS_PER_CHUNK = 125
CHUNK_COUNT = 40
HASH_SEEDS = ("1", "2")
SEEDS_TO_COMPARE = 50
DIGESTS = """
import sys
from dledger_sim.runs.simulation import simulate
from dledger_sim.runs.transcript import Transcript
for seed in range(int(sys.argv[1])):
    transcript = Transcript()
    simulate(seed, 400, transcript)
    print(transcript.hexdigest())
"""


def assert_sound(seeds: range) -> campaign.Totals:
    totals = campaign.run_task(campaign.Task(seeds=seeds, event_count=EVENT_COUNT, covered=False))
    assert not totals.failures
    assert totals.acknowledged_count > len(seeds), (
        "a run without acknowledged appends proves nothing"
    )
    return totals


def test_a_few_seeds_break_no_rule() -> None:
    assert_sound(range(FAST_SEED_COUNT))


@pytest.mark.simulation
@pytest.mark.sampled(8)
@pytest.mark.parametrize("chunk", range(CHUNK_COUNT))
def test_no_seed_breaks_a_rule(chunk: int) -> None:
    first_seed = FAST_SEED_COUNT + chunk * SEEDS_PER_CHUNK
    totals = assert_sound(range(first_seed, first_seed + SEEDS_PER_CHUNK))

    assert totals.fault_count > 10 * SEEDS_PER_CHUNK, "a run without faults proves little"


@pytest.mark.simulation
def test_a_seed_runs_the_same_with_any_hash_seed() -> None:
    """The order of a set of strings depends on the hash seed; no run may depend on that order."""
    one, other = (
        subprocess.run(
            [sys.executable, "-c", DIGESTS, str(SEEDS_TO_COMPARE)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": python_path()},
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()
        for hash_seed in HASH_SEEDS
    )  # fmt: skip

    assert len(set(one)) == SEEDS_TO_COMPARE
    assert one == other


def test_a_transcript_does_not_change_a_run() -> None:
    assert simulate(5, EVENT_COUNT, Transcript()) == simulate(5, EVENT_COUNT)


def test_the_command_prints_every_event_of_one_seed() -> None:
    shown = command("--seed", "5", "--events", "300")

    assert shown.returncode == 0
    assert "afterwards" in shown.stdout.splitlines()[0]
    assert "AppendRequest" in shown.stdout
    assert "digest" in shown.stdout


def test_the_command_prints_a_summary_line_for_a_range_of_seeds() -> None:
    shown = command("--first-seed", "3", "--seeds", "2", "--events", "300", "--processes", "1")

    assert shown.returncode == 0
    last_line = shown.stdout.splitlines()[-1]
    assert last_line.startswith("seeds=2 events=")
    assert " violations=0 " in last_line


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dledger_sim", *arguments],
        env={**os.environ, "PYTHONPATH": python_path()}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def python_path() -> str:
    library = str(Path(__file__).resolve().parents[1] / "lib")
    return os.pathsep.join(filter(None, [library, os.environ.get("PYTHONPATH")]))
