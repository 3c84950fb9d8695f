"""A connection from a follower to its leader, for requests of clients that are passed on.

Requests that are sent before the connection is made wait for it. Each request ends exactly once:
with its answer, or with the end of the connection.
"""

import math
from collections.abc import Collection, Sequence
from typing import Final, Generic, Protocol, TypeVar

from dledger_formats.protocol.frames import OPAQUE_MAX, FrameDecoder, FrameError, RemotingCommand
from dledger_formats.protocol.go_away import GO_AWAY
from dledger_node.remoting.dialed_link import DialedLink

ANSWER_BYTES_MAX: Final = 64 * 1024
"""The longest frame of an answer to an append."""


class Request(Protocol):
    """A request that waits for its answer."""

    @property
    def deadline_s(self) -> float:
        """When the wait ends, on the loop's clock. Later requests have later deadlines."""


RequestT = TypeVar("RequestT", bound=Request)
RequestT_contra = TypeVar("RequestT_contra", bound=Request, contravariant=True)


class LeaderLinkOwner(Protocol[RequestT_contra]):
    """Receives the answers."""

    def answered(self, answers: Sequence[tuple[RequestT_contra, RemotingCommand]]) -> None:
        """Take the answers of one read, each with its request."""

    def lost(self, leader_id: str, waiting: Sequence[RequestT_contra], *, were_sent: bool) -> None:
        """Take the requests without an answer; the connection is gone.

        `were_sent` says whether the leader may have read them.
        """


class LeaderLink(DialedLink, Generic[RequestT]):
    """The connection. It cannot be used after it has called `LeaderLinkOwner.lost`."""

    def __init__(self, owner: LeaderLinkOwner[RequestT], leader_id: str) -> None:
        super().__init__()
        self._owner = owner
        self._leader_id = leader_id
        self._decoder = FrameDecoder(frame_bytes_max=ANSWER_BYTES_MAX)
        self._waiting: dict[int, RequestT] = {}
        """The requests without an answer, by opaque number, oldest first."""
        self._next_opaque = 0
        self._goes_away = False

    @property
    def oldest_deadline_s(self) -> float:
        """When the first wait ends; infinite if nothing waits."""
        oldest = next(iter(self._waiting.values()), None)
        return math.inf if oldest is None else oldest.deadline_s

    @property
    def waiting(self) -> Collection[RequestT]:
        """The requests without an answer."""
        return self._waiting.values()

    def open(self, host: str, port: int) -> None:
        """Begin to connect."""
        self._dial(host, port)

    def next_opaque(self) -> int:
        """Return the opaque number for the next frame."""
        self._next_opaque = (self._next_opaque + 1) & OPAQUE_MAX
        return self._next_opaque

    def send(self, opaque: int, frame: bytes, request: RequestT) -> None:
        """Send a request's frame now, or once the connection is made."""
        self._waiting[opaque] = request
        self._write(frame)

    def abort(self) -> None:
        """Close at once, and end every request."""
        self._drop()
        self._end()

    def _ended(self) -> None:
        waiting, self._waiting = list(self._waiting.values()), {}
        were_sent = self.was_made and not self._goes_away
        self._owner.lost(self._leader_id, waiting, were_sent=were_sent)

    # -- called by the event loop ----------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Pass on each answer with its request; close after GO_AWAY or a broken frame."""
        is_sound = True
        try:
            commands = self._decoder.feed(data)
        except FrameError as error:
            commands, is_sound = error.before, False
        answers = [
            (self._waiting.pop(command.opaque), command)
            for command in commands
            if command.is_response and command.opaque in self._waiting
        ]
        if answers:
            self._owner.answered(answers)
        self._goes_away = any(command.code == GO_AWAY for command in commands)
        if self._goes_away or not is_sound:
            self.abort()
