"""The group in time: each event is a turn of one member or an act from outside."""

import heapq
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from dledger_node.errors import StoreDamagedError
from dledger_node.raft.messages import AppendRequest, InstallSnapshotRequest
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.remoting.read_index_messages import ReadIndexRequest, ReadIndexResponse
from dledger_sim.faults.older_disks import OlderDisks
from dledger_sim.faults.rotting import Rotting
from dledger_sim.group.clients import Clients
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.disk import SimDisk
from dledger_sim.group.events import Events
from dledger_sim.group.kinds import described
from dledger_sim.group.member import SimMember
from dledger_sim.group.moments import Moment
from dledger_sim.group.network import SimLink, SimNetwork
from dledger_sim.group.rotting_disk import make_disks
from dledger_sim.group.snapshots import DIGESTS
from dledger_sim.group.store import HARD_STATE_US, DiedError
from dledger_sim.group.wire import Wire
from dledger_sim.judges.checker import Checker
from dledger_sim.judges.violation import ViolationError
from dledger_sim.runs.choices import Choices, DrawnChoices
from dledger_sim.runs.coverage import Coverage
from dledger_sim.runs.transcript import Transcript, state_of

FOR_READS = (ReadIndexRequest, ReadIndexResponse)
"""Messages that the core never sees."""
NOTICE_US = 500
"""Time until a member learns that a peer's process has died."""


