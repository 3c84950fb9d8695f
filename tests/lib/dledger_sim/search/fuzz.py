"""A fuzzer: one production core receives random messages that look real.

Messages are generated from the fields of their classes, so a new kind needs no code here. Numbers
are drawn near those that the core knows, where its rules have their limits. For any message, the
core must not raise an error, and must keep its promises.
"""

import dataclasses
import enum
import random
import types
import typing
from typing import Any, Final

from dledger_node.raft import messages, ready
from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core import Raft
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.log_terms import LogEnd, LogTerms
from dledger_node.raft.membership import (
    AddLearner,
    Demote,
    Membership,
    MembershipEntry,
    Promote,
    Remove,
)
from dledger_node.raft.messages import Message
from dledger_node.raft.ready import HardState
from dledger_node.raft.recall_messages import Mark
from dledger_sim.judges.violation import ViolationError

VOTERS: Final = ("n0", "n1", "n2")
SELF: Final = "n0"
ADDABLE: Final = ("n3",)
STRANGER: Final = "n9"
MEMBERSHIPS: Final = (
    Membership(VOTERS), Membership(VOTERS, ADDABLE), Membership(("n1", "n2"), ("n0",)),
    Membership(("n0", "n1", "n2", "n3")), Membership(("n1",)), Membership(("n0", "n9")),
)  # fmt: skip
LIFE_STEPS: Final = 60
"""Inputs per core. A core that has adopted a far-off term never returns to a near one."""
FAR: Final = 1 << 40
KINDS: Final[tuple[type[Message], ...]] = typing.get_args(messages.Message)


