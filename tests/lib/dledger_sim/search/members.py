"""Every state of a member, by number, and the effect of each input.

A core's step depends only on its state and its input, so each step is computed once.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final, NamedTuple

from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core import Raft
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.log_terms import LogTerms
from dledger_node.raft.member_state import Leader
from dledger_node.raft.membership import Membership
from dledger_node.raft.messages import Message
from dledger_node.raft.ready import HardState, Ready
from dledger_sim.judges.violation import ViolationError
from dledger_sim.search.crashes import Disk, Image, disk_after, images
from dledger_sim.search.frozen import LONG_TICKS, Bytes, frozen, lowest, rank, stop_clock
from dledger_sim.search.judge import Seen, Terms, judge_step, judge_told
from dledger_sim.search.scope import Scope

TIMEOUT, HEARTBEAT, PROPOSE, FLUSH, CHANGE = -1, -2, -3, -4, -5
"""Inputs other than messages, which are numbers from 0 on. Below CHANGE are further changes."""
MESSAGES_MAX: Final = 16_384


class Start(NamedTuple):
    """A member after a crash and its restart."""

    state: int
    sent: int
    """Set of messages, one bit each: sent before the crash, and at the restart."""


class Step(NamedTuple):
    """The effect of an input on a member."""

    state: int
    sent: int
    """Set of messages, one bit each."""
    dies: tuple[Start, ...]
    """Restarts after a crash during the input that no crash before or after the input produces."""


class Members:
    """The states of all members. Each state belongs to one member."""

    def __init__(self, scope: Scope) -> None:
        self.ids = tuple(f"n{number}" for number in range(scope.member_count))
        self.first = scope.first or Membership(self.ids)
        self.crash = scope.crashes_max > 0
        """Whether members may crash."""
        self.seen: list[Seen] = []
        self.inputs: list[tuple[int, ...]] = []
        self.ranks: list[int] = []
        self.whose: list[int] = []
        """The member of each state."""
        self.addressed = [self._all_addressed(number) for number in range(scope.member_count)]
        """For each member, the set of all messages that it can receive."""
        self.messages: dict[int, Message] = {}
        self._steps: list[dict[int, Step]] = []
        self._scope = scope
        self._lives: list[int] = []
        self._disks: list[Disk] = []
        self._bytes = Bytes()
        self._blobs: list[bytes] = []
        self._numbers: dict[Any, int] = {}
        self._message_numbers: dict[Message, int] = {}
        self._message_counts = [1] * scope.member_count  # bit 0 belongs to no message
        self._starts: dict[int, tuple[Start, ...]] = {}
        self._restarted: dict[tuple[int, int, Image], Start] = {}
        self._at_hand: tuple[int, Raft] | None = None
        """The last core in use, and its state."""

    def first_state(self, number: int) -> int:
        """Return the state of a member at the founding of the group."""
        hard_state = HardState(term=0, vote_for=None, flushed=True)
        terms: Terms = ()
        if number == self._scope.member_count - 1:
            terms = (0,) * self._scope.stranger_entries  # no leader here has term 0
        last_index = len(terms) - 1
        raft = self._raft(number, 0, Image(hard_state, terms, last_index, frozenset()))
        disk = Disk(hard_state, terms, last_index, frozenset(), last_index, frozenset())
        return self._state(number, 0, raft, disk)

    def step(self, state: int, input_: int) -> Step:
        """Give the production core one input; return the effect."""
        known = self._steps[state].get(input_)
        if known is not None:
            return known
        raft = self._core(state)
        number, life, disk = self.whose[state], self._lives[state], self._disks[state]
        self._take(raft, input_)
        sent = 0
        moments: list[tuple[Disk, int]] = []
        while (ready := raft.ready()) is not None:
            for message in ready.messages:
                sent |= 1 << self._number_of(message)
            durable_index = raft.durable_index
            raft.advance(ready)
            self._judge_told(ready, raft, durable_index)
            disk = disk_after(raft, disk, ready)
            moments.append((disk, sent))
            if not self._scope.flush_apart:
                raft.persisted(raft.ledger_end_index, raft.ledger_end_term)
        disk = disk_after(raft, disk, None)
        after = self._state(number, life, raft, disk)
        judge_step(self.seen[state], self.seen[after])
        self._at_hand = (after, raft)
        may_die = self._scope.crashes_max and moments
        dies = tuple(self._dies(state, after, moments)) if may_die else ()
        step = Step(after, sent, dies)
        if after != state or sent or dies:  # the search asks for no other step twice
            self._steps[state][input_] = step
        return step

    def steps_of(self, state: int) -> Iterable[tuple[int, Step]]:
        """Return the inputs that a state has taken, with their effects."""
        return self._steps[state].items()

    def starts(self, state: int) -> tuple[Start, ...]:
        """Return the restarts that may follow a crash in a state."""
        starts = self._starts.get(state)
        if starts is None:
            number, life = self.whose[state], self._lives[state]
            starts = tuple(
                {self._start(number, life, image) for image in images(self._disks[state])}
            )
            self._starts[state] = starts
        return starts

    # -- inputs ----------------------------------------------------------------------

    def _take(self, raft: Raft, input_: int) -> None:
        member = raft._member
        if input_ >= 0:
            raft.step(self.messages[input_])
        elif input_ == TIMEOUT:
            member.now_ticks = member.election_deadline = LONG_TICKS
            raft.tick()
        elif input_ == HEARTBEAT:
            raft.tick()
        elif input_ == PROPOSE:
            raft.propose(1, None)
        elif input_ == FLUSH:
            raft.persisted(raft.ledger_end_index, raft.ledger_end_term)
        else:
            raft.change_membership(self._scope.changes[CHANGE - input_])

    def _inputs_of(self, number: int, raft: Raft) -> Iterator[int]:
        scope, part = self._scope, raft._member.role_state
        if isinstance(part, Leader):
            if part.heartbeat_round < scope.heartbeat_rounds_max:
                yield HEARTBEAT
            if raft.ledger_end_index + 1 < scope.entries_max:
                yield PROPOSE
                if not raft._member.memberships.changed:
                    yield from range(CHANGE, CHANGE - len(scope.changes), -1)
        elif raft.recalling or (raft.term < scope.terms_max and number < scope.candidates_max):
            yield TIMEOUT
        if raft.durable_index < raft.ledger_end_index:
            yield FLUSH

    def _judge_told(self, ready: Ready, raft: Raft, durable_index: int) -> None:
        if self._scope.crashes_max:
            for message in ready.messages:
                judge_told(message, raft._saved_hard_state, durable_index)

    def _all_addressed(self, number: int) -> int:
        count = len(self.ids)
        return sum(1 << bit for bit in range(count + number, MESSAGES_MAX, count))

    def _number_of(self, message: Message) -> int:
        """Return the number of a message; its remainder identifies the receiver."""
        number = self._message_numbers.get(message)
        if number is None:
            count, receiver = len(self.ids), self.ids.index(message.receiver)
            number = count * self._message_counts[receiver] + receiver
            assert number < MESSAGES_MAX
            self._message_counts[receiver] += 1
            self._message_numbers[message] = number
            self.messages[number] = message
        return number

    # -- states ---------------------------------------------------------------------------

    def _core(self, state: int) -> Raft:
        """Return a core in a state. Most inputs do not change the core, so it is often at hand."""
        at_hand, self._at_hand = self._at_hand, None
        if at_hand is not None and at_hand[0] == state:
            return at_hand[1]
        return self._bytes.raft(self._blobs[state])

    def _state(self, number: int, life: int, raft: Raft, disk: Disk) -> int:
        """Return the number of a core's state, with its clock stopped."""
        member = raft._member
        stop_clock(member, marks=self._scope.recalls)
        life = life if self._scope.recalls else 0
        key = (number, life, frozen(member), raft._saved_hard_state, disk.earlier, disk.votes)
        known = self._numbers.get(key)
        if known is not None:
            return known
        if member.joining is not None:
            raise ViolationError(
                "an intact disk is not treated as rolled back", member.joining.reason
            )
        state = self._numbers[key] = len(self._blobs)
        self._blobs.append(self._bytes.of(raft))
        seen = Seen(
            raft.role,
            raft.term,
            disk.terms,
            raft.committed_index,
            raft.durable_index,
            member.memberships.last_index,
            raft.membership,
        )
        self.seen.append(seen)
        self.ranks.append(rank(member))
        self._steps.append({})
        self.inputs.append(tuple(self._inputs_of(number, raft)))
        self.whose.append(number)
        self._lives.append(life)
        self._disks.append(disk)
        return state

    # -- crashes -----------------------------------------------------------------------------------

    def _dies(self, state: int, after: int, moments: list[tuple[Disk, int]]) -> Iterator[Start]:
        """Yield the restarts after crashes in the middle of an input.

        A crash just before the end of the input equals a crash after it, and a crash before the
        first message equals a crash before the input.
        """
        number, life = self.whose[state], self._lives[state]
        done = {*images(self._disks[after])}
        before = {*images(self._disks[state])}
        for disk, sent in reversed(moments):
            for image in images(disk):
                if image not in done and (sent or image not in before):
                    done.add(image)
                    start = self._start(number, life, image)
                    yield Start(start.state, start.sent | sent)

    def _start(self, number: int, life: int, image: Image) -> Start:
        """Return a restart from what the crash left."""
        key = (number, life, image)
        start = self._restarted.get(key)
        if start is not None:
            return start
        raft = self._raft(number, life + 1, image)
        sent = 0
        if self._scope.recalls:
            raft.tick()
            while (ready := raft.ready()) is not None:
                assert ready.hard_state is None
                for message in ready.messages:
                    sent |= 1 << self._number_of(message)
                raft.advance(ready)
        hard_state, terms, committed_index, votes = image
        disk = Disk(hard_state, terms, len(terms) - 1, frozenset(), committed_index, votes)
        start = Start(self._state(number, life + 1, raft, disk), sent)
        self._restarted[key] = start
        return start

    def _raft(self, number: int, life: int, image: Image) -> Raft:
        runs: list[tuple[int, int]] = []
        for term, entries in groupby(enumerate(image.terms), key=lambda entry: entry[1]):
            runs.append((next(entries)[0], term))
        return Raft(
            RaftConfig(
                self_id=self.ids[number],
                voters=self.first.voters,
                addable_ids=tuple(one for one in self.ids if one not in self.first.voters),
                heartbeat_ticks=1,
                election_ticks=4,
                push_entries_max=1,
                recall_ticks=LONG_TICKS if self._scope.recalls and life else 0,
            ),
            image.hard_state,
            LogTerms(0, runs, len(image.terms) - 1),
            committed_index=image.committed_index,
            incarnation=life,
            randint=lowest,
            memberships=LogMemberships(self.first),
        )
