"""Random lives of a new group of three that begins with an archive, as long as its settings say so.

One member at a time is killed, or loses its volume and is filled with the archive again, whenever
that happens: the operator may be away and still call the group new. Messages are delayed, lost and
reordered. No term may get two leaders, and no leader may lack a committed entry.
"""

import random
from dataclasses import dataclass, field

import pytest

from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core import Raft
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.log_terms import LogEnd, Seed
from dledger_node.raft.member_state import Role
from dledger_node.raft.membership import Membership
from dledger_node.raft.messages import Message
from dledger_node.raft.ready import HardState, Truncate, WriteNoop, WriteProposal, WritePushed
from dledger_sim.stage.driver import log_of

ARCHIVE = (1, 1, 4, 4)
SEED = Seed(LogEnd(4, 3), "a5" * 32)
SEEDED = HardState(term=4, vote_for=None, joining=True, flushed=True, seed=SEED)
VOTERS = ("n0", "n1", "n2")
STEPS = 3000


@dataclass
class Disk:
    state: HardState = SEEDED
    terms: list[int] = field(default_factory=lambda: list(ARCHIVE))
    flushed: int = len(ARCHIVE)


class Group:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disks = {one: Disk() for one in VOTERS}
        self.cores = {one: self.started(one) for one in VOTERS}
        self.sent: list[Message] = []
        self.leaders: dict[int, str] = {}
        self.committed = list(ARCHIVE)
        self.refilled = 0

    def started(self, one: str) -> Raft:
        disk = self.disks[one]
        del disk.terms[disk.flushed :]
        return Raft(
            RaftConfig(
                self_id=one, voters=VOTERS, addable_ids=("n3",), new_group=True, needs_seed=True,
                heartbeat_ticks=5, election_ticks=20, recall_ticks=20,
            ),
            disk.state,
            log_of(disk.terms),
            committed_index=SEED.end.index,
            incarnation=self.rng.getrandbits(60),
            randint=self.rng.randint,
            memberships=LogMemberships(Membership(VOTERS), ()),
        )  # fmt: skip

    def work(self, one: str) -> None:
        core, disk = self.cores[one], self.disks[one]
        while (ready := core.ready()) is not None:
            disk.state = ready.hard_state or disk.state
            for write in ready.writes:
                match write:
                    case Truncate(first_index=first):
                        del disk.terms[first:]
                        disk.flushed = min(disk.flushed, first)
                    case WriteNoop(index=index, term=term):
                        assert index == len(disk.terms)
                        disk.terms.append(term)
                    case WriteProposal() | WritePushed():
                        assert write.first_index == len(disk.terms)
                        count = write.last_index - write.first_index + 1
                        disk.terms += [write.term] * count
                    case _:
                        raise AssertionError(write)
            self.sent += ready.messages
            core.advance(ready)
        self.judge(one)

    def judge(self, one: str) -> None:
        core, terms = self.cores[one], self.disks[one].terms
        known = terms[: core.committed_index + 1]
        both = min(len(known), len(self.committed))
        assert known[:both] == self.committed[:both], f"{one} has committed other entries"
        self.committed += known[both:]
        if core.role is Role.LEADER:
            assert self.leaders.setdefault(core.term, one) == one, f"two leaders of {core.term}"
            assert terms[: len(self.committed)] == self.committed, f"{one} lacks committed entries"

    def restart(self, one: str) -> None:
        self.sent = [each for each in self.sent if one not in (each.sender, each.receiver)]
        self.cores[one] = self.started(one)
        for other in VOTERS:
            if other != one:
                self.cores[other].link_lost(one)
                self.cores[other].link_restored(one)
                self.work(other)
        self.work(one)

    def step(self) -> None:
        rng, one = self.rng, self.rng.choice(VOTERS)
        match rng.random():
            case chance if chance < 0.75 and self.sent:
                message = self.sent.pop(rng.randrange(len(self.sent)))
                if message.receiver in VOTERS:
                    self.cores[message.receiver].step(message)
                    self.work(message.receiver)
            case chance if chance < 0.85:
                self.cores[one].tick()
                self.work(one)
            case chance if chance < 0.95:
                disk = self.disks[one]
                disk.flushed = len(disk.terms)
                self.cores[one].persisted(len(disk.terms) - 1, disk.terms[-1])
                self.work(one)
            case chance if chance < 0.99:
                self.cores[one].propose(1, "body")
                self.work(one)
            case chance if chance < 0.994:
                self.restart(one)
            case _ if not any(core.joining for core in self.cores.values()):
                self.disks[one] = Disk()
                self.refilled += 1
                self.restart(one)


@pytest.mark.parametrize("seed", range(60))
def test_no_life_of_a_seeded_group_loses_a_promise(seed: int) -> None:
    group = Group(seed)
    for _ in range(STEPS):
        group.step()

    assert group.leaders, "the group has begun"
    assert len(group.committed) > len(ARCHIVE)
    assert group.refilled
