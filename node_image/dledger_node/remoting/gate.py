"""Who may be connected, and what all connections together may hold.

The gate knows every accepted connection. It applies the limits that concern more than one of them,
and once a second those that concern time.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from dledger_node.remoting.limits import SMALL_FRAME_BYTES, Limits, Reason

logger = logging.getLogger(__name__)

LOG_INTERVAL_S: Final = 1.0
"""Between two log lines for one reason: a flood must not fill the disk with its own complaints."""
HELD_UP_S: Final = 3.0
"""So long without a sweep, and this member was held up itself, or stopped."""
RESUME_SHARE: Final = 0.75
"""Paused connections go on below this share of `received_bytes_max`, and not at its very edge."""


class Guest(Protocol):
    """What the gate asks of a connection."""

    address: str
    """Of the other side's host."""
    peer_id: str | None
    """The member that its HELLO named; None for clients and strangers."""

    def overdue(self, now_s: float) -> Reason | None:
        """Which limit of time it has exceeded."""

    def cut(self, reason: Reason, detail: str) -> None:
        """Close at once; what waits to be sent is lost."""

    def close(self) -> None:
        """Close once what was written is sent."""

    def pause_for_room(self) -> None:
        """Read nothing until `go_on`."""

    def go_on(self) -> None:
        """Read again."""


class Gate:
    """Admits connections, keeps their accounts, and ends those whose time is over."""

    def __init__(self, limits: Limits, now_s: Callable[[], float]) -> None:
        self.limits = limits
        self.now_s = now_s
        self.closed_by_reason: Counter[str] = Counter(dict.fromkeys(Reason, 0))
        self.entered = 0
        """Connections that ever came."""
        self.received_bytes = 0
        """Of unfinished frames, of all connections."""
        self.unsent_bytes = 0
        """Of answers that the kernel has not taken, of all connections."""
        self._closed = False
        self._guests: dict[Guest, None] = {}
        self._by_address: Counter[str] = Counter()
        # In the order of their coming, as a dict keeps it.
        self._only_hello: dict[Guest, Reason] = {}
        self._links: dict[str, list[Guest]] = {}
        self._incarnations: dict[str, int] = {}
        # Those with a large unfinished frame, the oldest first, and whether they must wait.
        self._large: dict[Guest, bool] = {}
        self._swept_at_s = now_s()
        self._logged_at_s: dict[Reason, float] = {}

    @property
    def connections(self) -> int:
        """Open connections: of clients, strangers and peers."""
        return len(self._guests) + len(self._only_hello) + sum(map(len, self._links.values()))

    # -- coming and going ------------------------------------------------------------------------

    def enter(self, guest: Guest) -> None:
        """Take in a new connection; in a full house it may only say HELLO."""
        self.entered += 1
        if self._closed:
            guest.close()
            return
        full = self._why_full(guest.address)
        if full is None:
            self._guests[guest] = None
            self._by_address[guest.address] += 1
            return
        self._only_hello[guest] = full
        if len(self._only_hello) > self.limits.hello_places:
            oldest, reason = next(iter(self._only_hello.items()))
            del self._only_hello[oldest]
            oldest.cut(reason, f"no place is left for {oldest.address}")

    def close(self) -> None:
        """Let all connections go, and take in no other: one that was accepted just before would be
        heard by a member that is no more.
        """
        self._closed = True
        for guest in self.everyone():
            guest.close()

    def may_ask(self, guest: Guest) -> Reason | None:
        """Say why a connection may say nothing but HELLO; None when it may."""
        return self._only_hello.get(guest)

    def becomes_link(self, guest: Guest, peer_id: str, incarnation: int) -> None:
        """Note that its HELLO was accepted; its place as a client is free again.

        Nothing that a peer sent before its last start is heard any more: it may have forgotten it,
        and the core counts on that (`raft.recalling`).
        """
        self._forget_stranger(guest)
        links = self._links.setdefault(peer_id, [])
        if self._incarnations.setdefault(peer_id, incarnation) != incarnation:
            self._incarnations[peer_id] = incarnation
            for link in links:
                link.cut(Reason.REPLACED, f"{peer_id} has started anew")
            links.clear()
        links.append(guest)
        if len(links) > self.limits.links_per_peer_max:
            links.pop(0).cut(Reason.REPLACED, f"{peer_id} has opened more than {len(links)} links")

    def leave(self, guest: Guest) -> None:
        """Forget a connection that is closed."""
        self._forget_stranger(guest)
        links = self._links.get(guest.peer_id or "", [])
        if guest in links:
            links.remove(guest)

    def sweep(self) -> None:
        """End every connection whose time is over; to be called about once a second.

        After this member was held up, nothing is ended before what came meanwhile could be read.
        """
        now_s = self.now_s()
        held_up = now_s - self._swept_at_s >= HELD_UP_S
        self._swept_at_s = now_s
        if held_up:
            return
        for guest in self.everyone():
            reason = guest.overdue(now_s)
            if reason is not None:
                guest.cut(reason, "its time is over")

    def everyone(self) -> list[Guest]:
        """All open connections."""
        links = [link for links in self._links.values() for link in links]
        return [*self._guests, *self._only_hello, *links]

    # -- accounts --------------------------------------------------------------------------------

    def count_received(self, guest: Guest, change_bytes: int, held_bytes: int) -> None:
        """Note how what a connection holds of an unfinished frame has changed."""
        self.received_bytes += change_bytes
        if held_bytes > SMALL_FRAME_BYTES:
            self._large.setdefault(guest, False)
        else:
            self._large.pop(guest, None)
        is_full = self.received_bytes > self.limits.received_bytes_max
        if is_full and self._large.get(guest) is False and guest is not next(iter(self._large)):
            self._large[guest] = True
            guest.pause_for_room()
        if change_bytes < 0:
            self._resume()

    def count_unsent(self, change_bytes: int) -> bool:
        """Note how much waits to be sent; False when it is too much of all connections."""
        self.unsent_bytes += change_bytes
        return change_bytes <= 0 or self.unsent_bytes <= self.limits.unsent_bytes_total_max

    def count_closed(self, guest: Guest, reason: Reason, detail: str) -> None:
        """Note that a connection was closed from this side."""
        self.closed_by_reason[reason] += 1
        now_s = self.now_s()
        if now_s - self._logged_at_s.get(reason, now_s - LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._logged_at_s[reason] = now_s
            count = self.closed_by_reason[reason]
            logger.warning(
                "closed the connection of %s (%s, no. %d): %s", guest, reason, count, detail
            )

    def _resume(self) -> None:
        """Let those go on for whom there is room; the first in any case, or all could wait."""
        limit_bytes = self.limits.received_bytes_max * RESUME_SHARE
        for number, (guest, paused) in enumerate(list(self._large.items())):
            if number and self.received_bytes >= limit_bytes:
                return
            if paused:
                self._large[guest] = False
                guest.go_on()

    def _why_full(self, address: str) -> Reason | None:
        if len(self._guests) >= self.limits.connections_max:
            return Reason.CONNECTIONS
        if self._by_address[address] >= self.limits.connections_per_address_max:
            return Reason.CONNECTIONS_PER_ADDRESS
        return None

    def _forget_stranger(self, guest: Guest) -> None:
        self._only_hello.pop(guest, None)
        if guest in self._guests:
            del self._guests[guest]
            self._by_address[guest.address] -= 1
            if not self._by_address[guest.address]:
                del self._by_address[guest.address]
