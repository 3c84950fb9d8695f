"""The table of producers compared with a model that keeps every entry of the log."""

import random
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from dledger_formats.log import disk
from dledger_formats.log.channels import ChannelRun, channel_of, runs_of
from dledger_node.store.derived import producers_file, stable_copy
from dledger_node.store.derived.producers import ESTABLISHED_SEQUENCE, Finding, Producers
from dledger_node.store.derived.producers_file import Image

WINDOW = 8
LIMITS = {"producers_max": 3, "window": WINDOW, "undo_max": 40}
"""So small that the test reaches them often."""


@dataclass
class Log:
    """All entries: registrations, and appends as (producer, sequence)."""

    entries: list[tuple[ChannelRun, tuple[int, int] | None]] = field(default_factory=list)
    stable_index: int = -1

    @property
    def next_index(self) -> int:
        return max(self.stable_index, self.entries[-1][0].first_index if self.entries else -1) + 1

    def known(self) -> dict[int, dict[int, int]]:
        """Return the indexes by sequence of every producer that has not been dropped."""
        numbers: dict[int, int] = {}
        indexes: dict[int, dict[int, int]] = defaultdict(dict)
        for entry, append in self.entries:
            if append is None:
                numbers[entry.channel >> 16] = entry.first_index
            else:
                indexes[append[0]][append[1]] = entry.first_index
        return {identity: indexes[identity] for identity in numbers.values()}

    def find(self, identity: int, sequence: int) -> int | Finding:
        """Return the result that the table must have."""
        known = self.known()
        if identity not in known:
            return Finding.UNKNOWN_PRODUCER
        highest = max(known[identity], default=0)
        if sequence > highest:
            return Finding.NEW if sequence <= highest + WINDOW else Finding.TOO_NEW
        if sequence <= highest - WINDOW:
            return Finding.TOO_OLD
        return known[identity].get(sequence, Finding.NEW)


def assert_agree(table: Producers, log: Log, identities: set[int]) -> None:
    known = log.known()
    assert len(table) == len(known)
    for identity in identities:
        near = max(known.get(identity, {}), default=0)
        for sequence in range(max(1, near - WINDOW - 2), near + WINDOW + 3):
            assert table.find(identity, sequence) == log.find(identity, sequence)


def saved_and_read(table: Producers) -> tuple[Producers, int] | None:
    stable = table.stable_copy()
    if stable is None:
        return None
    image = Image(index=max(table.stable_index, 0), term=1, chain_crc=2, producers=stable)
    read = producers_file.decode(producers_file.encode(image), window=WINDOW)
    assert read == image
    return Producers(read.producers, table.stable_index, **LIMITS), table.stable_index


class Story:
    """One log, and the table that must agree with it."""

    def __init__(self, seed: int) -> None:
        self.choices = random.Random(seed)
        self.log = Log()
        self.table = Producers(**LIMITS)
        self.identities: set[int] = {-5, 10**9}

    def note(self, entry: ChannelRun, append: tuple[int, int] | None) -> None:
        self.log.entries.append((entry, append))
        self.table.note(entry)

    def register(self) -> None:
        number = self.table.next_number()
        index = self.log.next_index + self.choices.randrange(3)  # ordinary appends between
        self.note(ChannelRun(index, disk.NOOP, channel_of(number, 0)), None)
        self.identities.add(index)

    def append(self) -> None:
        """Append a sequence as a leader does: only if it is new."""
        known = self.log.known()
        if not known:
            return
        identity = self.choices.choice(sorted(known))
        highest = max(known[identity], default=0)
        sequence = max(1, highest + self.choices.choice([1] * 9 + [-3, -1, 2, 5, WINDOW]))
        if self.table.find(identity, sequence) is Finding.NEW:
            channel = self.table.channel(identity, sequence)
            entry = ChannelRun(self.log.next_index, disk.NORMAL, channel)
            self.note(entry, (identity, sequence))

    def append_batch(self) -> None:
        """Append consecutive sequences as a leader does: only if all are above the highest."""
        known = self.log.known()
        if not known:
            return
        identity = self.choices.choice(sorted(known))
        highest = max(known[identity], default=0)
        first = max(1, highest + self.choices.choice([1, 1, 1, -1, 0, 2, 3]))
        length = self.choices.randint(1, WINDOW + 2)
        last = first + length - 1
        found = self.table.find_run(identity, first, last)
        if first <= highest:
            assert found is None
        else:
            assert found is (Finding.NEW if last <= highest + WINDOW else Finding.TOO_NEW)
        if found is Finding.NEW:
            index, channels = self.log.next_index, self.table.channels(identity, first, length)
            for at, channel in enumerate(channels):
                entry = ChannelRun(index + at, disk.NORMAL, channel)
                self.log.entries.append((entry, (identity, first + at)))
            for run in runs_of(index, disk.NORMAL, channels):
                self.table.note(run)

    def truncate(self) -> None:
        first_index = self.choices.randint(self.log.stable_index + 1, self.log.next_index)
        kept = [pair for pair in self.log.entries if pair[0].first_index < first_index]
        self.log.entries = kept
        if not self.table.undo_from(first_index):  # too many to undo: read the log again
            self.table = Producers(**LIMITS)
            for entry, _ in kept:
                self.table.note(entry)
            self.table.mark_stable(self.log.stable_index)

    def mark_stable(self) -> None:
        log = self.log
        log.stable_index = self.choices.randint(log.stable_index, log.next_index - 1)
        self.table.mark_stable(log.stable_index)

    def restart(self) -> None:
        """Save and load the table, and note the entries after it."""
        restored = saved_and_read(self.table)
        if restored is None:
            return
        self.table, index = restored
        for entry, _ in self.log.entries:
            if entry.first_index > index:
                self.table.note(entry)


