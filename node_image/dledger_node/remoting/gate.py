"""Admission of connections, and limits on what all of them hold together.

The gate knows every accepted connection. It applies the limits that concern more than one
connection, and checks the time limits once a second.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from dledger_node.common_times import next_common_time
from dledger_node.drain import Drain
from dledger_node.limited_log import LineBudget
from dledger_node.remoting.connection_views import GatedConnection
from dledger_node.remoting.held_bytes import HeldBytes
from dledger_node.remoting.input_turns import PEERS_SLICE_S, InputTurns
from dledger_node.remoting.limits import Limits, Reason
from dledger_node.remoting.quotas import Quotas
from dledger_node.slices import Slices, in_slices
from dledger_node.traffic import Traffic

logger = logging.getLogger(__name__)

HELD_UP_S: Final = 3.0
"""A longer time between two sweeps means that this member itself was stopped or delayed."""
SWEEP_INTERVAL_S: Final = 1.0
SWEEP_SLICE: Final = 8
"""Connections that one turn of the loop sweeps. Closing one with a large frame takes 130 µs."""
UNREAD_SHARE: Final = 0.9
"""Connections are cut until unread answers hold this share of `unsent_bytes_total_max`, so that not
every further answer causes another cut.
"""
FREE_PER_OWN: Final = 1 / 3
"""Free places that an address must leave to others for each of its own. So it takes at most three
quarters of the places that others have left.
"""


class Gate:
    """Admits connections, counts what they hold, and closes those that exceed a limit."""

    def __init__(
        self,
        limits: Limits,
        now_s: Callable[[], float],
        traffic: Traffic | None = None,
        *,
        begin_turn: Callable[[], None] = lambda: None,
        begin_peer_turn: Callable[[], None] = lambda: None,
    ) -> None:
        """`begin_turn` is called before a connection handles a client's input, `begin_peer_turn`
        before one handles a peer's.
        """
        self.limits = limits
        self.traffic = traffic or Traffic()
        """Counts what all connections receive and send."""
        self.now_s = now_s
        self.begin_turn = begin_turn
        self.begin_peer_turn = begin_peer_turn
        self.quotas = Quotas(limits, now_s)
        """What each address may send in a second."""
        self.input_turns = InputTurns()
        """Shares the loop's time among the input of all clients."""
        self.peer_turns = InputTurns(slice_s=PEERS_SLICE_S)
        """Shares the loop's time among the input of all peers."""
        self.closed_by_reason: Counter[str] = Counter(dict.fromkeys(Reason, 0))
        self.entered = 0
        """How many connections were accepted since the start."""
        self.unsent_bytes = 0
        """Bytes of all connections' answers that the kernel has not accepted yet."""
        self._closed = False
        # Connections that are to be ended, the next one last.
        self._to_end: list[GatedConnection] = []
        self._ending = Slices(self._end)
        self._end_of_all = Drain()
        self._clients: dict[GatedConnection, None] = {}
        self._by_address: Counter[str] = Counter()
        # Connections that may send only HELLO, the oldest first.
        self._only_hello: dict[GatedConnection, Reason] = {}
        self._links: dict[str, list[GatedConnection]] = {}
        self._incarnations: dict[str, int] = {}
        self._of_clients = HeldBytes(limits.received_bytes_max)
        self._of_links = HeldBytes(limits.links_received_bytes_max)
        self._swept_at_s = now_s()
        self._lines = LineBudget(now_s)
        self._drain = Drain()

    def take_limits(self, limits: Limits) -> None:
        """Apply new limits; those on a single connection apply to the ones accepted from now on."""
        self.limits = limits
        self._of_clients.bytes_max = limits.received_bytes_max
        self._of_links.bytes_max = limits.links_received_bytes_max
        self.quotas.take_limits(limits)

    @property
    def connections(self) -> int:
        """The number of open connections, of clients and of peers."""
        return len(self._clients) + len(self._only_hello) + sum(map(len, self._links.values()))

    # -- opening and closing ---------------------------------------------------------------------

    def enter(self, connection: GatedConnection) -> None:
        """Admit a new connection; if all places are taken, it may send only HELLO."""
        self.entered += 1
        if self._closed:
            connection.end()
            return
        full = self._why_full(connection.address)
        if full is None:
            self._clients[connection] = None
            self._by_address[connection.address] += 1
            return
        self._only_hello[connection] = full
        if len(self._only_hello) > self.limits.hello_places:
            oldest, reason = next(iter(self._only_hello.items()))
            del self._only_hello[oldest]
            oldest.cut(reason, f"too many connections; this one is from {oldest.address}")

    async def take_no_more(self) -> None:
        """Stop reading requests of clients that understand GO_AWAY: this member stops.

        These clients send their requests to another member, so none is refused here.
        """
        async for connection in in_slices(list(self._clients)):
            connection.take_no_more()

    def close(self) -> None:
        """End all connections, and every one that the event loop still accepts.

        Nothing that they sent is handled from now on, even if they are ended some turns later.
        """
        self._closed = True
        self.input_turns.close()
        self.peer_turns.close()
        self._to_end = self.everyone()[::-1]
        self._ending.begin()

    def _end(self, count: int) -> bool:
        for _ in range(min(count, len(self._to_end))):
            self._to_end.pop().end()
        self._end_of_all.notice(len(self._to_end))
        return bool(self._to_end)

    async def ended(self, timeout_s: float) -> None:
        """Wait until all connections are closed, and cut those that are still open `timeout_s`
        after this member has ended them.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._end_of_all.wait(len(self._to_end))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._drain.wait(self.connections)
        async for connection in in_slices(self.everyone()):
            connection.cut(Reason.STOPPED, f"it is open {timeout_s:g} s after this member ended it")

    def only_hello(self, connection: GatedConnection) -> Reason | None:
        """Return why a connection may send only HELLO; None if it may send anything."""
        return self._only_hello.get(connection)

    def becomes_link(self, connection: GatedConnection, peer_id: str, incarnation: int) -> None:
        """Count a connection whose HELLO was accepted as a peer's, and no longer as a client's.

        Links of the peer's earlier incarnations are cut: the peer may have lost the promises that
        it sent there, and the core relies on never receiving them afterwards (`raft.recalling`).
        """
        self._forget_stranger(connection)
        links = self._links.setdefault(peer_id, [])
        if self._incarnations.setdefault(peer_id, incarnation) != incarnation:
            self._incarnations[peer_id] = incarnation
            for link in links:
                link.cut(Reason.REPLACED, f"{peer_id} has restarted")
            links.clear()
        links.append(connection)
        if len(links) > self.limits.links_per_peer_max:
            links.pop(0).cut(Reason.REPLACED, f"{peer_id} has opened more than {len(links)} links")

    def cut_links(self, peer_id: str, reason: str) -> None:
        """Cut all links that a peer has opened."""
        for link in self._links.pop(peer_id, []):
            link.cut(Reason.LINK_REFUSED, reason)

    def leave(self, connection: GatedConnection) -> None:
        """Forget a connection that is closed."""
        self._forget_stranger(connection)
        links = self._links.get(connection.peer_id or "", [])
        if connection in links:
            links.remove(connection)
        self._drain.notice(self.connections)

    async def keep_times(self) -> None:
        """Sweep once a second, until cancelled."""
        while True:
            await next_common_time(SWEEP_INTERVAL_S)
            for _ in self.sweep():
                await asyncio.sleep(0)

    def sweep(self) -> Iterator[None]:
        """Cut every connection that exceeds a time limit; run this about once a second.

        Yields after each SWEEP_SLICE connections, so that the loop may turn in between. After this
        member was delayed, one sweep is skipped, so that bytes which arrived in the meantime are
        read first.
        """
        now_s = self.now_s()
        self.quotas.forget_unused()
        held_up = now_s - self._swept_at_s >= HELD_UP_S
        self._swept_at_s = now_s
        if held_up:
            return
        for number, connection in enumerate(self.everyone(), 1):
            reason = connection.overdue(now_s)
            if reason is not None:
                connection.cut(reason, "it exceeded a time limit")
            if not number % SWEEP_SLICE:
                yield

    def everyone(self) -> list[GatedConnection]:
        """Return all open connections."""
        links = [link for links in self._links.values() for link in links]
        return [*self._clients, *self._only_hello, *links]

    # -- byte counts -----------------------------------------------------------------------------

    @property
    def received_bytes(self) -> int:
        """Bytes of unfinished frames that all connections hold."""
        return self._of_clients.held_bytes + self._of_links.held_bytes

    def count_received(
        self, connection: GatedConnection, change_bytes: int, held_bytes: int
    ) -> None:
        """Note how many bytes of an unfinished frame a connection holds.

        Clients and links have separate limits. Whatever clients hold, a member reads what its
        leader sends: without heartbeats, it would stand for election.
        """
        held = self._of_clients if connection.peer_id is None else self._of_links
        held.count(connection, change_bytes, held_bytes)

    def count_unsent(self, change_bytes: int) -> None:
        """Count unsent bytes; above the limit, cut the connections that leave most unread."""
        self.unsent_bytes += change_bytes
        if change_bytes > 0 and self.unsent_bytes > self.limits.unsent_bytes_total_max:
            self._cut_unread()

    def _cut_unread(self) -> None:
        by_bytes = sorted(
            self.everyone(), key=lambda connection: connection.unsent_bytes, reverse=True
        )
        for connection in by_bytes:
            if self.unsent_bytes <= self.limits.unsent_bytes_total_max * UNREAD_SHARE:
                return
            unread_bytes = connection.unsent_bytes
            detail = f"all connections leave too much unread, and this one {unread_bytes} bytes"
            connection.cut(Reason.UNREAD, detail)

    def count_closed(self, connection: object, reason: Reason, detail: str) -> None:
        """Count a connection that this member closes, and log it."""
        self.closed_by_reason[reason] += 1
        admitted = self._lines.admit(reason)
        if admitted is not None:
            count = self.closed_by_reason[reason]
            text = "closed the connection of %s (%s, no. %d): %s%s"
            logger.warning(text, connection, reason, count, detail, admitted)

    def _why_full(self, address: str) -> Reason | None:
        free = self.limits.connections_max - len(self._clients)
        if free <= 0:
            return Reason.CONNECTIONS
        own = self._by_address[address]
        if own >= self.limits.connections_per_address_max or own * FREE_PER_OWN >= free:
            return Reason.CONNECTIONS_PER_ADDRESS
        return None

    def _forget_stranger(self, connection: GatedConnection) -> None:
        self._only_hello.pop(connection, None)
        if connection in self._clients:
            del self._clients[connection]
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]
