"""`LocalGroup`: members n0, n1, … as processes on loopback.

    async with LocalGroup(GroupShape(group="local", members=3), Path("data")) as group:
        async with DLedgerClient(group.servers, group.name) as client: ...

The members run until the block exits. A member that exits is restarted, as in Kubernetes, so users
can kill the leader and watch the failover.
"""

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias

from dledger_client.cluster.addresses import PORT_MAX, ServerAddress
from dledger_client.cluster.pages import PageError, get_page
from dledger_client.local.broker import BROKER_PORT, BROKER_PROGRAM, LocalBroker
from dledger_client.local.errors import LocalGroupError, MemberFailedError
from dledger_client.local.folder import (
    MEMBERS_ALLOWED,
    GroupShape,
    create_shape,
    load_or_create_shape,
    lock_folder,
    require_empty,
)
from dledger_client.local.member import MemberProcess, Restarted, StopsSlowly
from dledger_client.local.ports import require_free_ports, require_ports_apart
from dledger_client.local.seed import copy_seed, read_seed
from dledger_client.local.silence import AnswersAgain, Silent, watch_silence
from dledger_client.local.token import AuditTokenFile, TokenTrouble, keep_token
from dledger_client.local.trouble import OutOfService, StorageTrouble, TroubleWatch
from dledger_client.tasks import TaskScope
from dledger_formats.http.status import LeaderView, NodeStatus
from dledger_formats.json_objects import FormatError
from dledger_formats.settings import (
    GROUP_PATTERN,
    NO_STATE_MACHINE,
    REMOTING_PORT,
    NodeSettings,
)

HOST: Final = "127.0.0.1"
PROGRAM: Final = "dledger-node"
LEADER_WAIT_S: Final = 10
SUSPICION_WAIT_S: Final = 2
"""After this long, a member without an open store is asked again."""
LEADER_RETRY_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChanged:
    """Another member is the leader, and an entry of its term is committed."""

    leader_id: str
    term: int


