"""A group without randomness: a script controls the messages, losses and clocks.

Each member has a clock of its own, which the script advances. The stage describes every step in a
line.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core import Raft
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.member_state import Role
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.messages import Message, PreVoteRequest
from dledger_node.raft.proposals import Refusal
from dledger_node.raft.ready import (
    HardState,
    Ready,
    Truncate,
    Write,
    WriteMembership,
    WriteNoop,
    WriteProposal,
)
from dledger_sim.faults.reshaping import change_of
from dledger_sim.group.kinds import described
from dledger_sim.runs.transcript import state_of
from dledger_sim.stage.driver import log_of

STEPS_MAX = 1_000
"""Limit of steps, which only an endless script reaches."""


@dataclass(slots=True, kw_only=True)
class Actor:
    """One member with its disk."""

    raft: Raft | None = None
    hard_state: HardState
    terms: list[int]
    """The term of each entry, flushed or not."""
    durable_count: int
    memberships: list[MembershipEntry] = field(default_factory=list)
    """Memberships in the log."""
    membership: Membership
    """The membership that was described last."""
    joining: str = ""
    """The reason for joining that was described last."""
    life: int = 0
    copy: tuple[HardState, list[int]] | None = None
    """A copy of the disk."""
    dies_before: str = ""
    """The work before which the member crashes: "saving" or "sending"."""
    told: str = ""
    """The state that was described last."""
    refusals: Counter[Any] = field(default_factory=Counter)


class Stage:
    """Members, the messages in transit, and the lines that describe the last steps."""

    def __init__(
        self,
        logs: Sequence[Sequence[int]],
        *,
        flushes: bool,
        terms: Sequence[int],
        voter_count: int,
        **settings: Any,
    ) -> None:
        self.lines: list[str] = []
        self.travelling: deque[Message] = deque()
        self._just_sent: list[Message] = []
        """The messages of the last step."""
        self._settings = settings
        self._flushes = flushes
        self._cut: set[str] = set()
        self._ids = tuple(f"n{number}" for number in range(len(logs)))
        self._first = Membership(self._ids[:voter_count])
        self._leaders: dict[int, str] = {}
        self._committed: list[int] = []
        self.actors = {
            member_id: Actor(
                hard_state=HardState(term=term, vote_for=None),
                terms=list(log),
                durable_count=len(log),
                membership=self._first,
            )
            for member_id, log, term in zip(self._ids, logs, terms, strict=True)
        }
        for member_id in self._ids:
            self.start(member_id)
        self.lines.clear()

    # -- calls of a script -------------------------------------------------------------------------

    def start(self, member_id: str) -> None:
        """Start a member from its disk."""
        actor = self.actors[member_id]
        actor.life += 1
        actor.raft = Raft(
            RaftConfig(
                self_id=member_id,
                voters=self._first.voters,
                addable_ids=self._ids[len(self._first.voters) :],
                **self._settings,
            ),
            actor.hard_state,
            log_of(actor.terms),
            committed_index=-1,
            incarnation=actor.life,
            randint=_lowest,
            memberships=LogMemberships(self._first, actor.memberships),
        )
        actor.membership = actor.raft.membership
        actor.refusals = Counter()
        self._tell(member_id, "starts")

    def crash(self, member_id: str) -> None:
        """Crash a member; its unflushed entries are lost."""
        actor = self.actors[member_id]
        actor.raft, actor.dies_before = None, ""
        _cut(actor, actor.durable_count)
        self._tell(member_id, "dies")

    def copy(self, member_id: str) -> None:
        """Copy the durable content of a member's disk."""
        actor = self.actors[member_id]
        actor.copy = actor.hard_state, actor.terms[: actor.durable_count]

    def restore(self, member_id: str) -> None:
        """Roll the disk of a crashed member back to the copy."""
        actor = self.actors[member_id]
        assert actor.raft is None, f"{member_id} is running"
        assert actor.copy is not None, f"the disk of {member_id} was never copied"
        _cut(actor, 0)
        actor.hard_state, actor.terms = actor.copy[0], list(actor.copy[1])
        actor.durable_count = len(actor.terms)

    def doom(self, member_id: str, work: str) -> None:
        """Let a member crash before its next work of a kind."""
        self.actors[member_id].dies_before = work

    def tick(self, member_id: str, count: int) -> None:
        """Let ticks of a member pass."""
        for _ in range(count):
            self._raft(member_id).tick()
            self._work(member_id, "tick", idle=True)

    def time_out(self, member_id: str) -> None:
        """Let ticks pass until a member sends pre-votes, or a leader steps down."""
        role = self._raft(member_id).role
        for _ in range(STEPS_MAX):
            self.tick(member_id, 1)
            asks = any(isinstance(message, PreVoteRequest) for message in self._just_sent)
            if self._raft(member_id).role is not role or asks:
                return
        raise AssertionError(f"{member_id} does not time out within {STEPS_MAX} ticks")

    def append(self, member_id: str, count: int) -> None:
        """Append entries to a member."""
        asked = self._raft(member_id).propose(count, None)
        self._work(member_id, _answered(f"is asked to append {count}", asked))

    def read(self, member_id: str, name: str) -> None:
        """Send a linearizable read to a member."""
        refusal = self._raft(member_id).read_index(name)
        self._work(member_id, _answered(f"is asked to read: {name}", refusal))

    def transfer(self, member_id: str, transferee_id: str) -> None:
        """Request a leadership transfer from a member."""
        refusal = self._raft(member_id).transfer_leadership(transferee_id)
        self._work(member_id, _answered(f"is asked to hand over to {transferee_id}", refusal))

    def change(self, member_id: str, kind: str, changed_id: str) -> None:
        """Request a membership change from a member."""
        answer = self._raft(member_id).change_membership(change_of(kind, changed_id))
        self._work(member_id, _answered(f"is asked to {kind} {changed_id}", answer))

    def link(self, member_id: str, peer_id: str, *, lost: bool) -> None:
        """Notify a member that its connection to a peer was lost or restored."""
        raft = self._raft(member_id)
        (raft.link_lost if lost else raft.link_restored)(peer_id)
        self._work(member_id, f"{'loses' if lost else 'has'} its connection to {peer_id}")

    def flush(self, member_id: str) -> None:
        """Make a member's whole log durable."""
        actor, raft = self.actors[member_id], self._raft(member_id)
        actor.durable_count = len(actor.terms)
        raft.persisted(raft.ledger_end_index, raft.ledger_end_term)
        self._work(member_id, "flushes")

    def cut(self, member_id: str) -> None:
        """Drop all messages to and from a member from now on."""
        self._cut.add(member_id)

    def heal(self) -> None:
        """Remove all cuts."""
        self._cut.clear()

    def deliver(self, chosen: Sequence[Message] | None = None) -> None:
        """Deliver the chosen messages, or all, with all messages that they cause."""
        if chosen is not None:
            for message in chosen:
                self.travelling.remove(message)
                self._arrive(message)
            return
        for _ in range(STEPS_MAX):
            if not self.travelling:
                return
            self._arrive(self.travelling.popleft())
        raise AssertionError(f"members still send messages after {STEPS_MAX} steps")

    def lose(self, chosen: Sequence[Message]) -> None:
        """Drop the chosen messages."""
        for message in chosen:
            self.travelling.remove(message)
            self.lines.append(f"      lost  {described(message)}")

    def living(self) -> list[str]:
        """Return the running members."""
        return [member_id for member_id, actor in self.actors.items() if actor.raft]

    def states(self) -> list[str]:
        """Return a line for the state of each member."""
        return [f"  {member_id}  {actor.told}" for member_id, actor in self.actors.items()]

    def show(self) -> None:
        """Describe the messages in transit, and every member's log."""
        self.lines += [f"      on its way  {described(message)}" for message in self.travelling]
        for member_id, actor in self.actors.items():
            terms = " ".join(map(str, actor.terms)) or "nothing"
            self.lines.append(f"  {member_id}  holds entries of the terms {terms}")

    # -- steps of members --------------------------------------------------------------------------

    def _raft(self, member_id: str) -> Raft:
        raft = self.actors[member_id].raft
        assert raft is not None, f"{member_id} is down"
        return raft

    def _arrive(self, message: Message) -> None:
        raft = self.actors[message.receiver].raft
        if raft is None or {message.sender, message.receiver} & self._cut:
            self.lines.append(f"      lost  {described(message)}")
            return
        raft.step(message)
        self._work(message.receiver, described(message))

    def _work(self, member_id: str, what: str, *, idle: bool = False) -> None:
        """Do the work of a core, as a shell does, and describe it."""
        actor, raft = self.actors[member_id], self._raft(member_id)
        notes: list[str] = []
        self._just_sent = []
        while (ready := raft.ready()) is not None:
            if (ready.hard_state and actor.dies_before == "saving") or (
                ready.messages and actor.dies_before == "sending"
            ):
                if actor.dies_before == "sending":
                    self._keep(actor, ready)
                self._tell(member_id, what)
                self.crash(member_id)
                return
            self._keep(actor, ready)
            self.travelling += ready.messages
            self._just_sent += ready.messages
            notes += [
                f"read {read.handle}: "
                + ("not answered" if read.index is None else f"sees up to {read.index}")
                for read in ready.reads
            ]
            raft.advance(ready)
            if self._flushes and actor.durable_count < len(actor.terms):
                actor.durable_count = len(actor.terms)
                raft.persisted(raft.ledger_end_index, raft.ledger_end_term)
        notes += [f"refused: {cause.value}" for cause in Counter(raft.refusals) - actor.refusals]
        actor.refusals = Counter(raft.refusals)
        if raft.joining != actor.joining:
            actor.joining = raft.joining
            notes.append(f"joining: {raft.joining or 'done'}")
        if raft.membership != actor.membership:
            actor.membership = raft.membership
            notes.append(_told(raft.membership))
        if not idle or notes or self._just_sent or state_of(raft) != actor.told:
            self._tell(member_id, what)
            self.lines += [f"        {note}" for note in notes]
        self._judge(member_id, raft)

    def _keep(self, actor: Actor, ready: Ready) -> None:
        actor.hard_state = ready.hard_state or actor.hard_state
        for write in ready.writes:
            _write(actor, write)

    def _tell(self, member_id: str, what: str) -> None:
        actor = self.actors[member_id]
        actor.told = state_of(actor.raft)
        self.lines.append(f"  {member_id}  {what:68} {actor.told}".rstrip())

    def _judge(self, member_id: str, raft: Raft) -> None:
        """Check that a term has one leader, and that all members commit the same entries."""
        if raft.role is Role.LEADER:
            assert self._leaders.setdefault(raft.term, member_id) == member_id
        committed = self.actors[member_id].terms[: raft.committed_index + 1]
        count = min(len(committed), len(self._committed))
        assert committed[:count] == self._committed[:count]
        self._committed = max(self._committed, committed, key=len)


def _write(actor: Actor, write: Write) -> None:
    match write:
        case Truncate(first_index=first_index):
            _cut(actor, first_index)
            actor.durable_count = min(actor.durable_count, first_index)
        case WriteNoop(index=index, term=term):
            assert index == len(actor.terms)
            actor.terms.append(term)
        case WriteMembership(index=index, term=term, membership=membership):
            assert index == len(actor.terms)
            actor.terms.append(term)
            actor.memberships.append(MembershipEntry(index, membership))
        case _:
            if not isinstance(write, WriteProposal):
                actor.memberships += write.memberships
            assert write.first_index == len(actor.terms)
            actor.terms += [write.term] * (write.last_index - write.first_index + 1)


def _cut(actor: Actor, first_index: int) -> None:
    del actor.terms[first_index:]
    actor.memberships = [entry for entry in actor.memberships if entry.index < first_index]


def _told(membership: Membership) -> str:
    learners = f", learners {' '.join(membership.learners)}" if membership.learners else ""
    return f"now: voters {' '.join(membership.voters)}{learners}"


def _answered(asked: str, answer: object) -> str:
    return f"{asked}: {answer.reason.value}" if isinstance(answer, Refusal) else asked


def _lowest(low: int, high: int) -> int:
    return low
