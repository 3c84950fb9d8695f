"""Clients that request as much as they can, and the cost of their requests for the event loop.

The costs were measured on a member. How much one request may cost is limited by the node's own
bounds: `services.entries`, `services.ranges`, `protocol.decoding` and the slices of
`InputTurns` and `ReadTurns`.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Final, cast

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol import decoding
from dledger_node.remoting import connection as real_connection
from dledger_node.remoting.read_turns import READS_WAITING_MAX
from dledger_node.services import entries, ranges
from dledger_node.store.log.log_store import LogStore
from dledger_sim.group.event_loop import Callback
from dledger_sim.group.machine import Machine

REQUEST_US: Final = 15.0
"""Work for a small request, before its answer."""
FRAME_BYTES: Final = 100
"""A small request. The smallest ones cost 0.75 µs a frame beside `BYTE_US`."""
FRAME_US: Final = 0.75
BYTE_US: Final = 0.001
"""Copying and searching a byte of input."""
JSON_BYTE_US: Final = {"brackets": 0.48, "long JSON": 0.025}
"""Parsing a byte of JSON, by its kind."""
READ_US: Final = 20.0
ENTRY_US: Final = 2.0
STORED_BYTE_US: Final = 0.0015
"""Reading, checking and encoding a byte of an entry for GET."""
RANGE_BYTE_US: Final = 0.00015
"""Copying a byte for READ_RANGE."""
LOG_ENTRIES: Final = 250_000
"""Length of the log that the crowd reads; it is not the group's."""
GREED_BYTES: Final = 1 << 30
"""The size that a greedy client requests, and that of a greedy frame."""
JSON_BYTES: Final = 5 << 20
HEADER_BYTES: Final = 48
BODY_BYTES: Final = {"reads of tiny entries": 0, "reads of long entries": 16 << 10}


TAILS: Final = "tails"
TAILS_PER_CONNECTION: Final = 20
"""Tails are many, since each of them costs little."""


