"""The members of a group as the client knows them: their addresses and connections to them."""

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dledger_client.cluster.addresses import SERVERS_MAX, ServerAddress, parse_server
from dledger_client.cluster.arguments import check_seconds
from dledger_client.cluster.connection import Connection, ConnectionWatcher
from dledger_client.errors import AddressError, ConnectionLostError, RefusedError
from dledger_formats.http.status import identities_differ
from dledger_formats.json_objects import FormatError
from dledger_formats.net.dialing import dial, reason_of
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode
from dledger_formats.protocol.go_away import TAKES_GO_AWAY_FLAG
from dledger_formats.protocol.passing_on import PASS_ON_FLAG
from dledger_formats.protocol.requests import MetadataRequest, MetadataResponse

LINKS_MAX: Final = 4 * SERVERS_MAX
CLOSED: Final = "the client was closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Timeouts of the client, in seconds."""

    deadline_s: float = 30.0
    """Timeout of one operation, including all its attempts."""
    request_timeout_s: float = 5.0
    """Timeout of one response. A Java leader takes up to 3 s to report that no quorum answered."""
    connect_timeout_s: float = 1.0
    stall_s: float = 0.5
    """If the leader sends nothing for this long while responses are due, the client asks the other
    members for a new leader.
    """
    follow_wait_s: float = 2.0
    """How long a server of this project waits for the next entry before it responds without one."""
    follow_margin_s: float = 0.25
    """How much later than `follow_wait_s` that response may arrive before it is due."""
    service_wait_s: float = 10.0
    """How long an append without `follow_leader` is resent to servers that name another leader:
    a Service points to a new leader later than the members elect it.
    """

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            check_seconds(getattr(self, item.name), item.name)


def check_timing(value: object) -> Timing:
    """Return a Timing. Raises TypeError for anything else."""
    if not isinstance(value, Timing):
        raise TypeError(f"timing must be a Timing, not {type(value).__name__}")
    return value


