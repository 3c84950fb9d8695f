"""A client's connection, for tests of the code that answers it."""

import asyncio

from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand


class AnswerKeeper:
    """A connection that keeps its answers."""

    def __init__(self) -> None:
        self.answers: list[RemotingCommand] = []
        self.reads_waiting = 0
        self.answered = asyncio.Event()

    def send(self, frame: bytes) -> None:
        """Keep the answers of a frame."""
        self.answers += FrameDecoder().feed(frame)
        self.answered.set()

    def go_on(self) -> None:
        """Do nothing: nothing was postponed."""