Event: TypeAlias = (
    LeaderChanged
    | Restarted
    | StopsSlowly
    | Silent
    | AnswersAgain
    | StorageTrouble
    | OutOfService
    | TokenTrouble
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMember:
    """The addresses of a member."""

    member_id: str
    address: ServerAddress
    http_address: ServerAddress


class LocalGroup:
    """A running group; used with `async with`."""

    def __init__(
        self,
        shape: GroupShape,
        folder: Path,
        *,
        first_port: int = REMOTING_PORT,
        broker_port: int = BROKER_PORT,
        state_machine: str = NO_STATE_MACHINE,
        seed: Path | None = None,
        admin_token: bool = False,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """Configure the group; it starts when it is entered.

        Member k listens on port `first_port` + 2k, and for HTTP on the next port. Brokers share
        `broker_port`, and member k also has the port `broker_port` + 1 + k. `on_event`
        receives each event, and must not raise. A new folder begins with the log of the archive
        `seed`. With `admin_token` the group demands its administration token. Raises
        LocalGroupError if the name of the group is invalid, or the number of members or a port is
        out of range.
        """
        if not GROUP_PATTERN.fullmatch(shape.group):
            raise LocalGroupError(
                f"a group cannot have the name {shape.group!a}; use 1 to 63 letters, digits, "
                "dots, dashes and underscores, and begin with a letter or a digit"
            )
        if shape.members not in MEMBERS_ALLOWED:
            allowed = ", ".join(map(str, MEMBERS_ALLOWED))
            raise LocalGroupError(f"the number of members must be one of {allowed}")
        count = shape.members + shape.addable
        if not 0 < first_port <= PORT_MAX - 2 * count:
            raise LocalGroupError(
                f"port {first_port} is out of range: {count} members need {2 * count} ports from "
                "there on"
            )
        self.name = shape.group
        self.folder = folder
        self.members = {member.member_id: member for member in _members(count, first_port)}
        self.broker = (
            LocalBroker.of(shape.group, list(self.members), HOST, broker_port)
            if shape.broker
            else None
        )
        """Where clients of RocketMQ reach the group; None if its members are not brokers."""
        if self.broker is not None:
            require_ports_apart(_ports_of(self.members.values()), self.broker.ports)
        self._shape = shape
        self._state_machine = state_machine
        self._seed = seed
        self._demands_token = admin_token
        self.token_file: Path | None = None
        """The file with the administration token; None if the group demands none."""
        self.audit_token_file: Path | None = None
        """The file with the audit token; None if the group demands no token."""
        self._on_event = on_event
        self._term = -1
        self._processes: dict[str, MemberProcess] = {}
        self._resources = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start every member.

        Raises MemberFailedError if one cannot be started, and inside the block if a member cannot
        keep running.
        """
        with _failure_of_a_member():
            await self._start()
        return self

    async def _start(self) -> None:
        async with contextlib.AsyncExitStack() as resources:
            program = member_program(PROGRAM if self.broker is None else BROKER_PROGRAM)
            lock = resources.enter_context(lock_folder(self.folder))
            shape = await self._found(self._shape)
            audit_token: AuditTokenFile | None = None
            if self._demands_token:
                self.token_file = keep_token(self.folder)
                audit_token = AuditTokenFile(self.folder, self.token_file)
                audit_token.renew()
                self.audit_token_file = audit_token.path
            require_free_ports(HOST, _ports_of(self.members.values()), "--port")
            if self.broker is not None:
                require_free_ports(HOST, self.broker.ports, "--broker-port")
            broker_environment = {} if self.broker is None else self.broker.environment()
            tasks = await resources.enter_async_context(TaskScope())
            if audit_token is not None:
                tasks.spawn(audit_token.follow(self._on_event))
            for member in self.members.values():
                process = MemberProcess(
                    program,
                    self._settings(member, shape),
                    self.folder,
                    lock,
                    broker_environment=broker_environment,
                    on_event=self._on_event,
                )
                self._processes[member.member_id] = process
                tasks.spawn(process.run())
                tasks.spawn(self._watch(member, process))
                at, name = member.http_address, member.member_id
                tasks.spawn(watch_silence(at, name, process, self._on_event))
            for process in self._processes.values():
                await process.started.wait()
            self._resources = resources.pop_all()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop all members concurrently with SIGTERM."""
        with _failure_of_a_member():
            await self._resources.__aexit__(kind, error, traceback)

    def kill_slow_members(self) -> None:
        """Kill the members that were reported because they take long to stop."""
        for process in self._processes.values():
            process.kill_if_slow()

    @property
    def servers(self) -> list[str]:
        """The members' addresses, for a client."""
        return [str(member.address) for member in self.members.values()]

    @property
    def process_ids(self) -> dict[str, int]:
        """The id of each member's current process."""
        return {member_id: process.pid for member_id, process in self._processes.items()}

    async def _found(self, shape: GroupShape) -> GroupShape:
        """Return the shape of the folder's group; in a new folder, found the group first."""
        if self._seed is None:
            return load_or_create_shape(self.folder, shape)
        require_empty(self.folder)
        info = read_seed(self._seed)
        seeded = replace(
            shape,
            segment_size_bytes=info.segment_bytes,
            index_segment_size_bytes=info.index_segment_bytes,
        )
        voters = list(self.members)[: shape.members]
        await asyncio.to_thread(
            copy_seed, self._seed, info, self.folder, voters, self._state_machine
        )
        return create_shape(self.folder, seeded)

    def _settings(self, member: LocalMember, shape: GroupShape) -> NodeSettings:
        addresses = [(one.member_id, str(one.address)) for one in self.members.values()]
        return NodeSettings(
            group=shape.group,
            group_identity=shape.identity,
            self_id=member.member_id,
            peers=dict(addresses[: shape.members]),
            addable_peers=dict(addresses[shape.members :]),
            store_base_dir=str(self.folder),
            listen_host=HOST,
            http_port=member.http_address.port,
            http_peers={one.member_id: str(one.http_address) for one in self.members.values()},
            segment_size_bytes=shape.segment_size_bytes,
            index_segment_size_bytes=shape.index_segment_size_bytes,
            state_machine=self._state_machine,
            admin_token_file=str(self.token_file or ""),
        )

    async def _watch(self, member: LocalMember, process: MemberProcess) -> None:
        """Poll a member for the leader; report when the member itself leads a newer term."""
        since, trouble = "", TroubleWatch()
        while True:
            wait_s = SUSPICION_WAIT_S if trouble.is_suspected else LEADER_WAIT_S
            path = f"/leader?since={since}&wait={wait_s}s"
            try:
                page = await get_page(member.http_address, path, 2 * LEADER_WAIT_S)
                view = LeaderView.from_json(page)
            except (PageError, FormatError):  # the member has exited or is not up yet
                since = ""
                await asyncio.sleep(LEADER_RETRY_S)
                continue
            process.has_answered = True
            since = view.token
            await self._report_trouble(member, trouble)
            if view.master and view.term > self._term:
                self._term = view.term
                self._on_event(LeaderChanged(leader_id=view.self_id, term=view.term))

    async def _report_trouble(self, member: LocalMember, trouble: TroubleWatch) -> None:
        """Report why a member is out of service, unless that was reported."""
        try:
            status = NodeStatus.from_json(await get_page(member.http_address, "/status", 2.0))
        except (PageError, FormatError):
            return
        if (event := trouble.learn(status)) is not None:
            self._on_event(event)


@contextlib.contextmanager
def _failure_of_a_member() -> Iterator[None]:
    """Raise one MemberFailedError in place of an exception group that contains only such errors."""
    try:
        yield
    except BaseExceptionGroup as errors:
        failed, rest = errors.split(MemberFailedError)
        if failed is None or rest is not None:
            raise
        raise failed.exceptions[0] from errors


def member_program(name: str, python: str = sys.executable, search_path: str | None = None) -> Path:
    """Find a program in the folder of `python`, or else on `search_path`, by default PATH.

    Raises LocalGroupError if it is not installed.
    """
    beside = shutil.which(name, path=str(Path(python).parent))
    found = beside or shutil.which(name, path=search_path)
    if found is None:
        raise LocalGroupError(
            f"{name} was found neither next to {python} nor on PATH; install it with: "
            "pip install 'dledger-operator[node]'"
        )
    return Path(found)


def _members(count: int, first_port: int) -> list[LocalMember]:
    def at(number: int, port: int) -> ServerAddress:
        return ServerAddress(host=HOST, port=port, member_id=f"n{number}")

    return [
        LocalMember(
            member_id=f"n{number}",
            address=at(number, first_port + 2 * number),
            http_address=at(number, first_port + 2 * number + 1),
        )
        for number in range(count)
    ]


def _ports_of(members: Iterable[LocalMember]) -> list[int]:
    return [one.port for member in members for one in (member.address, member.http_address)]


def environment_of(group: LocalGroup) -> Mapping[str, str]:
    """Return the environment variables with which `dledger` finds the group without options.

    RocketMQ's clients read NAMESRV_ADDR.
    """
    pages = (str(member.http_address) for member in group.members.values())
    files = {
        "DLEDGER_CLIENT_ADMIN_TOKEN_FILE": group.token_file,
        "DLEDGER_CLIENT_AUDIT_TOKEN_FILE": group.audit_token_file,
    }
    return {
        "DLEDGER_CLIENT_SERVERS": ",".join(group.servers),
        "DLEDGER_CLIENT_GROUP": group.name,
        "DLEDGER_CLIENT_HTTP": ",".join(pages),
        **({"NAMESRV_ADDR": group.broker.address} if group.broker else {}),
        **{name: str(file) for name, file in files.items() if file is not None},
    }
