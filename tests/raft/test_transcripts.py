"""Transcripts of situations that a group must handle, one line per step, for readers to check.

A file with commands (lines that start with `>`, see `dledger_sim.stage.script`) is both the script
and the transcript of its run. The others are produced by a function of this module, which runs a
simulated group with random choices and time. To add a script, write a file with a first line and
commands.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import TICK_US, Conditions
from dledger_sim.runs.transcript import Transcript
from dledger_sim.stage.script import Script, performed

FOLDER = Path(__file__).parent / "transcripts"
CALM = Conditions(heartbeat_ticks=3, election_ticks=12, flush_us=400)
SOON_US = 10 * CALM.election_ticks * TICK_US


def first_election(cluster: SimCluster) -> None:
    """Three empty members elect a leader, whose no-op becomes entry 0 everywhere."""
    cluster.run_until(cluster.agreed, SOON_US)


def leader_killed(cluster: SimCluster) -> None:
    """Connections to the leader are refused; a follower is elected, and the old leader follows."""
    cluster.run_until(cluster.agreed, SOON_US)
    cluster.crash(leader_of(cluster), down_us=8 * TICK_US)
    cluster.run_until(lambda: cluster.leader() is not None, SOON_US)
    cluster.run_until(cluster.agreed, SOON_US)


def tail_replaced(cluster: SimCluster) -> None:
    """A partitioned leader keeps appending; entries that it could not commit are replaced."""
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


STORIES = (first_election, leader_killed, tail_replaced)
SCRIPTS = sorted(set(FOLDER.glob("*.txt")) - {FOLDER / f"{one.__name__}.txt" for one in STORIES})


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_simulated_story_matches_its_transcript(story: Callable[[SimCluster], None]) -> None:
    transcript = Transcript(skip_idle=True)
    story(SimCluster(CALM, random.Random(4), transcript))
    told = "\n".join([story.__doc__ or "", "", *transcript.lines, ""])
    assert told == kept(FOLDER / f"{story.__name__}.txt", told)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_matches_its_transcript(path: Path) -> None:
    told = performed(path.read_text())

    assert told == kept(path, told)


def test_every_script_has_a_first_line_of_its_own() -> None:
    first_lines = {path.read_text().splitlines()[0] for path in SCRIPTS}

    assert len(first_lines) == len(SCRIPTS) >= 40


def test_an_unknown_command_raises_an_error_that_names_it() -> None:
    script = Script()
    script.perform("group n0= n1= n2=")

    with pytest.raises(ValueError, match="'elects'"):
        script.perform("elects n0")


def test_a_script_fails_if_no_message_matches_its_command() -> None:
    script = Script()
    script.perform("group n0= n1= n2=")

    with pytest.raises(AssertionError, match="n0>n1 Append"):
        script.perform("deliver n0>n1 Append")


def kept(path: Path, told: str) -> str:
    """Return the file's text; with REWRITE_TRANSCRIPTS set, first write `told` to the file."""
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(told)
    return path.read_text()
