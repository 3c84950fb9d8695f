"""Connections between members, and between clients and members, as TCP carries them.

Bytes arrive in order, late and once, or the connection ends. A cut holds them back: they arrive
when the network heals, even if their sender has closed the connection meanwhile, unless its socket
resets it (SO_LINGER). The end of a process closes its connections.
"""

import asyncio
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

from dledger_sim.group.conditions import Conditions
from dledger_sim.group.network import SHORTEST_US, SimNetwork
from dledger_sim.runs.choices import Choices

OUTSIDE: Final = ""
"""The id of a client, which is not a member and always reachable."""
_LINGER: Final = struct.Struct("ii")
RESET_US: Final = 500
"""Time until the other side of a dead process's connection learns of its end."""


class Loop(Protocol):
    """The loop of a member, as far as a connection needs it."""

    @property
    def is_over(self) -> bool:
        """Whether the life of its member is over."""

    def running(self) -> AbstractContextManager[None]:
        """Make this the running loop until the block ends."""

    def raise_failure(self) -> None:
        """Raise an unhandled error, if any."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        """Call in the next turn."""


class WireWorld(Protocol):
    """The services of the group that connections need."""

    now_us: int
    conditions: Conditions
    choices: Choices
    network: SimNetwork

    def after(self, delay_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Plan an event."""

    def when_up(self, member_id: str, action: Callable[[], None]) -> None:
        """Act now, or after the pause of the member."""


class Listener(NamedTuple):
    """A port at which a member, or a program outside the group, accepts connections."""

    loop: Loop | None
    factory: Callable[[], Any]

    def close(self) -> None:
        """Do nothing: a listener ends with the life of its member."""


