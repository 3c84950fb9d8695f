"""Three members with changing leaders, and copies of appends that arrive at any time at any leader:
each append is committed once, at the index that was acknowledged.

The members elect and replicate by Raft's rules, with whole logs instead of messages. The subject is
the table: looked up at the proposal, updated with the entry, undone with it.
"""

import random
from dataclasses import dataclass, field

import pytest

from dledger_formats.log import disk
from dledger_formats.log.channels import ChannelRun, channel_of
from dledger_node.store.derived.producers import Finding, Producers

WINDOW = 6
Append = tuple[int, int]  # producer, sequence


@dataclass(frozen=True)
class Entry:
    term: int
    magic: int
    channel: int
    append: Append | None = None


@dataclass
class Member:
    term: int = 0
    leads: bool = False
    committed: int = -1
    log: list[Entry] = field(default_factory=list)
    table: Producers = field(default_factory=lambda: Producers(producers_max=2, window=WINDOW))
    notes_at_commit: bool = False
    """A planted fault: the table notes an append only once it is committed."""

    @property
    def rank(self) -> tuple[int, int]:
        return (self.log[-1].term if self.log else 0, len(self.log))

    def write(self, entry: Entry) -> int:
        self.log.append(entry)
        if entry.channel and not self.notes_at_commit:
            self._note(len(self.log) - 1)
        return len(self.log) - 1

    def cut(self, first_index: int) -> None:
        del self.log[first_index:]
        if not self.notes_at_commit:
            assert self.table.undo_from(first_index)

    def commit(self, index: int) -> None:
        if self.notes_at_commit:
            for noted in range(self.committed + 1, index + 1):
                if self.log[noted].channel:
                    self._note(noted)
        self.committed = max(self.committed, index)
        self.table.mark_stable(self.committed)

    def _note(self, index: int) -> None:
        self.table.note(ChannelRun(index, self.log[index].magic, self.log[index].channel))


