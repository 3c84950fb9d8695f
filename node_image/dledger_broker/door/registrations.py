"""The registrations that this member asks the leader for, one at a time, and when. No IO."""

from collections.abc import Callable
from typing import Final

from dledger_broker.door.door_frames import DoorAnswer, Way, decode_identity, decode_refusal
from dledger_broker.door.door_numbers import DoorNumbers
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.codes import DLedgerResponseCode

ANSWER_S: Final = 1.0
"""How long an answer may take. Then the link is of no use, and sends still have time for another.
"""
RETRY_MIN_S: Final = 0.05
RETRY_MAX_S: Final = 1.0
"""The least and the longest pause after a registration that failed; each is twice the last."""


class Registrations:
    """Whether a registration is under way, and when the next one may be."""

    def __init__(self, numbers: DoorNumbers, now_s: Callable[[], float]) -> None:
        self._numbers = numbers
        self._now_s = now_s
        self._request: int | None = None
        """The number of the request that is on its way."""
        self._asked_s = 0.0
        self._next_s = self._pause_s = 0.0

    def may_ask(self, count: int) -> bool:
        """Tell whether to register now, for a request that needs `count` numbers."""
        return (
            self._request is None
            and self._now_s() >= self._next_s
            and self._numbers.needs_registration(count)
        )

    def asked(self, request: int) -> None:
        """Take note of the request for a registration."""
        self._request, self._asked_s = request, self._now_s()

    def ends_late(self) -> bool:
        """Tell whether the answer has taken too long, and expect it no longer then."""
        is_late = self._request is not None and self._now_s() >= self._asked_s + ANSWER_S
        if is_late:
            self._failed()
        return is_late

    def link_ended(self) -> None:
        """Expect no answer any longer."""
        self._request = None

    def leader_changed(self) -> None:
        """Let another leader be asked without a pause."""
        self._next_s = self._pause_s = 0.0

    def is_under_way(self, requests: range) -> bool:
        """Tell whether the request that is on its way is one of these."""
        return self._request is not None and self._request in requests

    def answered(self, answer: DoorAnswer) -> DLedgerResponseCode | None:
        """Take the leader's answer; return why it refuses, if it does and says so."""
        try:
            if answer.way is Way.STORED:
                self._numbers.registered(decode_identity(answer.frame))
                self.link_ended()
                self.leader_changed()
                return None
            return decode_refusal(answer.frame)
        except FormatError:
            return None
        finally:
            if self._request is not None:
                self._failed()

    def _failed(self) -> None:
        """Ask again after a pause."""
        self._request = None
        self._pause_s = min(max(2 * self._pause_s, RETRY_MIN_S), RETRY_MAX_S)
        self._next_s = self._now_s() + self._pause_s