@pytest.mark.parametrize("seed", range(10))
def test_a_copy_that_is_made_while_the_table_goes_on_is_that_of_its_beginning(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stable_copy, "PART", 1)
    story = Story(seed)
    acts = [story.append] * 8 + [story.append_batch] + [story.register, story.mark_stable]
    for _ in range(200):
        story.choices.choice(acts)()
        expected, copy = story.table.stable_copy(), story.table.begin_copy()
        if copy is None or expected is None:
            assert (copy, expected) == (None, None)
            continue

        for _ in copy.parts():
            story.choices.choice(acts)()

        assert not copy.is_void
        assert copy.producers == expected


def test_a_copy_is_void_once_the_log_was_cut() -> None:
    table = Producers()
    table.note(ChannelRun(0, disk.NOOP, channel_of(1, 0)))
    table.mark_stable(0)
    table.note(ChannelRun(1, disk.NORMAL, table.channel(0, 1)))
    copy = table.begin_copy()

    assert table.undo_from(1)

    assert copy is not None
    assert copy.is_void


@pytest.mark.parametrize("seed", range(20))
def test_the_table_always_agrees_with_the_log(seed: int) -> None:
    story = Story(seed)
    acts = (
        [story.append] * 24 + [story.append_batch] * 6 + [story.register] * 2 + [story.truncate] * 2
        + [story.mark_stable] * story.choices.choice([0, 1, 4]) + [story.restart]
    )  # fmt: skip
    for _ in range(200):
        story.choices.choice(acts)()
        assert_agree(story.table, story.log, story.identities)


def test_sequences_may_wrap_their_low_bits_many_times() -> None:
    table = Producers()
    table.note(ChannelRun(0, disk.NOOP, channel_of(1, 0)))
    for sequence in range(1, 200_000):
        table.note(ChannelRun(sequence, disk.NORMAL, table.channel(0, sequence)))
        if sequence % 1000 == 0:
            table.mark_stable(sequence)

    assert table.find(0, 199_999) == 199_999
    assert table.find(0, 199_999 - 1023) == 199_999 - 1023
    assert table.find(0, 199_999 - 1024) is Finding.TOO_OLD
    assert table.find(0, 199_999 - 65_536) is Finding.TOO_OLD, "a copy that arrives very late"
    assert table.find(0, 199_999 + 65_536) is Finding.TOO_NEW


@pytest.mark.parametrize(
    "entry",
    [
        ChannelRun(5, disk.NORMAL, channel_of(9, 1)),
        ChannelRun(5, disk.NOOP, channel_of(1025, 0)),
        ChannelRun(5, disk.NOOP, channel_of(9, 1)),
        ChannelRun(5, disk.NORMAL, -1),
        ChannelRun(5, disk.NOOP, -65536),
        ChannelRun(5, disk.NORMAL, 77),
    ],
)
def test_a_channel_without_a_producer_is_ignored(entry: ChannelRun) -> None:
    table = Producers()
    table.note(ChannelRun(0, disk.NOOP, channel_of(1, 0)))

    table.note(entry)

    assert len(table) == 1
    assert table.find(0, 1) is Finding.NEW
    assert table.undo_from(1)


