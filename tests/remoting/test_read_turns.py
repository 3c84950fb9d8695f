"""The time of the event loop that reads may take."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_node.remoting.read_turns import READS_WAITING_MAX, SLICE_S, ReadTurns
from dledger_wire.turning_loop import TurningLoop


class Reader:
    """A connection that keeps the answers."""

    def __init__(self, loop: TurningLoop) -> None:
        self.loop = loop
        self.unread_since_s: float | None = None
        self.reads_waiting = 0
        self.answers: list[int] = []
        self.went_on = 0

    def send(self, data: bytes) -> None:
        pass

    def go_on(self) -> None:
        self.went_on += 1

    def read(self, number: int, cost_s: float = SLICE_S / 2) -> Callable[[], None]:
        def work() -> None:
            self.loop.now_s += cost_s
            self.answers.append(number)

        return work


@pytest.fixture
def loop() -> TurningLoop:
    return TurningLoop()


@pytest.fixture
def turns(loop: TurningLoop) -> ReadTurns:
    return turns_of(loop)


def turns_of(loop: TurningLoop) -> ReadTurns:
    return ReadTurns(lambda run: loop.due.append(run), lambda: loop.now_s)


def test_a_read_is_answered_at_once_while_the_turn_has_time(
    loop: TurningLoop, turns: ReadTurns
) -> None:
    reader = Reader(loop)
    turns.submit(reader, reader.read(1))

    assert (reader.answers, reader.reads_waiting) == ([1], 0)


def test_no_turn_takes_longer_than_a_slice_and_one_read(
    loop: TurningLoop, turns: ReadTurns
) -> None:
    readers = [Reader(loop) for _ in range(100)]
    for number in range(5):
        for reader in readers:
            turns.submit(reader, reader.read(number))
    longest_s = loop.now_s
    while loop.due:
        longest_s = max(longest_s, loop.turn())

    assert longest_s <= SLICE_S + SLICE_S / 2
    assert all(reader.answers == [0, 1, 2, 3, 4] for reader in readers)


@given(st.lists(st.tuples(st.sampled_from(["before", "behind"]), st.integers(1, 9)), max_size=40))
def test_reads_before_and_behind_the_slice_of_a_turn_count_with_it(
    entries: list[tuple[str, int]],
) -> None:
    loop = TurningLoop()
    turns, reader = turns_of(loop), Reader(loop)

    def submit(count: int) -> None:
        for number in range(count):
            turns.submit(reader, reader.read(number))

    for place, count in entries:
        began_s = loop.now_s
        submit(count if place == "before" else 0)
        loop.turn()
        submit(count if place == "behind" else 0)
        assert loop.now_s - began_s <= SLICE_S + SLICE_S / 2


def test_a_reader_with_many_reads_does_not_hold_up_another(
    loop: TurningLoop, turns: ReadTurns
) -> None:
    greedy, modest = Reader(loop), Reader(loop)
    for number in range(50):
        turns.submit(greedy, greedy.read(number))
    turns.submit(modest, modest.read(0))
    loop.turn()  # the first reads were done in this turn
    loop.turn()

    assert modest.answers == [0]
    assert len(greedy.answers) < 5


def test_a_reader_that_does_not_read_its_answers_is_not_served(
    loop: TurningLoop, turns: ReadTurns
) -> None:
    reader = Reader(loop)
    for number in range(4):
        turns.submit(reader, reader.read(number))
    reader.unread_since_s = 1.0
    while loop.due:
        loop.turn()
    assert reader.answers == [0, 1]

    reader.unread_since_s = None
    turns.resume(reader)
    while loop.due:
        loop.turn()
    assert reader.answers == [0, 1, 2, 3]


def test_a_reader_goes_on_once_its_queue_has_room(loop: TurningLoop, turns: ReadTurns) -> None:
    reader = Reader(loop)
    while reader.reads_waiting < READS_WAITING_MAX:
        turns.submit(reader, reader.read(0))
    assert reader.went_on == 0
    loop.turn()
    loop.turn()

    assert reader.went_on == 1


def test_the_reads_of_a_closed_connection_are_dropped(loop: TurningLoop, turns: ReadTurns) -> None:
    reader = Reader(loop)
    for number in range(4):
        turns.submit(reader, reader.read(number))
    turns.forget(reader)
    while loop.due:
        loop.turn()

    assert reader.answers == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["read", "stop", "go", "turn"]))))
def test_every_read_is_done_once_and_in_order(steps: list[tuple[int, str]]) -> None:
    loop = TurningLoop()
    turns = turns_of(loop)
    readers = [Reader(loop) for _ in range(3)]
    submitted = [0, 0, 0]
    for number, step in steps:
        reader = readers[number]
        if step == "read":
            turns.submit(reader, reader.read(submitted[number]))
            submitted[number] += 1
        elif step == "stop":
            reader.unread_since_s = 1.0
        elif step == "go" and reader.unread_since_s is not None:
            reader.unread_since_s = None
            turns.resume(reader)
        elif step == "turn":
            loop.turn()
    for reader in readers:
        reader.unread_since_s = None
        turns.resume(reader)
    while loop.due:
        loop.turn()

    assert [reader.answers for reader in readers] == [list(range(count)) for count in submitted]
    assert [reader.reads_waiting for reader in readers] == [0, 0, 0]


def test_the_parts_of_a_read_are_done_in_several_turns(loop: TurningLoop, turns: ReadTurns) -> None:
    reader = Reader(loop)

    def part(number: int) -> None:
        reader.read(number)()
        if number < 9:
            turns.submit(reader, lambda: part(number + 1))

    turns.submit(reader, lambda: part(0))
    longest_s = loop.now_s
    while loop.due:
        longest_s = max(longest_s, loop.turn())

    assert (reader.answers, reader.reads_waiting) == (list(range(10)), 0)
    assert longest_s <= SLICE_S + SLICE_S / 2


def test_a_read_that_fails_leaves_room_for_the_next(loop: TurningLoop, turns: ReadTurns) -> None:
    reader = Reader(loop)

    def fail() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        turns.submit(reader, fail)
    turns.submit(reader, reader.read(1))

    assert (reader.answers, reader.reads_waiting) == ([1], 0)


def test_reads_behind_one_that_goes_on_in_a_thread_wait_for_it(
    loop: TurningLoop, turns: ReadTurns
) -> None:
    reader, other = Reader(loop), Reader(loop)
    turns.submit(reader, lambda: turns.pause(reader))
    turns.submit(reader, reader.read(2))
    turns.submit(other, other.read(1))
    loop.turn()
    assert (reader.answers, other.answers) == ([], [1])

    turns.go_on(reader, reader.read(1))
    assert reader.answers == [1]
    loop.turn()
    assert (reader.answers, reader.reads_waiting) == ([1, 2], 0)


def test_a_paused_connection_that_reads_its_answers_again_waits_for_its_thread(
    loop: TurningLoop, turns: ReadTurns
) -> None:
    reader = Reader(loop)
    turns.submit(reader, lambda: turns.pause(reader))
    turns.submit(reader, reader.read(2))
    reader.unread_since_s = 1.0
    reader.unread_since_s = None
    turns.resume(reader)
    loop.turn()
    assert reader.answers == []

    turns.go_on(reader, reader.read(1))
    loop.turn()
    assert reader.answers == [1, 2]


def test_the_end_of_a_read_in_a_thread_takes_its_time_from_those_of_the_turn(
    loop: TurningLoop, turns: ReadTurns
) -> None:
    reader, other = Reader(loop), Reader(loop)
    turns.submit(reader, lambda: turns.pause(reader))
    loop.turn()
    turns.go_on(reader, reader.read(1, cost_s=2 * SLICE_S))
    turns.submit(other, other.read(1))

    assert (reader.answers, other.answers) == ([1], [])
