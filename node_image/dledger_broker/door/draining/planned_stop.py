"""The planned stop of a member: its clients go elsewhere, and lose nothing.

The member has handed its leadership over. Behind a Service, clients may still be routed to it until
every node knows that it stops; for that time it goes on as a door. If no other member could lead,
it still leads, takes no messages, and nobody is elected before it ends. In that case it does not go
on as a door.

Next it accepts no further clients and answers the pulls that it holds. Clients above 5.3.1 get
GO_AWAY for whatever they ask from then on: they connect again and ask there. From other clients
nothing more is read. Requests that were read are answered, and the connections end with a reset,
which clients of 4.9 notice at once.
"""

import asyncio
import contextlib
from typing import Final, Protocol

from dledger_broker.door.calls.dispatcher import BrokerRequests
from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.door.connections.listeners import Listeners
from dledger_broker.door.reading.pulls import Pulls
from dledger_broker.settings import BrokerSettings
from dledger_node.remoting.gate import Gate
from dledger_node.slices import in_slices

PASS_ON_S: Final = 2.0
"""How long a Service may still route new clients here. kube-proxy applies changes once a second."""
ANSWERED_S: Final = 2.5
"""How long requests that were read may take to be answered, as anywhere else."""
AWAY_S: Final = 0.25
"""Time for clients to read the last answers, and for those whose pulls were held to ask again."""


class Leading(Protocol):
    """The member, as far as it is used here."""

    @property
    def leads(self) -> bool:
        """Whether this member leads."""


class PlannedStop:
    """The progress of a member's stop."""

    def __init__(self, settings: BrokerSettings, member: Leading) -> None:
        self._member = member
        is_alone = len(settings.node.known_peers) == 1
        has_front = bool(settings.group_address) and not settings.shares_port
        self._pass_on_s = PASS_ON_S if has_front and not is_alone else 0.0
        self.has_begun = False
        self.takes_no_more = False
        """Whether no further request is served."""
        self._answered = asyncio.Event()

    async def run(
        self,
        listeners: Listeners,
        requests: BrokerRequests,
        pulls: Pulls,
        gate: Gate,
    ) -> None:
        """Send all clients away; return once they have their answers."""
        self.has_begun = True
        listeners.leave()
        if not self._member.leads:
            await asyncio.sleep(self._pass_on_s)
        listeners.close()
        self.takes_no_more = True
        requests.go_away()
        async for guest in in_slices(gate.everyone()):
            if isinstance(guest, BrokerConnection):
                guest.send_away()
        await pulls.close()
        # What is read between two slices has to be answered, too.
        self._answered.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._answered.wait(), ANSWERED_S)
        await asyncio.sleep(AWAY_S)

    def has_answered_all(self) -> None:
        """Record that no request waits for its answer."""
        self._answered.set()