class RunningGroup(Events):
    """Members, their disks, the network between them, and the checker."""

    states = DIGESTS
    """The kind of state that members keep, if they do."""

    def __init__(
        self,
        conditions: Conditions,
        rng: random.Random,
        transcript: Transcript | None = None,
        *,
        choices: Choices | None = None,
        coverage: Coverage | None = None,
    ) -> None:
        super().__init__()
        self.conditions = conditions
        self.fault_count = 0
        self.link_news_count = 0
        """Number of link events (lost or restored) that members received."""
        self.transcript = transcript
        self.choices: Choices = choices or DrawnChoices(rng)
        self.on_moment: Callable[[Moment, str], None] | None = None
        self._disks = make_disks(conditions)
        self.checker = Checker(conditions, self._disks, self.states)
        self.network = SimNetwork(conditions, self.choices)
        self._coverage = coverage
        self._wire = Wire() if conditions.real_bytes else None
        self.members = {
            member_id: self._new_member(member_id, conditions, disk)
            for member_id, disk in self._disks.items()
        }
        self._hear_clients()
        self.older_disks = OlderDisks(conditions, self.members, self._disks, self.checker)
        self.rotting = Rotting(
            conditions, self.members, self.network, self.checker, self, self._start, self._note
        )
        for member_id in conditions.member_ids:
            self._start(member_id)

    def _new_member(self, member_id: str, conditions: Conditions, disk: SimDisk) -> SimMember:
        return SimMember(member_id, conditions, disk, self)

    def _hear_clients(self) -> None:
        clients = Clients(
            self, self.members, self._turn, self._asked, told=self.transcript is not None
        )
        self.propose, self.read, self.read_index = clients.propose, clients.read, clients.read_index
        self.history, self.transfer, self.change = clients.history, clients.transfer, clients.change

    def crash(self, member_id: str, *, down_us: int, told: str = "crashes") -> None:
        """Crash a member, and start it again later; does nothing if the member is down."""
        member = self.members[member_id]
        if member.raft is None or self.older_disks.need(member_id):
            return
        self._note(member_id, told)
        self.fault_count += 1
        member.die()
        self._notice_link(member_id, lost=True)
        self.after(down_us, self._start, member_id)

    # -- calls of members ------------------------------------------------------------------------

    def send(self, message: PeerMessage) -> None:
        """See `World`."""
        if self._coverage is not None and not isinstance(message, FOR_READS):
            self._coverage.sent(message)
        link = self.network.links[message.sender][message.receiver]
        sent: PeerMessage | bytes = message
        if self._wire is not None:
            sent = self._wire.encode(message, self._disks[message.sender])
        for arrival_us in self.network.arrivals_us(self.now_us, link):
            self._planned_count = number = self._planned_count + 1
            arguments = (message.sender, message.receiver, link, link.resets, sent)
            heapq.heappush(self._planned, (arrival_us, number, self._deliver, arguments))

    def later(
        self,
        member_id: str,
        delay_us: int,
        what: str,
        action: Callable[..., None],
        *arguments: Any,
    ) -> None:
        """See `World`."""
        member = self.members[member_id]
        self.after(delay_us, self._thread_works, member, member.life, what, action, arguments)

    def save_takes_a_while(self, member_id: str) -> None:
        """See `World`."""
        member = self.members[member_id]
        self.after(HARD_STATE_US, self._hard_state_saved, member, member.life)

    def flush_begins(self, member_id: str) -> None:
        """See `World`."""
        member = self.members[member_id]
        self.moment(Moment.FLUSH_BEGUN, member_id)
        flush_us = self.choices.delay_us(f"flush {member_id}", self.conditions.flush_us)
        self.after(flush_us, self._flushed, member, member.life)

    def moment(self, moment: Moment, member_id: str) -> None:
        """See `World`."""
        if self.on_moment is not None:
            self.on_moment(moment, member_id)

    # -- events ----------------------------------------------------------------------------------

    def _start(self, member_id: str) -> None:
        member = self.members[member_id]
        if member.raft is not None or not self.rotting.opens(member):
            return
        self._note(member_id, "starts")
        self._notice_link(member_id, lost=False)
        first_tick_us = self.choices.number(
            f"first tick {member_id}", 1, member.tick_us, member.tick_us
        )
        self.after(first_tick_us, self._tick, member, member.life)

    def _tick(self, member: SimMember, life: int) -> None:
        raft = member.raft
        if raft is None or member.life != life:
            return
        if self.now_us < member.paused_until_us:
            self.after(member.paused_until_us - self.now_us, self._tick, member, life)
            return
        next_us, elapsed_ticks = self._ticks(member)
        self.after(next_us, self._tick, member, life)
        if member.disk.damaged:  # found by a client's read
            self._fail(member, DiedError("it has rotted"), "read")
            return
        if member.keeper is not None:
            member.raft.note_state(is_behind=member.keeper.is_behind)
            self.checker.replays.ticks(member.member_id, member.keeper.applied.index)
        room = not member.disk.full
        tick = partial(member.loop.tick, elapsed_ticks, has_room=room)
        self._turn(member, "tick", tick)
        if member.follower_reads is not None:
            member.follower_reads.expire()

    def _ticks(self, member: SimMember) -> tuple[int, int]:
        """Return the time until a member's next tick, and the ticks of time since its last."""
        return member.tick_us, member.elapsed_ticks(self.now_us)

    def _deliver(
        self, sender: str, receiver: str, link: SimLink, resets: int, sent: PeerMessage | bytes
    ) -> None:
        member = self.members[receiver]
        raft = member.raft
        if raft is None or link.resets != resets:
            return
        if self.now_us < member.paused_until_us:
            waiting_us = member.paused_until_us - self.now_us
            self.after(waiting_us, self._deliver, sender, receiver, link, resets, sent)
            return
        message = sent
        if isinstance(message, bytes):
            assert self._wire is not None
            message = self._wire.decode(message, sender, receiver, member.disk)
        if member.keeper is not None and member.keeper.takes(message):
            self._note(receiver, described(message) if self.transcript else "")
            return
        if isinstance(message, FOR_READS):
            if member.follower_reads is not None:
                receive = partial(member.follower_reads.receive, message)
                self._turn(member, described(message) if self.transcript else "", receive)
            return
        if member.disk.full and isinstance(message, AppendRequest | InstallSnapshotRequest):
            return  # no answer; the leader sends the push again
        if self._coverage is not None:
            self._coverage.before(raft, member.disk, message)
        what = described(message) if self.transcript else "message"
        self._turn(member, what, partial(member.loop.step, message))
        if self.older_disks.watch:
            self.older_disks.heard(message)
        if self._coverage is not None:
            self._coverage.after()

    def _asked(self, member: SimMember, client: int, handle: Callable[[], None]) -> None:
        """Handle a client's request."""
        handle()

    def _flushed(self, member: SimMember, life: int) -> None:
        if not self._awake(member, life, self._flushed, member, life):
            return
        if member.changing:  # its report waits
            self.after(HARD_STATE_US, self._flushed, member, life)
            return
        assert member.raft is not None
        fails = f"flush fails {member.member_id}"
        if self.choices.chance(fails, self.conditions.flush_failure):
            self._note(member.member_id, "cannot flush, and stops")
            member.disk.fail_flush()
            self.crash(member.member_id, down_us=HARD_STATE_US)
            return
        durable = member.disk.finish_flush()
        what = f"flushed {durable}" if self.transcript else ""
        self._turn(member, what, partial(member.loop.persisted, *durable) if durable else None)

    def _hard_state_saved(self, member: SimMember, life: int) -> None:
        if not self._awake(member, life, self._hard_state_saved, member, life):
            return
        self._turn(member, "has saved its hard state", member.hard_state_saved)

    def _thread_works(
        self,
        member: SimMember,
        life: int,
        what: str,
        action: Callable[..., None],
        arguments: tuple[Any, ...],
    ) -> None:
        if not self._awake(member, life, self._thread_works, member, life, what, action, arguments):
            return
        try:
            action(*arguments)
        except StoreDamagedError as error:
            self._fail(member, error, "state")
        self._note(member.member_id, what)

    def _free_disk(self, member_id: str) -> None:
        self._note(member_id, "has room again")
        self._disks[member_id].full = False

    def _tell_link(self, member_id: str, peer_id: str, *, lost: bool) -> None:
        site = f"notices {member_id}-{peer_id}"
        if not self.choices.chance(site, 1.0 - self.conditions.notice_link):
            self.after(NOTICE_US, self._link, member_id, peer_id, lost)

    def _link(self, member_id: str, peer_id: str, lost: bool) -> None:
        member = self.members[member_id]
        if not self._awake(member, member.life, self._link, member_id, peer_id, lost):
            return
        assert member.raft is not None
        self.link_news_count += 1
        raft = member.raft
        give = partial(raft.link_lost if lost else raft.link_restored, peer_id)
        what = f"link to {peer_id} {'lost' if lost else 'restored'}"
        self._turn(member, what, partial(member.loop.turn, give))

    # -- helpers ---------------------------------------------------------------------------------

    def _awake(
        self, member: SimMember, life: int, again: Callable[..., None], *arguments: Any
    ) -> bool:
        """Return whether a member may handle an event now; a paused member handles it later."""
        if member.raft is None or member.life != life:
            return False
        if self.now_us < member.paused_until_us:
            self.after(member.paused_until_us - self.now_us, again, *arguments)
            return False
        return True

    def _turn(self, member: SimMember, what: str, turn: Callable[[], None] | None = None) -> None:
        """Run a turn of a member's loop, without an input if `turn` is None, and check the result.

        `what` describes the input in the transcript.
        """
        (turn or member.loop.turn)()
        if member.failure is not None:
            self._note(member.member_id, what)
            self._fail(member, member.failure, "push")
            return
        if not member.saving:  # during a save, the disk lacks the core's writes
            member.judge()
        assert member.raft is not None
        if member.raft.contradiction:
            raise ViolationError(
                "no leader sends a contradictory request",
                f"{member.member_id} refused: {member.raft.contradiction}",
            )
        if self.transcript is not None:
            self._note(member.member_id, what)

    def _fail(self, member: SimMember, error: Exception, found_by: str) -> None:
        """Stop a member that crashed in the middle of a turn or has found damage."""
        told = self.rotting.found(member, error, found_by)
        self.crash(member.member_id, down_us=HARD_STATE_US, told=told)

    def _notice_link(self, member_id: str, *, lost: bool) -> None:
        """Notify the peers of a member, and a starting member itself, of its connections."""
        for peer_id in self.conditions.member_ids:
            if peer_id != member_id:
                self._tell_link(peer_id, member_id, lost=lost)
                if not lost:
                    self._tell_link(member_id, peer_id, lost=False)

    def _note(self, who: str, what: str) -> None:
        if self.transcript is not None:
            state = state_of(self.members[who].raft) if who else ""
            self.transcript.add(self.now_us, self.event_count, who, what, state)
