"""Repeats whose first copy is not committed yet wait for its outcome."""

from types import SimpleNamespace

import pytest

from dledger_broker.door.sending import awaited_repeats
from dledger_broker.door.sending.awaited_repeats import AwaitedRepeats
from dledger_node.services.drafts import WAIT_S


class Waits:
    """A leader of term 3 that has committed up to index 5, and what was told to the repeats."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.member = SimpleNamespace(leads=True, term=3, readable_index=5)
        self.awaited = AwaitedRepeats(self.member, lambda: self.now_s)
        self.told: list[bool] = []

    def wait(self, index: int) -> None:
        self.awaited.wait(index, self.now_s, self.told.append)


def test_a_repeat_ends_when_the_first_copy_is_committed() -> None:
    waits = Waits()
    waits.wait(5)
    waits.wait(6)
    waits.awaited.go_on()
    assert (waits.told, waits.awaited.is_idle) == ([True], False)

    waits.member.readable_index = 6
    waits.awaited.go_on()
    assert (waits.told, waits.awaited.is_idle) == ([True, True], True)


@pytest.mark.parametrize("changed", [{"leads": False}, {"term": 4}])
def test_another_term_may_have_another_entry_at_the_index(changed: dict[str, object]) -> None:
    waits = Waits()
    waits.wait(6)
    vars(waits.member).update(changed, readable_index=6)
    waits.awaited.go_on()

    assert waits.told == [False]


def test_a_repeat_waits_as_long_as_a_first_copy() -> None:
    waits = Waits()
    waits.wait(6)
    waits.now_s = WAIT_S
    waits.awaited.go_on()

    assert waits.told == [False]


def test_so_many_repeats_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_repeats, "AWAITED_MAX", 1)
    waits = Waits()
    waits.wait(6)
    waits.wait(7)

    assert waits.told == [False]


def test_a_repeat_that_fails_leaves_the_others_answered() -> None:
    waits = Waits()

    def fail(_: bool) -> None:
        raise ValueError("the first one fails")

    waits.awaited.wait(6, 0.0, fail)
    waits.wait(6)
    waits.member.readable_index = 6
    with pytest.raises(ValueError, match="the first one fails"):
        waits.awaited.go_on()

    assert (waits.told, waits.awaited.is_idle) == ([True], True)
