"""Name servers of a simulated group: good ones, slow ones, and those that lie or are down.

They keep what RocketMQ's `RouteInfoManager` keeps of one broker name: its addresses by broker id,
each as long as the connection lasts over which it was registered. One of 5.x ignores a registration
for an id that another address has with a later term.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.rocketmq.answers import encode_answer
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.names import (
    MASTER_ID,
    RegisterBroker,
    RegisterBrokerFields,
    body_checksum,
)
from dledger_sim.broker.program import BROKER_PORT, host_of
from dledger_sim.broker.wires import OUTSIDE, End, Wires
from dledger_sim.judges.checker import Checker
from dledger_sim.judges.violation import ViolationError
from dledger_sim.runs.choices import Choices

PORT: Final = 9876
UP_S_MAX: Final = 40
DOWN_S_MAX: Final = 20
LATE_S_MAX: Final = 15
"""Maximum delay of an answer; a member does not wait that long."""
GARBAGE: Final = bytes(range(200, 240))


class Nature(enum.IntEnum):
    """How a name server behaves."""

    GOOD = 0
    OFTEN_DOWN = 1
    SLOW = 2
    CLOSING = 3
    """The server answers, and then closes the connection."""
    REFUSING = 4
    LYING = 5
    """The server answers another request, or sends nonsense."""

    @property
    def is_good(self) -> bool:
        """Whether the server works correctly once the faults have ended."""
        return self in (Nature.GOOD, Nature.OFTEN_DOWN)


class World(Protocol):
    """The services of the group that name servers need."""

    now_us: int
    choices: Choices
    checker: Checker

    def after(self, delay_us: int, action: Callable[..., None], *arguments: object) -> None:
        """Plan an event."""


@dataclass(frozen=True, slots=True)
class Told:
    """A broker as a name server knows it."""

    address: str
    term: int
    topics: frozenset[str]
    line: "NameServerPort"


def host_of_server(number: int) -> str:
    """Return a name server's address."""
    return f"10.9.0.{number + 1}"


def addresses(count: int) -> tuple[str, ...]:
    """Return the addresses at which members register."""
    return tuple(f"{host_of_server(number)}:{PORT + number}" for number in range(count))