class Group:
    def __init__(self, seed: int, *, notes_at_commit: bool = False) -> None:
        self.choices = random.Random(seed)
        self.members = [Member(notes_at_commit=notes_at_commit) for _ in range(3)]
        self.committed: list[Entry] = []
        # The highest sequence sent of each registered producer, and the acknowledged indexes.
        self.sent: dict[int, int] = {}
        self.acknowledged: dict[Append, int] = {}
        self.awaited: list[tuple[Member, int, int, Append | None]] = []

    def elect(self) -> None:
        candidate = self.choices.choice(self.members)
        other = self.choices.choice([m for m in self.members if m is not candidate])
        if other.rank > candidate.rank:
            return
        term = max(member.term for member in self.members) + 1
        for member in (candidate, other):
            member.term, member.leads = term, member is candidate
        candidate.write(Entry(term, disk.NOOP, 0))

    def replicate(self) -> None:
        leaders = [member for member in self.members if member.leads]
        if not leaders:
            return
        leader = self.choices.choice(leaders)
        follower = self.choices.choice([m for m in self.members if m is not leader])
        if follower.term > leader.term:
            leader.leads = False
            return
        if follower.term < leader.term:
            follower.term, follower.leads = leader.term, False
        same = 0
        while same < min(len(leader.log), len(follower.log)):
            if leader.log[same] != follower.log[same]:
                break
            same += 1
        end = min(len(leader.log), same + self.choices.randint(1, 4))
        if same < len(follower.log) and same < end:
            follower.cut(same)
        for entry in leader.log[same:end]:
            follower.write(entry)
        if leader.log[end - 1].term == leader.term and end - 1 > leader.committed:
            self.commit(leader, end - 1)
        follower.commit(min(leader.committed, end - 1))

    def commit(self, leader: Member, index: int) -> None:
        leader.commit(index)
        assert self.committed == leader.log[: len(self.committed)], "the model violates Raft"
        self.committed = leader.log[: index + 1]
        for awaited in list(self.awaited):
            member, term, place, append = awaited
            if member is leader and term == leader.term and place <= index:
                self.awaited.remove(awaited)
                self.acknowledge(append, place)

    def acknowledge(self, append: Append | None, index: int) -> None:
        if append is None:
            self.sent[index] = 0
        else:
            assert self.acknowledged.setdefault(append, index) == index, "two indexes of one append"

    def register(self) -> None:
        for member in self.members:
            if member.leads:
                number = member.table.next_number()
                entry = Entry(member.term, disk.NOOP, channel_of(number, 0))
                self.awaited.append((member, member.term, member.write(entry), None))
                return

    def send(self) -> None:
        """Send a copy of any append, old or new, to any member that considers itself leader."""
        leaders = [member for member in self.members if member.leads]
        if not leaders or not self.sent:
            return
        leader, producer = self.choices.choice(leaders), self.choices.choice(sorted(self.sent))
        acknowledged = max((s for p, s in self.acknowledged if p == producer), default=0)
        newest = min(acknowledged + WINDOW, self.sent[producer] + 1)
        sequence = self.choices.randint(max(1, newest - WINDOW - 3), max(1, newest))
        self.sent[producer] = max(self.sent[producer], sequence)
        append = (producer, sequence)
        found = leader.table.find(producer, sequence)
        if found is Finding.NEW:
            channel = leader.table.channel(producer, sequence)
            index = leader.write(Entry(leader.term, disk.NORMAL, channel, append))
            self.awaited.append((leader, leader.term, index, append))
        elif isinstance(found, int):
            if found <= leader.committed:
                self.acknowledge(append, found)
            else:
                self.awaited.append((leader, leader.term, found, append))

    def send_batch(self) -> None:
        """Send a copy of any batch to any leader, which takes it as a whole or not at all."""
        leaders = [member for member in self.members if member.leads]
        if not leaders or not self.sent:
            return
        leader, producer = self.choices.choice(leaders), self.choices.choice(sorted(self.sent))
        acknowledged = max((s for p, s in self.acknowledged if p == producer), default=0)
        length = self.choices.randint(2, 4)
        first = self.choices.randint(max(1, acknowledged - 2), self.sent[producer] + 1)
        last = first + length - 1
        if last > acknowledged + WINDOW:
            return
        self.sent[producer] = max(self.sent[producer], last)
        if leader.table.find_run(producer, first, last) is not Finding.NEW:
            return
        channels = leader.table.channels(producer, first, length)
        for sequence, channel in enumerate(channels, first):
            append = (producer, sequence)
            index = leader.write(Entry(leader.term, disk.NORMAL, channel, append))
            self.awaited.append((leader, leader.term, index, append))

    def run(self, steps: int) -> None:
        acts = (
            [self.send] * 5
            + [self.send_batch] * 2
            + [self.replicate] * 6
            + [self.elect]
            + [self.register]
        )
        for number in range(steps):
            (self.register if number in (20, 40) else self.choices.choice(acts[:-1]))()
            if self.choices.random() < 0.01:
                self.register()
        appends = [entry.append for entry in self.committed if entry.append is not None]
        assert len(appends) == len(set(appends)), "an append is committed twice"
        for append, index in self.acknowledged.items():
            assert self.committed[index].append == append, "a wrong index was acknowledged"


@pytest.mark.parametrize("seed", range(40))
def test_every_append_is_committed_once_at_its_acknowledged_index(seed: int) -> None:
    Group(seed).run(600)


def test_the_stories_acknowledge_enough_appends_to_be_a_test() -> None:
    group = Group(1)
    group.run(3000)

    assert len(group.acknowledged) > 50
    assert len({producer for producer, _ in group.acknowledged}) > 2


def test_the_judge_detects_a_table_that_notes_only_committed_entries() -> None:
    def is_found_out(seed: int) -> bool:
        try:
            Group(seed, notes_at_commit=True).run(600)
        except AssertionError:
            return True
        return False

    assert any(is_found_out(seed) for seed in range(20))
