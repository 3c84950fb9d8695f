"""How a leader with damage that it cannot mend hands over before it leaves."""

from collections.abc import Callable

import pytest

from dledger_formats.settings import NodeSettings
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.raft.messages import (
    HeartBeatRequest,
    PreVoteResponse,
    TakeLeadershipRequest,
    VoteResult,
)
from dledger_node.shell.departure import TIMEOUTS_MAX, Departure
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    of_type,
    vote_request,
)

TICK_S = 0.1
DAMAGE = StoreDamagedError("entry 3 is damaged", Damage.BAD_ENTRY)
SETTINGS = NodeSettings(
    group="g",
    self_id="n0",
    store_base_dir="never opened",
    peers={"n0": "127.0.0.1:1", "n1": "127.0.0.1:2", "n2": "127.0.0.1:3"},
    election_timeout_ms=round(ELECTION_TICKS * TICK_S * 1000),
    heartbeat_interval_ms=round(HEARTBEAT_TICKS * TICK_S * 1000),
)


class LeavingLeader:
    """A damaged leader of three or more, whose peers hold its whole log and answer heartbeats."""

    def __init__(self, voter_count: int = 3) -> None:
        self.driver = CoreDriver(terms=[1], voter_count=voter_count)
        self.driver.become_leader()
        for peer_id in self.driver.voters():
            self.driver.agree(peer_id)
            self.driver.receive(
                self.driver.success_from(peer_id, self.driver.raft.ledger_end_index)
            )
        self.now_s = 0.0
        self.asked: list[str] = []
        """The peers that were asked to stand, in order; no repetition of a request."""
        self.departure = Departure(self.driver.raft, self._turn, lambda: self.now_s, SETTINGS)

    def _turn(self, give: Callable[[], None]) -> None:
        give()
        for request in of_type(TakeLeadershipRequest, self.driver.work()):
            self.asked.append(request.receiver)

    def tick(self) -> StoreDamagedError | None:
        """Let a tick pass; return the damage if the member leaves at it."""
        self.now_s += TICK_S
        for beat in of_type(HeartBeatRequest, self.driver.tick()):
            self.driver.receive(self.driver.heard_from(beat.receiver, beat.round))
        return self.departure.due()

    def ticks_until_it_leaves(self) -> int:
        for count in range(1, 10 * ELECTION_TICKS):
            if self.tick() is not None:
                return count
        raise AssertionError("it never leaves")

    def decline(self) -> None:
        """Let the transferee decline."""
        transferee_id, term = self.driver.raft.transferee_id, self.driver.raft.term
        assert transferee_id is not None
        self.driver.receive(
            PreVoteResponse(
                sender=transferee_id, receiver="n0", term=term, requested_term=term,
                result=VoteResult.REJECT_ALREADY_HAS_LEADER,
            )
        )  # fmt: skip


def test_a_damaged_leader_asks_the_next_peer_if_one_declines() -> None:
    leader = LeavingLeader()
    leader.departure.begin(DAMAGE)
    leader.decline()

    assert leader.tick() is None, "it waits for the next peer"
    assert sorted(leader.asked) == ["n1", "n2"]

    raft = leader.driver.raft
    end = (raft.ledger_end_index, raft.ledger_end_term)
    leader.driver.receive(
        vote_request(raft.term + 1, sender=leader.asked[-1], end=end, take_leadership=True)
    )
    assert leader.tick() is DAMAGE


def test_a_damaged_leader_leaves_once_all_peers_have_declined() -> None:
    leader = LeavingLeader(5)
    leader.departure.begin(DAMAGE)
    for _ in range(3):
        leader.decline()
        assert leader.tick() is None
    leader.decline()

    assert leader.tick() is DAMAGE
    assert sorted(leader.asked) == ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize("voter_count", [3, 5, 7])
def test_a_damaged_leader_waits_for_silent_peers_for_a_bounded_time(voter_count: int) -> None:
    leader = LeavingLeader(voter_count)
    leader.departure.begin(DAMAGE)

    assert leader.ticks_until_it_leaves() <= TIMEOUTS_MAX * ELECTION_TICKS + 1
    assert len(leader.asked) == len(set(leader.asked)) == 2, "an election timeout for each"


def test_a_damaged_leader_whose_peers_are_not_fit_leaves_at_once() -> None:
    leader = LeavingLeader()
    leader.driver.tick(3 * HEARTBEAT_TICKS)  # nobody answers
    assert leader.driver.raft.leads
    leader.departure.begin(DAMAGE)

    assert leader.departure.begun
    assert leader.departure.due() is DAMAGE
    assert leader.asked == []