class Fuzzer:
    """Sends random inputs to one core after another."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._begin()

    def run(self, step_count: int) -> dict[str, int]:
        """Send inputs; return how often each kind of message changed the core's state.

        Raises ViolationError if the core raises an error or breaks a promise.
        """
        changed = dict.fromkeys((kind.__name__ for kind in KINDS), 0)
        for number in range(step_count):
            if number % LIFE_STEPS == 0:
                self._begin()
            told = self._known()
            what = self._input()
            if isinstance(what, str):
                continue
            if self._known() != told:
                changed[type(what).__name__] += 1
        return changed

    def _begin(self) -> None:
        """Create a core with a random, partly committed log."""
        rng = self._rng
        terms = sorted(rng.choice((1, 2, 3, 5)) for _ in range(rng.randint(0, 6)))
        log = LogTerms()
        for index, term in enumerate(terms):
            log.append(index, term)
        last_term = terms[-1] if terms else 0
        self._hard_state = HardState(
            term=last_term + rng.randint(0, 2),
            vote_for=rng.choice((None, *VOTERS)),
            joining=rng.random() < 0.15,
            alone=rng.random() < 0.1,
            flushed=True,
        )
        self._terms = terms
        """The terms of the log, according to the writes."""
        self._committed_index = rng.randint(-1, len(terms) - 1)
        self._memberships = [
            MembershipEntry(index, rng.choice(MEMBERSHIPS))
            for index in range(len(terms))
            if rng.random() < 0.03
        ]
        """The memberships in the log, according to the writes."""
        self._raft = Raft(
            RaftConfig(
                self_id=SELF,
                voters=VOTERS,
                addable_ids=ADDABLE,
                heartbeat_ticks=2,
                election_ticks=6,
                push_entries_max=rng.choice((1, 3, 64)),
                inflight_ranges_max=rng.choice((1, 4)),
                lease_ticks=rng.choice((0, 3)),
                recall_ticks=rng.choice((0, 0, 0, 0, 2)),
                preferred_leader_ids=rng.choice(((), ("n1",), ("n0", "n2"))),
            ),
            self._hard_state,
            log,
            committed_index=self._committed_index,
            incarnation=rng.randint(1, 3),
            randint=rng.randint,
            memberships=LogMemberships(Membership(VOTERS), self._memberships),
        )

    def _known(self) -> tuple[Any, ...]:
        raft = self._raft
        return (raft.role, raft.term, raft.vote_for, raft.leader_id, raft.ledger_end_index,
                raft.ledger_end_term, raft.committed_index, raft.contradiction, raft.membership,
                tuple(raft.match_indexes().items()))  # fmt: skip

    def _input(self) -> Message | str:
        """Give the core one input, most often a message, and do its work."""
        rng, raft = self._rng, self._raft
        drawn = rng.random()
        what: Message | str = "a message"
        try:
            if drawn < 0.7:
                what = self._message()
                raft.step(what)
            elif drawn < 0.85:
                what = "tick"
                self._tick()
            else:
                what = rng.choice((self._propose, self._persist, self._link, self._other))()
            self._work()
        except ViolationError:
            raise
        except Exception as error:
            raise ViolationError(
                "no message makes the core raise an error",
                f"{type(error).__name__}: {error}; last input {what!r}",
            ) from error
        return what

    def _tick(self) -> None:
        """Let one tick pass; one that the core calls idle must change nothing but the clock."""
        self._work()
        idle, before = self._raft.idle_ticks() > 0, self._known()
        self._raft.tick()
        if idle and (self._known() != before or self._raft.ready() is not None):
            raise ViolationError("an idle tick changes nothing but the clock", f"{before}")

    def _propose(self) -> str:
        self._raft.propose(self._rng.randint(1, 3), "bodies")
        return "propose"

    def _persist(self) -> str:
        if self._terms:
            index = self._rng.randrange(len(self._terms))
            self._raft.persisted(index, self._terms[index])
        return "persisted"

    def _link(self) -> str:
        tell = self._rng.choice((self._raft.link_lost, self._raft.link_restored))
        tell(self._rng.choice((*VOTERS, *ADDABLE, STRANGER)))
        return "link"

    def _other(self) -> str:
        some_id = self._rng.choice((*VOTERS, *ADDABLE, STRANGER))
        drawn = self._rng.random()
        if drawn < 0.3:
            self._raft.transfer_leadership(some_id)
            return "transfer_leadership"
        if drawn < 0.7:
            kind = self._rng.choice((AddLearner, Promote, Demote, Remove))
            self._raft.change_membership(kind(some_id))
            return "change_membership"
        self._raft.read_index("handle")
        return "read_index"

    def _work(self) -> None:
        """Do the work of each Ready, and check the core's promises."""
        raft = self._raft
        while (batch := raft.ready()) is not None:
            if batch.hard_state is not None:
                self._save(batch.hard_state)
            for write in batch.writes:
                self._write(write)
            for message in batch.messages:
                if message.sender != SELF or message.receiver == SELF:
                    raise ViolationError(
                        "a member sends only in its own name, to peers", f"{message}"
                    )
                if message.term > self._hard_state.term:
                    raise ViolationError("a term is saved before it is sent", f"{message}")
            raft.advance(batch)
        end = (len(self._terms) - 1, self._terms[-1] if self._terms else -1)
        if (raft.ledger_end_index, raft.ledger_end_term) != end:
            raise ViolationError(
                "the core and the disk agree on the end of the log", f"{end}: {self._known()}"
            )
        if not self._committed_index <= raft.committed_index <= end[0]:
            raise ViolationError("the committed index only rises, within the log",
                                 f"{self._committed_index}: {self._known()}")  # fmt: skip
        if raft.durable_index > end[0]:
            raise ViolationError("an entry is durable only after its flush", f"{self._known()}")
        self._committed_index = raft.committed_index
        told = self._memberships[-1].membership if self._memberships else Membership(VOTERS)
        if raft.membership != told:
            raise ViolationError("the core's membership is the one in its log",
                                 f"{told}: {raft.membership}")  # fmt: skip

    def _save(self, hard_state: HardState) -> None:
        before, self._hard_state = self._hard_state, hard_state
        if hard_state.term < before.term:
            raise ViolationError("a term never decreases", f"{before}, then {hard_state}")
        if hard_state.term == before.term and before.vote_for not in (None, hard_state.vote_for):
            raise ViolationError("one vote per term", f"{before}, then {hard_state}")

    def _write(self, write: ready.Write) -> None:
        if isinstance(write, ready.Truncate):
            if write.first_index <= self._committed_index:
                raise ViolationError("a committed entry is never removed", f"{write}")
            del self._terms[write.first_index :]
            while self._memberships and self._memberships[-1].index >= write.first_index:
                self._memberships.pop()
            return
        if isinstance(write, ready.WriteSnapshot):
            if write.first_index <= self._committed_index:
                raise ViolationError("a committed entry is never removed", f"{write}")
            self._terms = [-1] * write.first_index
            self._memberships.clear()
            if write.membership is not None:
                self._memberships.append(MembershipEntry(-1, write.membership))
        match write:
            case ready.WriteNoop(index=index):
                first_index = last_index = index
            case ready.WriteMembership(index=index, membership=membership):
                first_index = last_index = index
                self._memberships.append(MembershipEntry(index, membership))
            case _:
                first_index, last_index = write.first_index, write.last_index
                self._memberships += getattr(write, "memberships", ())
        if first_index != len(self._terms):
            raise ViolationError("the log has no gaps", f"{write} after {len(self._terms)}")
        self._terms += [write.term] * (last_index - first_index + 1)

    # -- messages ------------------------------------------------------------------------------

    def _message(self) -> Message:
        """Generate a message that its constructor accepts."""
        while True:
            kind = self._rng.choice(KINDS)
            hints = _hints(kind)
            values = {
                field.name: self._value(field.name, hints[field.name])
                for field in dataclasses.fields(kind)
            }
            if "first_index" in values and self._rng.random() < 0.9:
                if "previous_index" in values:
                    values["first_index"] = values["previous_index"] + 1
                values["last_index"] = values["first_index"] + self._rng.randint(0, 3)
            if "first_index" in values:
                index = values["first_index"] + self._rng.choice((0, 0, 1, 2))
                few = self._rng.choice((0, 0, 0, 0, 0, 1, 2))
                values["memberships"] = tuple(
                    MembershipEntry(index + at, self._rng.choice(MEMBERSHIPS)) for at in range(few)
                )
            try:
                return kind(**values)
            except ValueError:
                continue

    def _value(self, name: str, hint: Any) -> Any:
        rng, raft = self._rng, self._raft
        if name == "receiver":
            return SELF if rng.random() < 0.98 else "n1"
        if name == "memberships" and hint == tuple[Membership, ...]:
            return tuple(rng.choices(MEMBERSHIPS, k=rng.choice((0, 0, 1, 2))))
        if name == "membership":
            return rng.choice((None, *MEMBERSHIPS))
        if hint in (Mark, LogEnd):
            return hint(*(self._value(*one) for one in typing.get_type_hints(hint).items()))
        if hint is str:
            return rng.choice(("n1", "n1", "n2", "n1", "n2", rng.choice(("n3", STRANGER, "n0"))))
        if hint is bool:
            return rng.random() < 0.5
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return rng.choice(tuple(hint))
        if isinstance(hint, types.UnionType):
            return None if rng.random() < 0.5 else self._value(name, typing.get_args(hint)[0])
        if hint is not int:
            return "bytes"
        if name.endswith("term"):
            near = (raft.term, raft.term, raft.term, raft.term + 1, raft.term - 1,
                    raft.ledger_end_term, 0, -1)  # fmt: skip
        elif name.endswith("index"):
            end = raft.ledger_end_index
            near = (end, end, end + 1, end - 1, raft.committed_index, raft.committed_index + 1,
                    raft.durable_index, 0, -1)  # fmt: skip
        else:
            near = (1, 2, 3, 0, -2, -3, -4)
        return rng.choice(near) if rng.random() < 0.995 else rng.choice((FAR, -FAR))


def _hints(kind: type[Message]) -> dict[str, Any]:
    hints = _HINTS.get(kind)
    if hints is None:
        hints = _HINTS[kind] = typing.get_type_hints(kind)
    return hints


_HINTS: dict[type[Message], dict[str, Any]] = {}
