"""The history of all client requests, and its check against the committed log.

The log index orders the appends, so one pass checks a history without a search. An append with an
unknown outcome may be in the final log once, at any index, or not at all.
"""

import enum
from collections.abc import Iterable, Sequence

from dledger_sim.judges.violation import ViolationError


class Asked(enum.Enum):
    """The kind of a request."""

    APPEND = "append"
    READ = "read"
    """Read one committed entry, from a member that considers itself the master."""
    READ_INDEX = "read_index"
    """Ask for the index up to which a linearizable read sees the log."""


class Answer(enum.Enum):
    """The outcome of a request."""

    DONE = "done"
    REFUSED = "refused"
    """The request has no effect, now or later."""
    UNKNOWN = "unknown"
    """The request may have had an effect, or may still have one."""


class Operation:
    """One request of one client. Each appended body is a unique integer."""

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
        """The bodies to append, or the bodies that a finished read returned."""
        self.index = index
        """Index of the entry to read, or of the first stored entry; for READ_INDEX, the answer."""
        self.answered: Answer | None = None
        self.answered_us = -1

    def answer(self, answer: Answer, now_us: int) -> None:
        """Record the outcome. Raises ViolationError if the request already has one."""
        if self.answered is not None:
            raise ViolationError("a request is answered once", f"{self.told()}, now {answer.value}")
        self.answered = answer
        self.answered_us = now_us

    def told(self) -> str:
        """Describe the request in one line."""
        answered = self.answered.value if self.answered else "no answer"
        return f"client {self.client} {self.asked.value} {self.bodies} at {self.index}: {answered}"


def check_history(operations: Sequence[Operation], final_log: Sequence[int]) -> None:
    """Check a history against the committed log, given as its bodies; bodies below 0 are no-ops.

    Raises ViolationError for the first answer that contradicts the log.
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
    """Check that every entry belongs to an append that was not refused, and occurs once."""
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
            "only accepted appends are stored", f"body {invented[0]} was refused, or never appended"
        )


def _check_order(operations: Iterable[Operation], final_log: Sequence[int]) -> None:
    """Check that appends and linearizable reads come after all entries known at their start."""
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
                    f"{operation.told()} is stored at {index}; {known_index} was known before",
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
