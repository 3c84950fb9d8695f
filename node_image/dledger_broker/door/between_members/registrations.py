"""The registrations that this member asks the leader for, one at a time, and when. No IO."""

import math
from collections.abc import Callable
from typing import Final

from dledger_broker.door.between_members.door_frames import (
    DoorAnswer,
    Way,
    decode_identity,
    decode_refusal,
)
from dledger_broker.door.between_members.door_numbers import DoorNumbers
from dledger_broker.door.between_members.hearing import SILENT_S
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.services.waiting import ANSWER_WAIT_S

ANSWER_S: Final = ANSWER_WAIT_S + 0.5
"""How long an answer may take over a live link: the leader waits that long for a quorum."""
RETRY_MIN_S: Final = 0.05
RETRY_MAX_S: Final = 1.0
"""The shortest and the longest pause after a failed registration; each is twice the last."""


class Registrations:
    """Whether a registration is under way, and when the next one may be requested."""

    def __init__(self, numbers: DoorNumbers, now_s: Callable[[], float]) -> None:
        self._numbers = numbers
        self._now_s = now_s
        self._request: int | None = None
        """The number of the request that is on its way."""
        self._asked_s = 0.0
        self._late: set[int] = set()
        """The numbers of requests whose answers are late, and may still come over the link."""
        self._next_s = self._pause_s = 0.0

    def may_ask(self, count: int) -> bool:
        """Return whether to register now, for a request that needs `count` numbers."""
        return (
            self._request is None
            and self._now_s() >= self._next_s
            and self._numbers.needs_registration(count)
        )

    def asked(self, request: int) -> None:
        """Record that a registration was requested."""
        self._request, self._asked_s = request, self._now_s()

    def ends_late(self, heard_s: float) -> bool:
        """Let another registration be asked for if the answer has taken too long.

        `heard_s` is when something was last received over the link. Returns whether the link is
        dead.
        """
        limit_s = SILENT_S if heard_s == -math.inf else ANSWER_S
        if self._request is None or self._now_s() < self._asked_s + limit_s:
            return False
        self._late.add(self._request)
        self._failed()
        return heard_s <= self._asked_s

    def link_ended(self) -> None:
        """Stop expecting answers."""
        self._request = None
        self._late.clear()

    def leader_changed(self) -> None:
        """Let another leader be asked without a pause."""
        self._next_s = self._pause_s = 0.0

    def expects(self, request: int) -> bool:
        """Return whether this is a request for a registration that is on its way."""
        return request == self._request or request in self._late

    def is_under_way(self, requests: range) -> bool:
        """Return whether a request that is on its way is one of these."""
        return any(self.expects(request) for request in requests)

    def answered(self, answer: DoorAnswer) -> DLedgerResponseCode | None:
        """Take the leader's answer; return why it refuses, if it does and gives a reason.

        A late registration is as good as any; a late refusal is ignored.
        """
        is_late = answer.number in self._late
        self._late.discard(answer.number)
        refusal = None
        try:
            if answer.way is Way.STORED:
                self._numbers.registered(decode_identity(answer.frame))
                self.leader_changed()
                if not is_late:
                    self._request = None
                return None
            refusal = decode_refusal(answer.frame)
        except FormatError:
            pass
        if is_late:
            return None
        self._failed()
        return refusal

    def _failed(self) -> None:
        """Ask again after a pause."""
        self._request = None
        self._pause_s = min(max(2 * self._pause_s, RETRY_MIN_S), RETRY_MAX_S)
        self._next_s = self._now_s() + self._pause_s