class SimNameServer:
    """One name server."""

    def __init__(
        self, number: int, world: World, wires: Wires, us_of: Callable[[float], int]
    ) -> None:
        """Begin to listen. `us_of` converts a duration of the brokers to one of the run."""
        self.table: dict[int, Told] = {}
        """The registered brokers by broker id."""
        self.taken = 0
        """Number of registrations that were received."""
        self._number = number
        self._world = world
        self._wires = wires
        self._us_of = us_of
        self._site = f"name server {number}"
        last = max(Nature)
        self.nature = Nature(
            0 if not number else world.choices.number(f"{self._site} is", 0, last, 0)
        )
        self._lines: dict[NameServerPort, None] = {}
        self._is_calm = False
        self._listen()
        if self.nature is Nature.OFTEN_DOWN:
            self._plan(self._fall, UP_S_MAX)

    def calm(self) -> None:
        """Stay up from now on."""
        self._is_calm = True
        self._listen()

    # -- connections -------------------------------------------------------------------------------

    def take(self, line: "NameServerPort", command: RemotingCommand) -> None:
        """Handle a request; answer according to this server's nature."""
        if command.code == RequestCode.REGISTER_BROKER:
            self.taken += 1
            self._register(line, command)
        choices, opaque = self._world.choices, command.opaque
        answer = encode_answer(opaque, int(ResponseCode.SUCCESS))
        if self.nature is Nature.SLOW:
            late_s = choices.number(f"{self._site} is late", 0, LATE_S_MAX, 0)
            self._world.after(1 + self._us_of(late_s), line.write, answer)
            return
        if self.nature is Nature.REFUSING:
            answer = encode_answer(opaque, int(ResponseCode.SYSTEM_ERROR), remark="not today")
        elif self.nature is Nature.LYING:
            lies = (encode_answer(opaque + 7, 0), GARBAGE, answer[: len(answer) // 2], b"")
            answer = lies[choices.number(f"{self._site} lies", 0, len(lies) - 1, 0)]
        line.write(answer)
        if self.nature is Nature.CLOSING:
            line.close()

    def opened(self, line: "NameServerPort") -> None:
        """Keep a connection."""
        self._lines[line] = None

    def closed(self, line: "NameServerPort") -> None:
        """Forget the registrations of a connection."""
        self._lines.pop(line, None)
        for broker_id in [one for one, told in self.table.items() if told.line is line]:
            del self.table[broker_id]

    def _register(self, line: "NameServerPort", command: RemotingCommand) -> None:
        fields = RegisterBrokerFields.from_ext(command.ext_fields)
        table = RegisterBroker.from_json(command.body).topic_config_serialize_wrapper
        term = table.data_version.state_version
        self._check(fields, bytes(command.body), term)
        address, broker_id = fields.broker_addr, fields.broker_id
        for other in [one for one, told in self.table.items() if told.address == address]:
            if other != broker_id:
                del self.table[other]
        known = self.table.get(broker_id)
        if known is not None and known.address != address and known.term > term:
            return
        self.table[broker_id] = Told(address, term, frozenset(table.topic_config_table), line)

    def _check(self, fields: RegisterBrokerFields, body: bytes, term: int) -> None:
        """Check rule 51: only the leader of a term registers as the master, with that term."""
        if fields.body_crc32 != body_checksum(body):
            raise ViolationError("a registration is whole", f"{fields}")
        if fields.broker_id != MASTER_ID:
            return
        leader_id = self._world.checker.leader_of(term)
        if leader_id is None or fields.broker_addr != f"{host_of(leader_id)}:{BROKER_PORT}":
            raise ViolationError(
                "only the leader of a term registers as the master",
                f"{fields.broker_addr} in term {term}, which {leader_id} leads",
            )

    # -- down and up -------------------------------------------------------------------------------

    def _plan(self, action: Callable[[], None], s_max: int) -> None:
        delay_s = self._world.choices.number(f"{self._site} lasts", 1, s_max, s_max)
        self._world.after(self._us_of(delay_s), action)

    def _fall(self) -> None:
        if self._is_calm:
            return
        self._wires.unlisten(OUTSIDE, PORT + self._number)
        for line in list(self._lines):
            line.close()
        self.table.clear()
        self._plan(self._rise, DOWN_S_MAX)

    def _rise(self) -> None:
        if not self._is_calm:
            self._listen()
            self._plan(self._fall, UP_S_MAX)

    def _listen(self) -> None:
        self._wires.listen(None, OUTSIDE, PORT + self._number, lambda: NameServerPort(self))


class NameServerPort:
    """A connection of a member to a name server."""

    def __init__(self, server: SimNameServer) -> None:
        self._server = server
        self._decoder = FrameDecoder()
        self._end: End | None = None

    def write(self, data: bytes) -> None:
        """Send something, unless the connection has ended."""
        if self._end is not None:
            self._end.write(data)

    def close(self) -> None:
        """End the connection."""
        if self._end is not None:
            self._end.close()
        self._server.closed(self)

    # -- called by the connection ------------------------------------------------------------------

    def connection_made(self, end: Any) -> None:
        """See `asyncio`."""
        self._end = end
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        """See `asyncio`."""
        for command in self._decoder.feed(data):
            self._server.take(self, command)

    def connection_lost(self, _: Exception | None) -> None:
        """See `asyncio`."""
        self._server.closed(self)


class NameServers:
    """All name servers of a run."""

    def __init__(
        self, count: int, world: World, wires: Wires, us_of: Callable[[float], int]
    ) -> None:
        self._servers = [SimNameServer(number, world, wires, us_of) for number in range(count)]

    @property
    def taken(self) -> int:
        """Number of registrations that were received."""
        return sum(server.taken for server in self._servers)

    def calm(self) -> None:
        """End all outages."""
        for server in self._servers:
            server.calm()

    def know(self, leader_id: str, member_ids: tuple[str, ...], topics: frozenset[str]) -> bool:
        """Return whether each good name server knows the leader as the master, all other members,
        and which of the topics of clients exist.
        """
        wanted = {
            MASTER_ID
            if member_id == leader_id
            else 1 + number: f"{host_of(member_id)}:{BROKER_PORT}"
            for number, member_id in enumerate(sorted(member_ids))
        }
        return all(
            {broker_id: told.address for broker_id, told in server.table.items()} == wanted
            and topics <= server.table[MASTER_ID].topics
            for server in self._servers
            if server.nature.is_good
        )
