"""The check of histories: a correct history passes, and each corrupted one is rejected."""

from collections.abc import Callable

import pytest

from dledger_sim.judges.history import Answer, Asked, Operation, check_history
from dledger_sim.judges.violation import ViolationError

NOOP = -1


class History:
    """A correct history: acknowledged, unknown and refused appends, and two reads."""

    def __init__(self) -> None:
        self.log = [NOOP, 1, 2, 3, 4]
        self.first = operation(Asked.APPEND, 0, 10, bodies=(1, 2), index=1)
        self.second = operation(Asked.APPEND, 20, 30, bodies=(3,), index=3)
        self.unknown = operation(Asked.APPEND, 5, 40, bodies=(4,), answer=Answer.UNKNOWN)
        self.lost = operation(Asked.APPEND, 5, 40, bodies=(5,), answer=Answer.UNKNOWN)
        self.refused = operation(Asked.APPEND, 6, 7, bodies=(6,), answer=Answer.REFUSED)
        self.read = operation(Asked.READ, 31, 31, bodies=(3,), index=3)
        self.linearizable = operation(Asked.READ_INDEX, 31, 35, index=3)

    def check(self) -> None:
        check_history(
            [self.first, self.second, self.unknown, self.lost, self.refused, self.read,
             self.linearizable],
            self.log,
        )  # fmt: skip


def operation(
    asked: Asked,
    invoked_us: int,
    answered_us: int,
    *,
    bodies: tuple[int, ...] = (),
    index: int = -1,
    answer: Answer = Answer.DONE,
) -> Operation:
    made = Operation(1, asked, invoked_us, bodies, index)
    made.answer(answer, answered_us)
    return made


def an_acknowledged_entry_is_lost(history: History) -> None:
    history.log = [NOOP, 1, 2]
    history.read.answered = Answer.REFUSED


def an_acknowledged_entry_moved(history: History) -> None:
    history.log = [NOOP, 1, 2, 4, 3]
    history.read.index = 4


def half_of_an_append_is_stored(history: History) -> None:
    history.log[2] = 5


def an_entry_is_stored_twice(history: History) -> None:
    history.log.append(4)


def a_refused_entry_is_stored(history: History) -> None:
    history.log.append(6)


def an_entry_is_invented(history: History) -> None:
    history.log.append(77)


def a_later_append_lies_before_an_earlier_one(history: History) -> None:
    history.log = [NOOP, 3, 1, 2, 4]
    history.first.index, history.second.index, history.read.index = 2, 1, 1


def an_unknown_append_lies_before_what_was_known(history: History) -> None:
    history.unknown.invoked_us = 35
    history.log = [NOOP, 1, 2, 4, 3]
    history.second.index = history.read.index = 4
    history.second.invoked_us = 2
    history.read.invoked_us = history.read.answered_us = 60
    history.linearizable.index = 4


def a_read_finds_another_entry(history: History) -> None:
    history.read.bodies = (4,)


def a_read_finds_what_is_not_there(history: History) -> None:
    history.read.index, history.read.bodies = 9, (9,)


def a_linearizable_read_is_stale(history: History) -> None:
    history.linearizable.index = 2


def a_linearizable_read_goes_back_behind_a_read(history: History) -> None:
    history.read.index, history.read.bodies = 4, (4,)
    history.read.answered_us = 32
    history.linearizable.invoked_us = 33


def a_request_is_not_answered(history: History) -> None:
    history.lost.answered = None


SPOILED: tuple[tuple[Callable[[History], None], str], ...] = (
    (an_acknowledged_entry_is_lost, "an acknowledged entry is at its reported index"),
    (an_acknowledged_entry_moved, "an acknowledged entry is at its reported index"),
    (half_of_an_append_is_stored, "an acknowledged entry is at its reported index"),
    (an_entry_is_stored_twice, "an append is stored at most once"),
    (a_refused_entry_is_stored, "only accepted appends are stored"),
    (an_entry_is_invented, "only accepted appends are stored"),
    (a_later_append_lies_before_an_earlier_one, "an append comes after every entry known"),
    (an_unknown_append_lies_before_what_was_known, "an append comes after every entry known"),
    (a_read_finds_another_entry, "a read returns a committed entry"),
    (a_read_finds_what_is_not_there, "a read returns a committed entry"),
    (a_linearizable_read_is_stale, "a linearizable read sees every entry known"),
    (a_linearizable_read_goes_back_behind_a_read, "a linearizable read sees every entry known"),
    (a_request_is_not_answered, "every request is answered"),
)  # fmt: skip


def test_a_correct_history_passes() -> None:
    History().check()


@pytest.mark.parametrize(("spoil", "rule"), SPOILED, ids=lambda one: getattr(one, "__name__", ""))
def test_a_corrupted_history_is_rejected(spoil: Callable[[History], None], rule: str) -> None:
    history = History()
    spoil(history)

    with pytest.raises(ViolationError, match=rule):
        history.check()


def test_a_request_cannot_be_answered_twice() -> None:
    answered = operation(Asked.APPEND, 0, 1, bodies=(1,), index=0)

    with pytest.raises(ViolationError, match="a request is answered once"):
        answered.answer(Answer.UNKNOWN, 2)
