"""Many seeds, each a whole group's life under faults and its recovery; see `dledger_sim`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dledger_sim.simulation import simulate
from dledger_sim.transcript import Transcript

EVENT_COUNT = 1500
SEEDS_PER_CHUNK = 30
CHUNK_COUNT = 10
# Seeds that once failed, and why; they are not run for their faults alone, but so as not to forget.
REMEMBERED_SEEDS = {
    11627: "a shell kept appends of a lost term waiting until it refused new ones",
    13179: "a checkpoint covered committed entries that were not durable",
    13999: "a checkpoint covered an old tail whose truncation a power cut had undone",
}
DIGESTS = """
import sys
from dledger_sim.simulation import simulate
from dledger_sim.transcript import Transcript
for seed in map(int, sys.argv[1:]):
    transcript = Transcript()
    simulate(seed, 400, transcript)
    print(transcript.hexdigest())
"""


@pytest.mark.parametrize("chunk", range(CHUNK_COUNT))
def test_no_seed_finds_anything(chunk: int) -> None:
    acknowledged_count = 0
    for seed in range(chunk * SEEDS_PER_CHUNK, (chunk + 1) * SEEDS_PER_CHUNK):
        acknowledged_count += simulate(seed, EVENT_COUNT).acknowledged_count

    assert acknowledged_count > SEEDS_PER_CHUNK, "a group that stores nothing proves nothing"


@pytest.mark.parametrize("seed", REMEMBERED_SEEDS)
def test_a_seed_that_once_failed_passes(seed: int) -> None:
    simulate(seed, EVENT_COUNT)


def test_a_seed_goes_the_same_way_whatever_the_hash_seed() -> None:
    """The order of a set of strings changes with it; nothing may depend on that."""
    seeds = [str(seed) for seed in range(8)]
    one, other = (
        subprocess.run(
            [sys.executable, "-c", DIGESTS, *seeds],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": _library()},
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()
        for hash_seed in ("1", "2")
    )  # fmt: skip

    assert len(set(one)) == len(seeds)
    assert one == other


def test_watching_a_seed_does_not_change_it() -> None:
    assert simulate(5, EVENT_COUNT, Transcript()) == simulate(5, EVENT_COUNT)


def test_a_failure_says_how_to_see_it_again() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "dledger_sim", "--seed", "5", "--events", "300"],
        env={**os.environ, "PYTHONPATH": _library()}, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert "AppendRequest" in shown.stdout
    assert "digest" in shown.stdout


def _library() -> str:
    return str(Path(__file__).resolve().parents[1] / "lib")
