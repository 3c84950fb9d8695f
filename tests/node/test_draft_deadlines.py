"""A draft has one deadline: what it was held for before is taken from the wait for its quorum."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_node.raft.core import Raft
from dledger_node.services.drafts import HOLD_S, TOGETHER_S, WAIT_S, Draft, Drafts, Outcome
from dledger_node.shell.server import DLedgerServer
from dledger_wire.played import become_master, confirmed, make_server

LATE_S: Final = 1e-6
AGES_S: Final = [n * 0.03 for n in range(64)]


class Program:
    """A program that may not be ready, and that keeps the ends of its drafts."""

    def __init__(self) -> None:
        self.ready = True
        self.void: set[Draft] = set()
        self.ends: dict[Draft, Outcome] = {}

    def is_ready(self) -> bool:
        return self.ready

    def may_be_written(self, draft: Draft) -> bool:
        return draft not in self.void

    def stamp(self, term: int, drafts: Sequence[Draft], positions: Sequence[int]) -> None:
        """Complete nothing."""

    def ended(self, drafts: Sequence[Draft], outcome: Outcome) -> None:
        for draft in drafts:
            assert draft not in self.ends
            self.ends[draft] = outcome


class Leader:
    """The drafts of a leader whose followers confirm nothing unless they are told to."""

    def __init__(self, server: DLedgerServer, core: Raft) -> None:
        self.server, self.core, self.program = server, core, Program()
        self.drafts: Drafts = server.clients.drafts
        self.drafts.owner = self.program
        self.now_s = asyncio.get_running_loop().time()

    async def propose(self, *ages_s: float) -> list[Draft]:
        """Propose drafts whose requests came so long ago, at once."""
        drafts = [Draft([bytearray(b"x")]) for _ in ages_s]
        for draft, age_s in zip(drafts, ages_s, strict=True):
            self.drafts.propose(draft, self.now_s - age_s)
        await asyncio.sleep(0)
        return drafts

    def become_ready(self) -> None:
        self.program.ready = True
        self.drafts.go_on()

    def ends_after(self, seconds: float) -> dict[Draft, Outcome]:
        """Return what has ended if that time has passed."""
        self.drafts.expire(self.now_s + seconds)
        return self.program.ends

    def confirm_all(self) -> None:
        for peer_id in ("n1", "n2"):
            self.server.clients.peers.receive(confirmed(peer_id, self.core.ledger_end_index))


@pytest.fixture
async def leader(tmp_path: Path) -> Leader:
    """A leader that has proved itself."""
    server, core = make_server(tmp_path)
    await become_master(server, core)
    return Leader(server, core)


async def test_a_draft_that_was_held_has_only_the_rest_of_its_time(leader: Leader) -> None:
    leader.program.ready = False
    [draft] = await leader.propose(HOLD_S - 0.1)
    leader.become_ready()
    rest_s = WAIT_S - (HOLD_S - 0.1)

    assert leader.ends_after(rest_s - 0.01) == {}
    assert leader.ends_after(rest_s + LATE_S) == {draft: Outcome.UNKNOWN}
    await leader.server.close()


async def test_only_those_drafts_are_refused_that_were_held_for_their_whole_time(
    leader: Leader,
) -> None:
    leader.program.ready = False
    old, new = await leader.propose(HOLD_S - 0.1, 0.0)

    assert leader.ends_after(0.1 + LATE_S) == {old: Outcome.REFUSED}
    leader.become_ready()
    leader.confirm_all()
    assert leader.program.ends == {old: Outcome.REFUSED, new: Outcome.COMMITTED}
    await leader.server.close()


async def test_a_held_draft_is_refused_if_a_lower_limit_leaves_no_room_for_it(
    leader: Leader,
) -> None:
    waiting = await leader.propose(0.0)
    leader.program.ready = False
    kept, refused, too_late = await leader.propose(0.0, 0.0, 0.0)
    settings = replace(leader.server._live.current, pending_requests_max=2)
    leader.drafts.take_settings(settings)
    leader.become_ready()

    assert leader.program.ends == {refused: Outcome.REFUSED, too_late: Outcome.REFUSED}
    leader.confirm_all()
    committed = dict.fromkeys([*waiting, kept], Outcome.COMMITTED)
    assert leader.program.ends == {**committed, refused: Outcome.REFUSED, too_late: Outcome.REFUSED}
    await leader.server.close()


async def test_drafts_of_one_proposal_end_each_in_its_own_time(leader: Leader) -> None:
    old, new = await leader.propose(1.0, 0.0)

    assert leader.ends_after(WAIT_S - 1.0 + LATE_S) == {old: Outcome.UNKNOWN}
    leader.confirm_all()
    assert leader.program.ends[new] is Outcome.COMMITTED
    await leader.server.close()


_folders: Iterator[int] = itertools.count()


@given(
    ages_s=st.lists(st.sampled_from(AGES_S), min_size=1, max_size=20),
    held_s=st.sampled_from(AGES_S).map(lambda age_s: age_s + 0.01),
)
def test_every_draft_ends_in_its_time_and_not_before(
    tmp_path_factory: pytest.TempPathFactory, ages_s: list[float], held_s: float
) -> None:
    """The leader becomes ready after `held_s`, and no follower confirms anything."""

    async def check(folder: Path) -> None:
        server, core = make_server(folder)
        await become_master(server, core)
        leader = Leader(server, core)
        leader.program.ready = False
        drafts = await leader.propose(*ages_s)
        leader.ends_after(held_s)
        leader.become_ready()
        moments: list[tuple[float, Draft, bool]] = []
        for age_s, draft in zip(ages_s, drafts, strict=True):
            was_held = age_s + held_s < HOLD_S
            assert (draft in leader.program.ends) is not was_held
            if was_held:
                moments.append((WAIT_S - age_s - TOGETHER_S - LATE_S, draft, False))
                moments.append((WAIT_S - age_s + TOGETHER_S, draft, True))
        for moment_s, draft, has_ended in sorted(moments, key=lambda moment: moment[0]):
            assert (draft in leader.ends_after(moment_s)) is has_ended
        await server.close()

    asyncio.run(check(tmp_path_factory.mktemp(f"drafts{next(_folders)}")))