def test_the_longest_idle_producer_is_dropped_when_all_numbers_are_taken() -> None:
    table = Producers()
    for index in range(1024):
        table.note(ChannelRun(index, disk.NOOP, channel_of(table.next_number(), 0)))
    table.note(ChannelRun(1024, disk.NORMAL, table.channel(0, 1)))

    table.note(ChannelRun(1025, disk.NOOP, channel_of(table.next_number(), 0)))

    assert len(table) == 1024
    assert table.find(0, 1) == 1024, "it has just appended"
    assert table.find(1, 1) is Finding.UNKNOWN_PRODUCER
    assert table.find(1025, 1) is Finding.NEW


def of_many(count: int, appends: int) -> Producers:
    """Return a table in which this many clients come after producer 0, which has worked long.

    Each appends this many times. Nothing of producer 0 comes in between.
    """
    table = Producers()
    index = 0
    table.note(ChannelRun(index, disk.NOOP, channel_of(table.next_number(), 0)))
    for sequence in range(1, ESTABLISHED_SEQUENCE + 1):
        index += 1
        table.note(ChannelRun(index, disk.NORMAL, table.channel(0, sequence)))
    for _ in range(count):
        index += 1
        identity = index
        table.note(ChannelRun(index, disk.NOOP, channel_of(table.next_number(), 0)))
        for sequence in range(1, appends + 1):
            index += 1
            table.note(ChannelRun(index, disk.NORMAL, table.channel(identity, sequence)))
    return table


@pytest.mark.parametrize("appends", [0, 1, ESTABLISHED_SEQUENCE - 1])
def test_short_lived_clients_never_replace_a_producer_at_work(appends: int) -> None:
    table = of_many(5000, appends)

    assert table.find(0, ESTABLISHED_SEQUENCE) == ESTABLISHED_SEQUENCE


def test_established_clients_replace_a_producer_that_has_worked_longer_only_once_it_is_idle() -> (
    None
):
    """It once went after a rest of two seconds, if each of many others appended 16 times."""
    table = of_many(1023, ESTABLISHED_SEQUENCE)
    table.note(ChannelRun(10**6, disk.NORMAL, table.channel(0, ESTABLISHED_SEQUENCE + 1)))
    index = 10**6
    for _ in range(3000):
        index += 1
        identity = index
        number = table.next_number(recent_index=10**6)
        table.note(ChannelRun(index, disk.NOOP, channel_of(number, 0)))
        for sequence in range(1, ESTABLISHED_SEQUENCE + 1):
            index += 1
            table.note(ChannelRun(index, disk.NORMAL, table.channel(identity, sequence)))

    assert table.find(0, ESTABLISHED_SEQUENCE + 1) == 10**6
    number = table.next_number(recent_index=10**6 + 1)
    table.note(ChannelRun(index + 1, disk.NOOP, channel_of(number, 0)))
    assert table.find(0, ESTABLISHED_SEQUENCE + 1) is Finding.UNKNOWN_PRODUCER


def test_a_new_producer_has_time_to_begin_its_work_among_established_ones() -> None:
    table = of_many(2000, ESTABLISHED_SEQUENCE)
    newcomers = []
    for number in range(512):
        index = 10**6 + number
        newcomers.append(index)
        table.note(ChannelRun(index, disk.NOOP, channel_of(table.next_number(), 0)))

    assert [table.find(identity, 1) for identity in newcomers] == [Finding.NEW] * 512
    assert table.find(0, 1) is Finding.UNKNOWN_PRODUCER, "many others have worked since"


def test_a_dropped_producer_returns_when_its_replacement_is_cut_from_the_log() -> None:
    table = Producers()
    table.note(ChannelRun(0, disk.NOOP, channel_of(1, 0)))
    table.note(ChannelRun(1, disk.NORMAL, table.channel(0, 1)))
    table.note(ChannelRun(2, disk.NOOP, channel_of(1, 0)))
    assert table.find(0, 1) is Finding.UNKNOWN_PRODUCER

    assert table.undo_from(2)

    assert table.find(0, 1) == 1
    assert table.find(2, 1) is Finding.UNKNOWN_PRODUCER


def test_stable_entries_are_never_undone() -> None:
    table = Producers()
    table.note(ChannelRun(0, disk.NOOP, channel_of(1, 0)))
    table.mark_stable(0)

    assert not table.undo_from(0)
    assert table.find(0, 1) is Finding.NEW