class _CountingStore:
    """Replaces the store of `read_entries`, and counts how much is read."""

    def __init__(self, body_bytes: int) -> None:
        self._entry_bytes = HEADER_BYTES + body_bytes
        self.read_us = READ_US

    def checked_range(
        self, first_index: int, last_index: int, stored_bytes: int, *, wait: bool
    ) -> list[bytes]:
        """Note the cost of a read, and return nothing."""
        count = min(last_index, LOG_ENTRIES) - first_index + 1
        count = max(1, min(count, stored_bytes // self._entry_bytes))
        self.read_us += count * (ENTRY_US + self._entry_bytes * STORED_BYTE_US)
        return []


@cache
def _read_us(kind: str) -> float:
    """Return the work of one greedy GET, as the node's bounds permit it."""
    store = _CountingStore(BODY_BYTES[kind])
    entries.read_entries(cast("LogStore", store), 0, LOG_ENTRIES, GREED_BYTES, wait=False)
    return store.read_us


@cache
def _range_us() -> float:
    return READ_US + min(GREED_BYTES, ranges.RANGE_BYTES_MAX) * RANGE_BYTE_US


@cache
def _json_us(kind: str) -> float:
    """Return the work of one frame of JSON: nothing is parsed if the node refuses it before."""
    parsed_bytes = 0
    values, sample_bytes = {"brackets": (b"[],", 60_000), "long JSON": (b"0,", 70_000)}[kind]
    sample = b'{"x":[' + values * (sample_bytes // len(values)) + b"0]}"

    def decode(raw: bytes) -> bytes:
        nonlocal parsed_bytes
        # Brackets fit into the bound of the length, so that only their own bound refuses them.
        parsed_bytes = JSON_BYTES if kind == "long JSON" else len(raw)
        return raw

    with contextlib.suppress(FormatError):
        decoding.decode_strictly(decode, sample)
    return REQUEST_US + parsed_bytes * JSON_BYTE_US[kind]


class CrowdConnection:
    """One connection of a client that always has more requests; a `Reader` and a `Sender`."""

    address = "crowd"
    unread_since_s: float | None = None

    def __init__(self, kind: str, machine: Machine, until_us: int) -> None:
        """`kind` is one of KINDS; the client sends requests until `until_us`."""
        self.reads_waiting = 0
        self._kind = kind
        self._machine = machine
        self._until_us = until_us

    def begin(self) -> None:
        """Send the first requests, or wait for entries, which needs no further input."""
        if self._kind == TAILS:
            self._machine.tails.append(self)
            return
        self._machine.input_turns.ready(self)

    def take_input(self, until_s: float) -> bool:
        """See `InputTurns`. Act as `Connection` does, with an endless supply of requests."""
        handled, machine = 0, self._machine
        decoded_bytes = min(real_connection.DECODED_BYTES, GREED_BYTES)
        if self._has_input():
            frames = decoded_bytes / FRAME_BYTES if self._kind == "frames" else 0
            machine.loop.work(decoded_bytes * BYTE_US + frames * FRAME_US)
        while self._has_input() and (not handled or machine.loop.now_s() < until_s):
            handled += 1
            self._handle()
        return self._has_input()

    def go_on(self) -> None:
        """See `Reader`."""
        if self._kind != TAILS and self._has_input():
            self._machine.input_turns.ready(self)

    def send(self, data: object) -> None:
        """See `Caller`. The client reads its answers."""

    @property
    def is_there(self) -> bool:
        """Whether the client still sends requests."""
        return not self._machine.is_calm and self._machine.events.now_us < self._until_us

    def _has_input(self) -> bool:
        return self.is_there and self.reads_waiting < READS_WAITING_MAX

    def _handle(self) -> None:
        KINDS[self._kind](self._machine, self)
        self._machine.judge()
        self._machine.rules.waits(self.reads_waiting)


def _get(kind: str) -> Callable[[Machine, CrowdConnection], None]:
    def ask(machine: Machine, connection: CrowdConnection) -> None:
        machine.loop.work(REQUEST_US)
        machine.read_turns.submit(connection, lambda: machine.loop.work(_read_us(kind)))

    return ask


def _range(machine: Machine, connection: CrowdConnection) -> None:
    machine.loop.work(REQUEST_US)
    machine.read_turns.submit(connection, lambda: machine.loop.work(_range_us()))


def _json(kind: str) -> Callable[[Machine, CrowdConnection], None]:
    return lambda machine, connection: machine.loop.work(_json_us(kind))


def _small(machine: Machine, connection: CrowdConnection) -> None:
    machine.loop.work(REQUEST_US)


KINDS: Final[dict[str, Callable[[Machine, CrowdConnection], None]]] = {
    "reads of tiny entries": _get("reads of tiny entries"),
    "reads of long entries": _get("reads of long entries"),
    "ranges": _range,
    "brackets": _json("brackets"),
    "long JSON": _json("long JSON"),
    "frames": _small,
    TAILS: _small,
}


class ModestConnection:
    """A client with few requests, each of which must be handled in time."""

    address = "modest"
    unread_since_s: float | None = None

    def __init__(self, machine: Machine) -> None:
        self.reads_waiting = 0
        self.waits = False
        """Whether the client's read is not answered yet."""
        self._machine = machine
        self.requests: deque[tuple[int, Callback]] = deque()
        """The times and the work of the requests that are not handled yet."""

    def ask(self, handle: Callback) -> None:
        """Send a request; `handle` handles it."""
        self.requests.append((self._machine.events.now_us, handle))
        self._machine.input_turns.ready(self)

    def ask_to_read(self) -> None:
        """Send a request for one entry."""
        sent_us = self._machine.events.now_us
        self.waits = True

        def read() -> None:
            self.waits = False
            self._machine.loop.work(READ_US)
            self._served(sent_us, "a read")

        self.ask(lambda: self._machine.read_turns.submit(self, read))

    def take_input(self, until_s: float) -> bool:
        """See `InputTurns`."""
        handled = 0
        while self.requests and (not handled or self._machine.loop.now_s() < until_s):
            handled += 1
            sent_us, handle = self.requests.popleft()
            self._machine.loop.work(REQUEST_US)
            self._served(sent_us, "a request")
            handle()
        return bool(self.requests)

    def go_on(self) -> None:
        """See `Reader`."""

    def send(self, data: object) -> None:
        """See `Caller`."""

    def _served(self, sent_us: int, what: str) -> None:
        machine = self._machine
        waited_us = machine.loop.now_s() * 1e6 - sent_us
        machine.rules.served(what, waited_us, machine.connection_count, machine.slowness)
