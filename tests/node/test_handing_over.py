"""How a leader that stops hands over, if its peers decline or do not stand."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from dledger_node.raft.messages import (
    HeartBeatRequest,
    Message,
    PreVoteResponse,
    TakeLeadershipRequest,
    VoteResult,
)
from dledger_node.services.transfer import LeadershipTransfers
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    of_type,
    vote_request,
)

PEERS = ("n1", "n2")
TIMEOUT_S = 60.0


class StoppingLeader:
    """A leader whose peers hold its whole log and answer its heartbeats, and which hands over."""

    def __init__(self) -> None:
        self.driver = CoreDriver(terms=[1])
        self.driver.become_leader()
        for peer_id in PEERS:
            self.driver.agree(peer_id)
            self.driver.receive(self.driver.success_from(peer_id, self.end_index))
        self.asked: list[str] = []
        """The peers that were asked to stand, in order; no repetition of a request."""
        self._transfers = LeadershipTransfers(
            self.driver.raft, group="g", timeout_s=TIMEOUT_S, drive=self.turn
        )

    @property
    def end_index(self) -> int:
        return self.driver.raft.ledger_end_index

    def turn(self, give: Callable[[], object]) -> None:
        """Give the core an input, do its work, and notify the transfers, as the loop does."""
        was_transferee = self.driver.raft.transferee_id
        give()
        self._note(self.driver.work(), was_transferee)
        self._transfers.on_turn(self.driver.raft.committed_index)

    def _note(self, messages: list[Message], was_transferee: str | None) -> None:
        for request in of_type(TakeLeadershipRequest, messages):
            if request.receiver != was_transferee:
                self.asked.append(request.receiver)

    @contextlib.contextmanager
    def handing_over(self) -> Iterator["asyncio.Task[None]"]:
        task = asyncio.create_task(self._transfers.hand_over(TIMEOUT_S))
        yield task
        task.cancel()

    async def decline(self) -> None:
        """Let the transferee decline."""
        transferee_id = self.driver.raft.transferee_id
        assert transferee_id is not None
        term = self.driver.raft.term
        answer = PreVoteResponse(
            sender=transferee_id, receiver="n0", term=term, requested_term=term,
            result=VoteResult.REJECT_ALREADY_HAS_LEADER,
        )  # fmt: skip
        self.turn(lambda: self.driver.raft.step(answer))
        await settle()

    async def pass_time(self, ticks: int) -> None:
        """Let ticks pass while the peers answer heartbeats."""
        for _ in range(ticks):
            messages = list[Message]()
            self.turn(lambda: messages.extend(self.driver.tick()))  # noqa: B023 - called at once
            for beat in of_type(HeartBeatRequest, messages):
                answer = self.driver.heard_from(beat.receiver, beat.round)
                self.turn(lambda: self.driver.raft.step(answer))  # noqa: B023 - called at once
            await settle()

    async def lose_to(self, peer_id: str) -> None:
        """Let a peer stand, and win."""
        term, end = self.driver.raft.term, (self.end_index, self.driver.raft.ledger_end_term)
        request = vote_request(term + 1, sender=peer_id, end=end, take_leadership=True)
        self.turn(lambda: self.driver.raft.step(request))
        await settle()


async def settle() -> None:
    """Let the task that hands over go on until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_leader_that_stops_waits_until_a_peer_that_has_declined_is_fit_again() -> None:
    leader = StoppingLeader()
    with leader.handing_over() as task:
        await settle()
        for _ in PEERS:
            await leader.decline()
        assert sorted(leader.asked) == ["n1", "n2"]
        assert not task.done(), "nobody leads if it stops now"

        await leader.pass_time(ELECTION_TICKS + HEARTBEAT_TICKS)
        assert len(leader.asked) == 3
        await leader.lose_to(leader.asked[-1])

        assert task.done()
        assert not leader.driver.raft.leads


async def test_a_leader_that_stops_takes_appends_while_it_waits_for_peers_that_declined() -> None:
    leader = StoppingLeader()
    with leader.handing_over():
        await settle()
        for _ in PEERS:
            await leader.decline()

        assert leader.driver.raft.transferee_id is None


async def test_a_leader_that_stops_asks_no_peer_again_that_does_not_stand() -> None:
    leader = StoppingLeader()
    with leader.handing_over() as task:
        await settle()
        await leader.pass_time(3 * ELECTION_TICKS)

        assert sorted(leader.asked) == ["n1", "n2"]
        assert task.done(), "no other peer is fit"
        assert leader.driver.raft.leads
        assert leader.driver.raft.transferee_id is None


async def test_a_leader_that_stops_waits_for_a_transfer_that_is_under_way() -> None:
    leader = StoppingLeader()
    leader.turn(lambda: leader.driver.raft.transfer_leadership("n2"))
    with leader.handing_over() as task:
        await settle()
        assert not task.done()

        await leader.decline()

        assert leader.asked == ["n2", "n1"]