class EndSocket:
    """The socket of one side. With a linger time of 0 s, its kernel drops unsent bytes on close.
    Otherwise the kernel keeps sending after the connection was closed or the process died.
    """

    def __init__(self) -> None:
        self.resets = False
        """Whether closing the connection drops what has not arrived."""

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        """See `socket`."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER):
            is_on, seconds = _LINGER.unpack(value)
            self.resets = bool(is_on) and seconds == 0


class End(asyncio.Transport):
    """One side of a connection."""

    def __init__(self, wires: "Wires", member_id: str, loop: Loop | None, name: tuple[str, int]):
        """`loop` is None for a client; `name` is the address of the other side."""
        super().__init__()
        self.member_id = member_id
        self.peer: End
        self.is_closed = False
        self.socket = EndSocket()
        self.is_dropped = False
        """Whether bytes in transit from this side are lost with the connection."""
        self.last_arrival_us = 0
        """When the last bytes that this side has sent arrive."""
        self._wires = wires
        self._loop = loop
        self._name = name
        self._protocol: Any = None
        self._is_paused = False
        self._unread: list[bytes] = []

    def made(self, protocol: Any) -> None:
        """Begin: the protocol receives the data that arrives from now on."""
        self._protocol = protocol
        self.call(lambda: protocol.connection_made(self))

    def call(self, action: Callable[[], object]) -> None:
        """Act on the loop of this side."""
        if self._loop is None:
            action()
            return
        with self._loop.running():
            action()
        self._loop.raise_failure()

    def take(self, data: bytes) -> None:
        """Receive data."""
        if self.is_closed:
            return
        if self._is_paused:
            self._unread.append(data)
            return
        self.call(lambda: self._protocol.data_received(data))

    def lose(self) -> None:
        """End, because the other side has ended."""
        if not self.is_closed:
            self.is_closed = True
            protocol = self._protocol
            if protocol is not None:
                self.call(lambda: protocol.connection_lost(ConnectionResetError("reset")))

    # -- asyncio -----------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `asyncio`."""
        if data and not self.is_closed:
            self._wires.carry(self, bytes(data))

    def close(self) -> None:
        """See `asyncio`."""
        self._close()

    def abort(self) -> None:
        """See `asyncio`."""
        self.is_dropped = self.socket.resets
        self._close()

    def _close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._wires.carry(self, None)
            if self._loop is not None and self._protocol is not None:
                self._loop.call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        """See `asyncio`."""
        return self.is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio`."""
        return {"peername": self._name, "socket": self.socket}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio`."""

    def get_write_buffer_size(self) -> int:
        """See `asyncio`."""
        return 0

    def pause_reading(self) -> None:
        """See `asyncio`."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """See `asyncio`."""
        self._is_paused = False
        if self._unread and self._loop is not None:
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        while self._unread and not self._is_paused and not self.is_closed:
            self._protocol.data_received(self._unread.pop(0))


class Wires:
    """All connections of a run."""

    def __init__(self, world: WireWorld, hosts: dict[str, str]) -> None:
        """`hosts` maps each address to its member."""
        self._world = world
        self._hosts = hosts
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._ends: defaultdict[str, dict[End, None]] = defaultdict(dict)
        self._held: list[tuple[str, str, Callable[[], None]]] = []
        """Deliveries that a cut holds back: sender, receiver, and the action on arrival."""

    def listen(
        self, loop: Loop | None, member_id: str, port: int, factory: Callable[[], Any]
    ) -> Listener:
        """Accept connections at a port of a member; without a loop, of a program outside."""
        listener = self._listeners[member_id, port] = Listener(loop, factory)
        return listener

    def unlisten(self, member_id: str, port: int) -> None:
        """Accept no further connections at a port."""
        self._listeners.pop((member_id, port), None)

    def dial(
        self,
        loop: Loop,
        member_id: str,
        address: tuple[str, int],
        factory: Callable[[], Any],
        connected: "asyncio.Future[Any]",
    ) -> None:
        """Connect a member to another one, or fail."""
        host, port = address
        receiver = self._hosts[host]

        def arrived() -> None:
            if loop.is_over:
                return
            listener = self._listeners.get((receiver, port))
            if listener is None:
                self._travel(receiver, member_id, refused)
                return
            near = End(self, member_id, loop, address)
            self._pair(near, receiver, listener, ("10.0.0.99", 40000))

            def accepted() -> None:
                if connected.done() or near.is_closed:
                    near.abort()
                    return
                protocol = factory()
                near.made(protocol)
                connected.set_result((near, protocol))

            self._travel(receiver, member_id, accepted, near.peer)

        def refused() -> None:
            if not (connected.done() or loop.is_over):
                connected.set_exception(ConnectionRefusedError(f"{receiver} does not listen"))

        self._travel(member_id, receiver, arrived)

    def connect(self, member_id: str, port: int, name: tuple[str, int], client: Any) -> End | None:
        """Connect a client to a member; None if it does not listen."""
        listener = self._listeners.get((member_id, port))
        if listener is None:
            return None
        near = End(self, OUTSIDE, None, name)
        near.made(client)
        self._pair(near, member_id, listener, name)
        return near

    def carry(self, sender: End, data: bytes | None) -> None:
        """Carry bytes to the other side, or the end of the connection."""
        receiver = sender.peer
        if data is None:
            self._ends[sender.member_id].pop(sender, None)
            self._travel(sender.member_id, receiver.member_id, receiver.lose, sender)
        else:
            self._travel(
                sender.member_id,
                receiver.member_id,
                lambda: None if sender.is_dropped else receiver.take(data),
                sender,
            )

    def die(self, member_id: str) -> None:
        """End all connections of a member whose process has ended."""
        for key in [key for key in self._listeners if key[0] == member_id]:
            del self._listeners[key]
        for end in self._ends.pop(member_id, {}):
            end.is_closed, end.is_dropped = True, end.socket.resets
            self._travel(member_id, end.peer.member_id, end.peer.lose, end, RESET_US)

    def reset(self, one: str, other: str) -> None:
        """Break the connections between two members."""
        for end in list(self._ends[one]):
            if end.peer.member_id == other:
                for side in (end, end.peer):
                    self._ends[side.member_id].pop(side, None)
                    self._world.when_up(side.member_id, side.lose)

    def heal(self) -> None:
        """Deliver what cuts have held back."""
        held, self._held = self._held, []
        for number, (sender, receiver, action) in enumerate(held, 1):
            self._world.after(number, self._arrive, sender, receiver, action)

    def _pair(self, near: End, receiver: str, listener: Listener, name: tuple[str, int]) -> None:
        far = End(self, receiver, listener.loop, name)
        near.peer, far.peer = far, near
        self._ends[receiver][far] = None
        self._ends[near.member_id][near] = None
        far.made(listener.factory())

    def _travel(
        self,
        sender: str,
        receiver: str,
        action: Callable[[], None],
        end: End | None = None,
        extra_us: int = 0,
    ) -> None:
        """Act when something arrives, after everything that this end has sent before."""
        world = self._world
        travel_us = world.choices.delay_us(f"wire {sender}>{receiver}", world.conditions.delay_us)
        arrival_us = world.now_us + SHORTEST_US + travel_us + extra_us
        if sender and receiver:
            link = world.network.links[sender][receiver]
            arrival_us = max(arrival_us, link.clogged_until_us)
        if end is not None:
            arrival_us = end.last_arrival_us = max(arrival_us, end.last_arrival_us + 1)
        world.after(arrival_us - world.now_us, self._arrive, sender, receiver, action)

    def _arrive(self, sender: str, receiver: str, action: Callable[[], None]) -> None:
        if sender and receiver and self._world.network.links[sender][receiver].cut:
            self._held.append((sender, receiver, action))
        else:
            self._world.when_up(receiver, action)

    def between(self, one: str) -> Iterable[End]:
        """Return the ends at a member."""
        return list(self._ends[one])
