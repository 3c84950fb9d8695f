"""What clients asked and were told, and whether any log could have told them so.

Indexes order the appends, so a history is judged directly, in one pass, and no search is needed:
an append whose outcome is unknown may be in the final log once, at any place, or not at all.
"""

import enum
from collections.abc import Iterable, Sequence

from dledger_sim.judges.violation import ViolationError


class Asked(enum.Enum):
    """What a client asked for."""

    APPEND = "append"
    READ = "read"
    """One committed entry, from whoever takes itself for the master."""
    READ_INDEX = "read_index"
    """Up to where a linearizable read sees."""


class Answer(enum.Enum):
    """What a client was told."""

    DONE = "done"
    REFUSED = "refused"
    """Nothing was done, and never will be."""
    UNKNOWN = "unknown"
    """It may have been done, or be done yet."""


class Operation:
    """One request of one client. Bodies are whole numbers, each of them used once."""

    __slots__ = ("answered", "answered_us", "asked", "bodies", "client", "index", "invoked_us")

    def __init__(
        self,
        client: int,
        asked: Asked,
        invoked_us: int,
        bodies: tuple[int, ...] = (),
        index: int = -1,
    ) -> None:
        self.client = client
        self.asked = asked
        self.invoked_us = invoked_us
        self.bodies = bodies
        """What to append; once a read is done, what it found."""
        self.index = index
        """Of the first entry: which to read, or where they were stored; up to where is seen."""
        self.answered: Answer | None = None
        self.answered_us = -1

    def answer(self, answer: Answer, now_us: int) -> None:
        """End it; ViolationError when it has been answered before."""
        if self.answered is not None:
            raise ViolationError("a request is answered once", f"{self.told()}, now {answer.value}")
        self.answered = answer
        self.answered_us = now_us

    def told(self) -> str:
        """In a few words."""
        answered = self.answered.value if self.answered else "no answer"
        return f"client {self.client} {self.asked.value} {self.bodies} at {self.index}: {answered}"


def check_history(operations: Sequence[Operation], final_log: Sequence[int]) -> None:
    """Judge a history against the committed log, given as its bodies; those below 0 are no-ops.

    ViolationError names what no log could have told.
    """
    unanswered = [operation for operation in operations if operation.answered is None]
    if unanswered:
        raise ViolationError("every request is answered", unanswered[0].told())
    _check_log_is_of_appends(operations, final_log)
    for operation in operations:
        if operation.answered is Answer.DONE:
            found = tuple(final_log[operation.index : operation.index + len(operation.bodies)])
            if operation.index < 0 or found != operation.bodies:
                rule = (
                    "an acknowledged entry is at its reported index"
                    if operation.asked is Asked.APPEND
                    else "a read returns a committed entry"
                )
                raise ViolationError(rule, f"{operation.told()}; the log has {found}")
    _check_order(operations, final_log)


def _check_log_is_of_appends(operations: Iterable[Operation], final_log: Sequence[int]) -> None:
    """Every entry was asked for, was not refused, and is there once."""
    stored = [body for body in final_log if body >= 0]
    if len(set(stored)) != len(stored):
        twice = next(body for body in stored if stored.count(body) > 1)
        raise ViolationError("an append is stored at most once", f"body {twice}")
    asked = {
        body
        for operation in operations
        if operation.asked is Asked.APPEND and operation.answered is not Answer.REFUSED
        for body in operation.bodies
    }
    invented = [body for body in stored if body not in asked]
    if invented:
        raise ViolationError(
            "only accepted appends are stored", f"body {invented[0]} was refused, or never asked"
        )


def _check_order(operations: Iterable[Operation], final_log: Sequence[int]) -> None:
    """What was known before a request lies before what it appends, and is seen by what it reads."""
    places = {body: index for index, body in enumerate(final_log)}
    done = sorted(
        (operation for operation in operations if operation.answered is Answer.DONE),
        key=lambda operation: operation.answered_us,
    )
    next_done, known_index = 0, -1
    for operation in sorted(operations, key=lambda operation: operation.invoked_us):
        while next_done < len(done) and done[next_done].answered_us < operation.invoked_us:
            end_index = done[next_done].index + max(1, len(done[next_done].bodies)) - 1
            known_index = max(known_index, end_index)
            next_done += 1
        if operation.asked is Asked.APPEND:
            index = places.get(operation.bodies[0])
            if index is not None and index <= known_index:
                raise ViolationError(
                    "an append comes after every entry known before it",
                    f"{operation.told()} lies at {index}; {known_index} was known before",
                )
        elif (
            operation.asked is Asked.READ_INDEX
            and operation.answered is Answer.DONE
            and operation.index < known_index
        ):
            raise ViolationError(
                "a linearizable read sees every entry known before it",
                f"{operation.told()}; {known_index} was known before",
            )
