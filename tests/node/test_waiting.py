"""CommitWaiters: every waiter is released exactly once, and as committed only in its own term."""

import math
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dledger_node.services.waiting import CommitWaiters, Waiter

COUNT_MAX = 12
INDEX_MAX = 30


def waiter(last_index: int, term: int = 1, deadline_s: float = 10.0, *names: str) -> Waiter[str]:
    replies = names or (f"to {last_index}",)
    return Waiter(replies, last_index, term, deadline_s, len(replies))


def calls_of(work: Callable[[], object]) -> int:
    """Return how many calls of Python functions some work takes."""
    events: list[str] = []
    sys.setprofile(lambda _frame, event, _arg: events.append(event))
    try:
        work()
    finally:
        sys.setprofile(None)
    return events.count("call")


def names(waiters: Sequence[Waiter[str]]) -> list[str]:
    return [reply for each in waiters for reply in each.replies]


def test_a_waiter_is_released_once_its_index_is_committed() -> None:
    waiters = CommitWaiters[str](10)
    for index in (7, 3, 5):
        waiters.add(waiter(index))

    assert waiters.release(2, 1) == ([], [])
    assert names(waiters.release(5, 1)[0]) == ["to 3", "to 5"]
    assert names(waiters.release(9, 1)[0]) == ["to 7"]
    assert waiters.release(9, 1) == ([], [])
    assert waiters.count == 0


@pytest.mark.parametrize("leading_term", [None, 2])
def test_a_waiter_of_a_term_that_is_not_led_is_unknown_though_its_index_is_committed(
    leading_term: int | None,
) -> None:
    waiters = CommitWaiters[str](10)
    waiters.add(waiter(3, term=1))

    committed, unknown = waiters.release(100, leading_term)

    assert committed == []
    assert names(unknown) == ["to 3"]


@pytest.mark.parametrize("others", [[1], [3], [1, 3, 1]])
def test_waiters_of_the_term_that_is_led_stay_when_others_become_unknown(others: list[int]) -> None:
    waiters = CommitWaiters[str](10)
    for term in (2, *others):
        waiters.add(waiter(10 * term, term=term))

    committed, unknown = waiters.release(5, 2)

    assert committed == []
    assert names(unknown) == [f"to {10 * term}" for term in others]
    assert names(waiters.release(20, 2)[0]) == ["to 20"]


def test_the_committed_part_of_a_batch_of_singles_is_released() -> None:
    waiters = CommitWaiters[str](10)
    waiters.add(Waiter(["a", "b", "c"], 12, 1, 10.0, 3, body_bytes=300))

    (part,), _ = waiters.release(11, 1)
    assert (part.replies, part.first_index, part.last_index) == (["a", "b"], 10, 11)
    assert (waiters.count, waiters.body_bytes) == (1, 300), "bytes count until the last entry"
    (rest,), _ = waiters.release(12, 1)
    assert (rest.replies, rest.first_index, rest.last_index) == (["c"], 12, 12)
    assert (waiters.count, waiters.body_bytes) == (0, 0)


def test_a_batch_with_one_reply_is_released_when_its_last_entry_is_committed() -> None:
    waiters = CommitWaiters[str](10)
    waiters.add(Waiter(["a"], 12, 1, 10.0, 3))

    assert waiters.release(11, 1) == ([], [])
    (batch,), _ = waiters.release(12, 1)
    assert (batch.first_index, batch.entry_count) == (10, 3)


def test_the_rest_of_a_batch_becomes_unknown_with_its_term() -> None:
    waiters = CommitWaiters[str](10)
    waiters.add(waiter(12, 1, 10.0, "a", "b", "c"))
    waiters.release(10, 1)

    assert [names(each) for each in waiters.release(12, None)] == [[], ["b", "c"]]


def test_a_waiter_expires_at_its_deadline() -> None:
    waiters = CommitWaiters[str](10)
    for index, deadline_s in ((1, 5.0), (2, 3.0), (3, math.inf)):
        waiters.add(waiter(index, deadline_s=deadline_s))

    assert waiters.take_expired(2.9) == []
    assert names(waiters.take_expired(3.0)) == ["to 2"]
    assert names(waiters.take_expired(1e9)) == ["to 1"]
    assert names(waiters.take_all()) == ["to 3"]


def test_an_expiry_costs_the_same_however_many_others_wait() -> None:
    """A thousand tailing readers made every tick of a member look at all of them."""
    few, many = CommitWaiters[str](5000), CommitWaiters[str](5000)
    for waiters, count in ((few, 10), (many, 5000)):
        for index in range(count):
            waiters.add(waiter(index, deadline_s=float(index)))

    assert calls_of(lambda: many.take_expired(3.0)) == calls_of(lambda: few.take_expired(3.0))
    assert (few.count, many.count) == (6, 4996)
    assert few.next_deadline_s == many.next_deadline_s == 4.0


