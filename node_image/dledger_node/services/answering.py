"""Answers to several appends, with one write for each connection, to many over several turns.

A write takes up to 20 µs. When a leader is deposed, or a disk that hung has flushed, thousands of
connections may each get an answer.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dledger_formats.protocol import frames
from dledger_node.remoting.connection_views import WritableConnection
from dledger_node.remoting.service import ClientCall
from dledger_node.slices import Slices

Responses: TypeAlias = Sequence[tuple[int, bytes]]
"""The opaque number of each request, and the encoded response."""


class Answering:
    """Sends the answers of one service."""

    def __init__(self) -> None:
        self._due: deque[tuple[WritableConnection, Responses]] = deque()
        """What is not sent yet, by connection, in order."""
        self._sending = Slices(self._send)

    def send(self, answers: Mapping[WritableConnection, Responses]) -> None:
        """Send the answers of each connection, the first ones now."""
        self._due += answers.items()
        self._sending.begin()

    def send_to_all(self, calls: Sequence[ClientCall], response: bytes) -> None:
        """Send one encoded response to all calls, the first ones now."""
        answers: dict[WritableConnection, list[tuple[int, bytes]]] = {}
        for call in calls:
            answers.setdefault(call.connection, []).append((call.opaque, response))
        self.send(answers)

    def send_rest(self) -> None:
        """Send every answer that is left, because this member stops."""
        self._send(len(self._due))

    def _send(self, count: int) -> bool:
        for _ in range(min(count, len(self._due))):
            connection, responses = self._due.popleft()
            connection.send(frames.encode_responses(responses))
        return bool(self._due)
