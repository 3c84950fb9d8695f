"""Changes of the leader and elections: logged, and reported to requests that wait for them."""

import asyncio
import logging
import time
from collections.abc import Callable

from dledger_formats.http.status import LeaderView
from dledger_node.config import TICK_MS
from dledger_node.http import status
from dledger_node.raft.core import Raft
from dledger_node.raft.election_causes import Election, ElectionCause

logger = logging.getLogger(__name__)


class LeaderWatch:
    """Compares the core's leader with the one that was reported last."""

    def __init__(self, core: Raft, clock: Callable[[], float] = time.monotonic) -> None:
        """Watch a core; `clock` returns monotonic seconds."""
        self.changes = 0
        """How many leaders of different terms this member has known."""
        self._victory: status.Victory | None = None
        self._clock = clock
        self._stood: tuple[Election, float] | None = None
        """Why and when this member stood first since it knew a leader."""
        self._core = core
        self._counted_term = -1
        self._reported_leader = self._leader()
        self._logged_leader = ""
        self._leader_changed = asyncio.Event()
        self._reported_joining = ""
        self._reported_election = core.last_election
        self._reported_loss = core.last_quorum_loss
        self._searching = False
        """Whether this member has logged an election without a winner and knows no leader since."""

    def on_turn(self, committed_index: int) -> None:
        """Report a change of the leader, or of the reason why a joining member waits."""
        leader, joining = self._leader(), self._core.joining
        if self._core.last_quorum_loss is not self._reported_loss:
            self._reported_loss = self._core.last_quorum_loss
            self._log_quorum_loss()
        if self._core.last_election is not self._reported_election:
            self._reported_election = self._core.last_election
            self._log_election()
            self._note_election()
        if leader != self._reported_leader:
            self._note_leader()
            self._log_leader()
            term, leader_id, _ = leader
            if leader_id is not None and term != self._counted_term:
                self._counted_term = term
                self._searching = False
                self.changes += 1
            self._reported_leader = leader
            self._leader_changed.set()
            self._leader_changed = asyncio.Event()
        if joining != self._reported_joining:
            logger.warning("joining: %s", joining or "done, this member may vote now")
            self._reported_joining = joining

    def _log_leader(self) -> None:
        """Log which leader this member knows, unless that would repeat the last line.

        Until a new leader is master, its line is the same as without a leader.
        """
        text = describe_leader(self.leader_view())
        if text != self._logged_leader:
            self._logged_leader = text
            logger.info("leader: %s", text)

    def _log_quorum_loss(self) -> None:
        """Log why this member no longer leads: that no majority has answered."""
        if (loss := self._core.last_quorum_loss) is not None:
            logger.warning(
                "leader: this member no longer leads term %d: no majority has answered for %d ms",
                loss.term, loss.silent_ticks * TICK_MS,
            )  # fmt: skip

    def _log_election(self) -> None:
        """Log why this member stands for election; of rounds without a winner only the first."""
        election = self._core.last_election
        if election is None or (election.cause is ElectionCause.NO_WINNER and self._searching):
            return
        self._searching = election.cause is ElectionCause.NO_WINNER
        logger.warning("election: %s", describe(election))

    def _note_election(self) -> None:
        """Keep why this member stands; of rounds without a winner, why and when it stood first."""
        election = self._core.last_election
        if election and (self._stood is None or election.cause is not ElectionCause.NO_WINNER):
            self._stood = (election, self._clock())

    def _note_leader(self) -> None:
        """Keep how this member won, once it has proved that it leads, or forget that it stood."""
        if self._stood is None or self._core.leader_id is None:
            return
        if self._core.leads and not self._core.master:
            return
        (election, began_s), self._stood = self._stood, None
        if self._core.master:
            self._victory = status.Victory(
                term=self._core.term,
                stood_because=election.cause.value,
                former_leader_id=election.leader_id or "",
                silent_ms=election.silent_ticks * TICK_MS,
                election_ms=round(1000 * (self._clock() - began_s)),
                proved_s=self._clock(),
            )

    def leader_view(self, group: str = "", identity: str = "") -> LeaderView:
        """Return this member's view of the leader, and how this member won if it is the leader."""
        return status.leader_view(self._core, group, identity, self._victory, self._clock())

    async def leader_changed(self, token: str) -> None:
        """Return once the token of `leader_view` differs from `token`."""
        while status.leader_view(self._core).token == token:
            await self._leader_changed.wait()

    def _leader(self) -> tuple[int, str | None, bool]:
        """Return the values that the token of `leader_view` depends on."""
        return self._core.term, self._core.leader_id, self._core.master


def describe_leader(view: LeaderView) -> str:
    """Describe in one sentence which leader a member knows."""
    if view.leader_id is None:
        return f"this member knows no leader of term {view.term}"
    if not view.master:
        return f"this member follows {view.leader_id}, the leader of term {view.term}"
    return (
        f"this member leads term {view.term}; entries up to {view.committed_index} are committed; "
        f"it took {view.election_ms} ms to be elected"
    )


def describe(election: Election) -> str:
    """Describe in one sentence why a member stands for election."""
    silent_ms, leader_id = election.silent_ticks * TICK_MS, election.leader_id
    match election.cause:
        case ElectionCause.NO_HEARTBEAT:
            why = (
                f"{leader_id}, the leader of term {election.term}, sent nothing for {silent_ms} ms"
            )
        case ElectionCause.LEADER_LINK_LOST:
            why = (
                f"the link to {leader_id}, the leader of term {election.term}, broke, and it sent "
                f"nothing for {silent_ms} ms"
            )
        case ElectionCause.NO_LEADER:
            why = f"it knows no leader of term {election.term}"
        case ElectionCause.NO_WINNER:
            why = f"the last round of votes after term {election.term} had no winner"
        case ElectionCause.TRANSFER:
            why = f"{leader_id}, the leader of term {election.term}, handed over to it"
    return f"this member stands for election because {why}"
