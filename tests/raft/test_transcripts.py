"""Stories of a group, told line by line, as a reader can check them.

After a change that is meant to change them, run with REWRITE_TRANSCRIPTS=1 in the environment, and
read the difference: a line that you cannot explain is a bug.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_sim.cluster import SimCluster
from dledger_sim.conditions import TICK_US, Conditions
from dledger_sim.transcript import Transcript

FOLDER = Path(__file__).parent / "transcripts"
CALM = Conditions(heartbeat_ticks=3, election_ticks=12, flush_us=400)
SOON_US = 10 * CALM.election_ticks * TICK_US


def first_election(cluster: SimCluster) -> None:
    """Three empty members elect a leader, whose no-op becomes entry 0 everywhere."""
    cluster.run_until(cluster.agreed, SOON_US)


def leader_killed(cluster: SimCluster) -> None:
    """A refused connection tells the followers; one of them leads, and the old leader follows."""
    cluster.run_until(cluster.agreed, SOON_US)
    cluster.crash(leader_of(cluster), down_us=8 * TICK_US)
    cluster.run_until(lambda: cluster.leader() is not None, SOON_US)
    cluster.run_until(cluster.agreed, SOON_US)


def tail_replaced(cluster: SimCluster) -> None:
    """A leader that nobody hears keeps appending; what it could not commit is replaced."""
    cluster.run_until(cluster.agreed, SOON_US)
    cut_off = leader_of(cluster)
    cluster.split({cut_off})
    for _ in range(3):
        cluster.propose(cut_off, 2)
    cluster.run_until(lambda: leader_of(cluster) not in ("", cut_off), SOON_US)
    cluster.propose(leader_of(cluster), 2)
    cluster.run_until(lambda: len(cluster.checker.committed) == 4, SOON_US)
    cluster.heal_network()
    cluster.run_until(cluster.agreed, SOON_US)


def leader_of(cluster: SimCluster) -> str:
    leader = cluster.leader()
    return "" if leader is None else leader.member_id


@pytest.mark.parametrize(
    "story", [first_election, leader_killed, tail_replaced], ids=lambda story: story.__name__
)
def test_a_story_goes_as_told(story: Callable[[SimCluster], None]) -> None:
    transcript = Transcript(skip_idle=True)
    story(SimCluster(CALM, random.Random(4), transcript))
    told = "\n".join([story.__doc__ or "", "", *transcript.lines, ""])
    path = FOLDER / f"{story.__name__}.txt"
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(told)

    assert told == path.read_text()
