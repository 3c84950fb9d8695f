"""What an accepted connection needs from its member."""

from collections.abc import Sequence
from typing import Protocol

from dledger_formats.protocol.frames import RemotingCommand
from dledger_node.remoting.connection_views import RequestConnection
from dledger_node.remoting.gate import Gate
from dledger_node.remoting.limits import Reason
from dledger_node.remoting.read_turns import ReadTurns


class ConnectionOwner(Protocol):
    """The member, as its connections see it."""

    @property
    def gate(self) -> Gate:
        """Counts and limits the connections."""

    @property
    def read_turns(self) -> ReadTurns:
        """Shares the loop's time among reads."""


class RequestHandler(Protocol):
    """Handles the requests of one connection."""

    def dispatch(
        self,
        commands: Sequence[RemotingCommand],
        connection: RequestConnection,
        only_hello: Reason | None,
        until_s: float,
    ) -> None:
        """Handle commands in order (`dispatch.Dispatcher.dispatch`)."""