def test_released_waiters_leave_no_deadline_behind() -> None:
    waiters = CommitWaiters[str](4)
    waiters.add(waiter(10_000))
    for index in range(1000):
        waiters.add(waiter(index))
        waiters.release(index, 1)

    assert len(waiters._deadlines) < 100
    waiters.release(10_000, 1)
    assert waiters.next_deadline_s == math.inf
    waiters.add(waiter(1, deadline_s=70.0))
    assert waiters.next_deadline_s == 70.0


def test_the_oldest_waiter_is_taken_first_whatever_its_index() -> None:
    waiters = CommitWaiters[str](10)
    for index in (9, 4, 6):
        waiters.add(waiter(index))

    assert names([waiters.take_oldest(), waiters.take_oldest()]) == ["to 9", "to 4"]
    assert names(waiters.release(9, 1)[0]) == ["to 6"]
    with pytest.raises(KeyError):
        waiters.take_oldest()


def test_a_waiter_that_does_not_fit_is_not_added() -> None:
    waiters = CommitWaiters[str](3)
    waiters.add(waiter(2, 1, 10.0, "a", "b"))
    with pytest.raises(ValueError, match="at most 3"):
        waiters.add(waiter(4, 1, 10.0, "c", "d"))
    waiters.add(waiter(3, 1, 10.0, "c"))

    assert waiters.is_full
    assert names(waiters.take_all()) == ["a", "b", "c"]


def test_displaced_waiters_leave_nothing_behind() -> None:
    waiters = CommitWaiters[str](4)
    for index in range(1000):
        if waiters.is_full:
            waiters.take_oldest()
        waiters.add(waiter(10_000 - index))

    assert len(waiters._heap) < 100
    assert names(waiters.release(10_000, 1)[0]) == [f"to {9001 + k}" for k in range(4)]


class AnyUse(RuleBasedStateMachine):
    """Requests wait while the log grows, is committed, and changes its leader."""

    def __init__(self) -> None:
        super().__init__()
        self.waiters = CommitWaiters[int](COUNT_MAX)
        self.asked: dict[int, tuple[int, int, float]] = {}
        """By number: the awaited index, its term and the deadline."""
        self.open: set[int] = set()
        self.now_s = 0.0
        self.committed_index = -1
        self.leading_term: int | None = 1

    @initialize(term=st.integers(1, 4))
    def lead(self, term: int) -> None:
        self.leading_term = term

    @rule(
        last_index=st.integers(0, INDEX_MAX),
        term=st.integers(1, 4),
        wait_s=st.sampled_from([0.0, 1.0, 5.0, math.inf]),
        count=st.integers(1, 4),
        together=st.booleans(),
    )
    def add(self, last_index: int, term: int, wait_s: float, count: int, together: bool) -> None:
        first = len(self.asked)
        indexes = [last_index] if together else [*range(last_index - count + 1, last_index + 1)]
        numbers = [*range(first, first + len(indexes))]
        added = Waiter(numbers, last_index, term, self.now_s + wait_s, count, body_bytes=count)
        if self.waiters.count + count > COUNT_MAX:
            with pytest.raises(ValueError, match="at most"):
                self.waiters.add(added)
            return
        self.waiters.add(added)
        for number, index in zip(numbers, indexes, strict=True):
            self.asked[number] = (index, term, self.now_s + wait_s)
            self.open.add(number)

    def answered(self, waiters: Sequence[Waiter[int]]) -> list[tuple[int, int, float]]:
        numbers = [number for each in waiters for number in each.replies]
        assert len(set(numbers)) == len(numbers)
        assert set(numbers) <= self.open, "nothing is released twice"
        self.open -= set(numbers)
        return [self.asked[number] for number in numbers]

    @rule(committed_index=st.integers(-1, INDEX_MAX), term=st.none() | st.integers(1, 4))
    def release(self, committed_index: int, term: int | None) -> None:
        self.committed_index = max(committed_index, self.committed_index)
        committed, unknown = self.waiters.release(self.committed_index, term)
        for index, its_term, _ in self.answered(committed):
            assert its_term == term
            assert index <= self.committed_index
        assert all(its_term != term for _, its_term, _ in self.answered(unknown))
        for number in self.open:
            index, its_term, _ = self.asked[number]
            assert its_term == term
            assert index > self.committed_index

    @rule(pause_s=st.sampled_from([0.0, 0.5, 2.0]))
    def expire(self, pause_s: float) -> None:
        self.now_s += pause_s
        for *_, deadline_s in self.answered(self.waiters.take_expired(self.now_s)):
            assert deadline_s <= self.now_s
        assert all(self.asked[number][2] > self.now_s for number in self.open)

    @rule()
    def displace(self) -> None:
        if self.open:
            oldest = self.waiters.take_oldest()
            assert min(self.open) in oldest.replies
            self.answered([oldest])

    @invariant()
    def counts(self) -> None:
        assert self.waiters.count <= COUNT_MAX
        assert bool(self.waiters.count) is bool(self.open)
        assert self.waiters.body_bytes >= self.waiters.count

    def teardown(self) -> None:
        self.answered(self.waiters.take_all())
        assert not self.open, "every waiter is released in the end"
        assert (self.waiters.count, self.waiters.body_bytes) == (0, 0)


TestAnyUse = AnyUse.TestCase
TestAnyUse.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