@dataclass(slots=True)
class _Link:
    """The only connection to an address; the lock keeps two tasks from opening it twice."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: Connection | None = None


_Key: TypeAlias = tuple[str, int]
"""Host and port."""


class Members:
    """The configured servers and the peers that they report.

    Host names are resolved for every connection, because a restarted pod has another address.
    """

    def __init__(
        self,
        group: str,
        servers: Sequence[ServerAddress],
        timing: Timing,
        watcher: ConnectionWatcher,
        *,
        follow_leader: bool,
    ) -> None:
        self.group = group
        self.follow_leader = follow_leader
        """If False, only the configured servers are asked, not the members that METADATA names."""
        self.timing = timing
        self.servers = tuple(servers)
        self.peers: dict[str, ServerAddress] = {}
        self.highest_term = -1
        """The highest term of any response; METADATA of Java servers contains none."""
        self._group_identity = ""
        """The identity of the group whose members get the calls; empty while it is not known."""
        self._problems: dict[_Key, str] = {}
        """The most recent error of each address."""
        self.is_unanswered = False
        """Whether a caller is waiting until any member answers METADATA."""
        self._watcher = watcher
        self._links: dict[_Key, _Link] = {}
        # Every connection that may be open: those of the links, and forgotten ones that still wait
        # for responses.
        self._connections: set[Connection] = set()
        self._is_known = False
        self._is_closed = False

    def addresses(self) -> list[ServerAddress]:
        """Return the addresses to ask: peers first, because their ids are known."""
        return [*(self.peers.values() if self.follow_leader else ()), *self.servers]

    @property
    def problems(self) -> list[str]:
        """The most recent error of each member, for humans; at least one text."""
        keys = dict.fromkeys((one.host, one.port) for one in self.addresses())
        found = [self._problems[key] for key in keys if key in self._problems]
        unknown = f"no answer yet from {', '.join(map(str, self.servers))}"
        return found or [unknown]

    def note_problem(self, address: ServerAddress, problem: str) -> None:
        """Keep the most recent error of the member at an address."""
        if len(self._problems) >= LINKS_MAX:  # most are addresses of pods that no longer exist
            self._problems.clear()
        self._problems[address.host, address.port] = problem

    async def metadata(self, address: ServerAddress) -> tuple[Connection, MetadataResponse]:
        """Ask the member at an address for METADATA, and update the peers from its response.

        Raises ConnectionLostError if a retry may help. Raises RefusedError if it cannot: the server
        does not belong to the group, and no other server has answered yet.
        """
        try:
            connection = await self._connect(address)
            response = await self._ask(connection)
            if not self.may_use(connection):
                self.forget(connection)
                raise ConnectionLostError(_stranger(self.group, connection), was_sent=True)
        except (ConnectionLostError, RefusedError) as error:
            self.note_problem(address, str(error))
            if isinstance(error, RefusedError) and self._is_known:
                # Another group's pod may have taken over the address before DNS is updated.
                raise ConnectionLostError(str(error), was_sent=True) from error
            raise
        self._problems.pop((address.host, address.port), None)
        self._learn(address, connection, response)
        return connection, response

    def may_use(self, connection: Connection) -> bool:
        """Return whether calls may be sent on a connection: its member does not belong to another
        group than the members that got earlier calls.
        """
        return not identities_differ(connection.group_identity, self._group_identity)

    def use(self, connection: Connection) -> None:
        """Keep to the group of this connection, which gets calls from now on.

        Indexes, and the numbers of idempotent appends, mean nothing in another group of that name.
        """
        self._group_identity = self._group_identity or connection.group_identity

    def record_term(self, term: int) -> None:
        """Keep the highest term."""
        self.highest_term = max(self.highest_term, term)

    def is_outdated(self, term: int) -> bool:
        """Return whether a member has reported a higher term. Java servers do not report theirs."""
        return 0 <= term < self.highest_term

    def forget(self, connection: Connection) -> None:
        """Send no further request on this connection; the next one to its address is new."""
        for link in self._links.values():
            if link.connection is connection:
                link.connection = None
        connection.retire()

    async def close(self) -> None:
        """Abort every connection, at once and for good, and wait until they are closed."""
        self._is_closed = True
        for connection in self._connections:
            connection.abort(CLOSED)
        for connection in self._connections:
            await connection.closed.wait()

    async def _connect(self, address: ServerAddress) -> Connection:
        if len(self._links) >= LINKS_MAX:  # most are addresses of pods that no longer exist
            self._links = {
                key: link
                for key, link in self._links.items()
                if link.connection is not None and link.connection.is_open
            }
        link = self._links.setdefault((address.host, address.port), _Link())
        async with link.lock:
            if self._is_closed:
                raise ConnectionLostError(CLOSED, was_sent=False)
            connection = link.connection
            if connection is None or not connection.is_open:
                connection = link.connection = await self._open(address)
            return connection

    async def _open(self, address: ServerAddress) -> Connection:
        def make() -> Connection:
            flag = TAKES_GO_AWAY_FLAG | (0 if self.follow_leader else PASS_ON_FLAG)
            return Connection(address, self._watcher, stall_s=self.timing.stall_s, flag=flag)

        try:
            async with asyncio.timeout(self.timing.connect_timeout_s):
                _, connection = await dial(make, address.host, address.port)
        except OSError as error:  # TimeoutError is one
            reason = reason_of(error) or f"no connection within {self.timing.connect_timeout_s:g} s"
            raise ConnectionLostError(
                f"{address} cannot be reached: {reason}", was_sent=False
            ) from error
        if self._is_closed:  # meanwhile
            connection.abort(CLOSED)
            raise ConnectionLostError(CLOSED, was_sent=False)
        self._connections = {known for known in self._connections if known.is_open}
        self._connections.add(connection)
        return connection

    async def _ask(self, connection: Connection) -> MetadataResponse:
        """Ask for METADATA. Forget a connection on which nothing arrives meanwhile: its other end
        may have vanished without a word, and be elsewhere by now.
        """
        request = MetadataRequest(group=self.group, remote_id=connection.member_id)
        heard_at_s = connection.heard_at_s
        try:
            command = await connection.ask(
                RequestCode.METADATA, request.to_json(), self.timing.connect_timeout_s
            )
        except ConnectionLostError:
            if connection.heard_at_s == heard_at_s:
                self.forget(connection)
            raise
        try:
            response = MetadataResponse.from_json(command.body)
        except FormatError as error:
            raise ConnectionLostError(
                f"{connection} sent a malformed response: {command.remark or error}",
                was_sent=True,
            ) from error
        if response.code is not DLedgerResponseCode.SUCCESS:
            self.forget(connection)
            raise RefusedError(response.code, _explain(self.group, connection, response.code))
        connection.group_identity = response.group_identity
        return response

    def _learn(
        self, address: ServerAddress, connection: Connection, response: MetadataResponse
    ) -> None:
        self._is_known = True
        connection.member_id = response.local_id or connection.member_id
        connection.takes_batches = bool(response.voters)  # only this project's servers name voters
        self.record_term(response.term)
        peers: dict[str, ServerAddress] = {}
        for peer_id, peer in sorted(response.peers.items())[:SERVERS_MAX]:
            try:
                peers[peer_id] = parse_server(f"{peer_id}={peer}")
            except AddressError as error:
                problem = f"{connection} lists a member without a usable address: {error}"
                self.note_problem(address, problem)
        self.peers = peers or self.peers


def _stranger(group: str, connection: Connection) -> str:
    return (
        f"{connection} belongs to another group named {group}, to which this client does not go "
        "over: the group was founded again, or the address is now another one's; open a new client"
    )


def _explain(group: str, connection: Connection, code: DLedgerResponseCode) -> str:
    if code is DLedgerResponseCode.UNKNOWN_GROUP:
        return f"{connection} does not belong to group {group}"
    if code is DLedgerResponseCode.UNKNOWN_MEMBER and connection.member_id is None:
        return (
            f"{connection} only accepts requests that contain its member id, as Java servers do; "
            f"specify it as ID={connection.address}"
        )
    return f"{connection} refused METADATA: {code.value} {code.name}"
