"""The connections of clients: requests and their answers, or the end of waiting for them."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_sim.broker.program import BROKER_PORT
from dledger_sim.broker.wires import End, Wires

ANSWER_S: Final = 3.0
"""How long a client of RocketMQ waits for an answer."""

Answered: TypeAlias = Callable[[RemotingCommand | None], None]
"""Called with the answer, or with None once the client stops waiting for it."""


class Ask(NamedTuple):
    """A request."""

    code: int
    ext: dict[str, str]
    body: bytes = b""


class Port:
    """One connection of a client."""

    def __init__(self) -> None:
        self.end: End | None = None
        self.waiting: dict[int, Answered] = {}
        self._decoder = FrameDecoder()
        self._opaque = 0

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self.end is not None and not self.end.is_closed

    def ask(self, ask: Ask, answered: Answered) -> int:
        """Send a request; return its number."""
        assert self.end is not None
        self._opaque += 1
        self.waiting[self._opaque] = answered
        command = RemotingCommand(
            code=ask.code, opaque=self._opaque, flag=0, ext_fields=ask.ext, body=ask.body
        )
        self.end.write(frames.encode(command))
        return self._opaque

    def give_up(self, opaque: int) -> None:
        """Stop waiting for an answer."""
        answered = self.waiting.pop(opaque, None)
        if answered is not None:
            answered(None)

    # -- called by the connection ------------------------------------------------------------------

    def connection_made(self, end: End) -> None:
        """See `asyncio`."""
        self.end = end

    def data_received(self, data: bytes) -> None:
        """See `asyncio`."""
        for command in self._decoder.feed(data):
            if command.is_response:
                answered = self.waiting.pop(command.opaque, None)
                if answered is not None:
                    answered(command)

    def connection_lost(self, _: Exception | None) -> None:
        """See `asyncio`."""
        for opaque in list(self.waiting):
            self.give_up(opaque)


class Ports:
    """The connections of all clients to all members."""

    def __init__(
        self, wires: Wires, after: Callable[..., None], us_of: Callable[[float], int]
    ) -> None:
        """`us_of` converts a duration of the brokers to one of the run."""
        self._wires = wires
        self._after = after
        self._us_of = us_of
        self._ports: dict[tuple[int, str], Port] = {}

    @property
    def waits(self) -> bool:
        """Whether a client waits for an answer."""
        return any(port.waiting for port in self._ports.values())

    def ask(
        self,
        client: int,
        member_id: str,
        ask: Ask,
        answered: Answered,
        answer_s: float = ANSWER_S,
    ) -> bool:
        """Send a request; return False, without sending, if the member cannot be reached."""
        port = self._ports.get((client, member_id))
        if port is None or not port.is_open:
            port = self._ports[client, member_id] = Port()
            name: Any = (f"10.1.0.{client + 1}", 50000)
            if self._wires.connect(member_id, BROKER_PORT, name, port) is None:
                return False
        opaque = port.ask(ask, answered)
        self._after(self._us_of(answer_s), port.give_up, opaque)
        return True
