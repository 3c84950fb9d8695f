"""Finding the leader."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from dledger_client.cluster.addresses import SERVERS_MAX, ServerAddress
from dledger_client.cluster.backoff import pause_s
from dledger_client.cluster.connection import Connection
from dledger_client.cluster.members import Members
from dledger_client.errors import ClientError, ConnectionLostError, RefusedError
from dledger_formats.protocol.requests import MetadataResponse

POLLS_MAX: Final = 2 * SERVERS_MAX

IsWanted: TypeAlias = Callable[[MetadataResponse], bool]


class LeaderSearch:
    """Polls all members until one reports that it is the leader itself.

    Members are polled concurrently, so that a member that does not respond does not delay the
    others. A member's report about another member is only a hint about which one to ask.
    """

    def __init__(
        self, members: Members, random: Callable[[], float], *, silent: Connection | None = None
    ) -> None:
        """`silent` is the connection that the client wants to leave; it is never returned."""
        self._members = members
        self._random = random
        self._silent = silent
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self._result: asyncio.Future[Connection | ClientError] = self._loop.create_future()
        self._tasks = asyncio.TaskGroup()
        self._polls: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def run(self) -> Connection | ClientError:
        """Return the leader's connection, or a RefusedError that makes polling pointless.

        Polls until then or until cancelled. If the client does not follow the leader, returns the
        connection of the first member that answers.
        """
        async with self._tasks:
            self._ask_all_known()
            try:
                return await self._result
            finally:
                for task in self._polls.values():
                    task.cancel()

    def _ask_all_known(self) -> None:
        for address in self._members.addresses():
            key = (address.host, address.port)
            if key not in self._polls and len(self._polls) < POLLS_MAX:
                self._polls[key] = self._tasks.create_task(self._poll(address))

    async def _poll(self, address: ServerAddress) -> None:
        while not self._result.done():
            try:
                connection, response = await self._members.metadata(address)
            except ConnectionLostError:
                pass  # Members keeps the error as its problem
            except RefusedError as error:
                self._settle(error)
            else:
                if self._is_acceptable(address, connection, response):
                    self._settle(connection)
                self._ask_all_known()
            await asyncio.sleep(pause_s(self._loop.time() - self._began_s, self._random))

    def _settle(self, result: Connection | ClientError) -> None:
        if not self._result.done():
            self._result.set_result(result)

    def _is_acceptable(
        self, address: ServerAddress, connection: Connection, response: MetadataResponse
    ) -> bool:
        """Return whether a member reports that it leads itself, in a term that is not outdated."""
        members = self._members
        if not members.follow_leader:
            return True
        if connection.member_id is None or response.leader_id != connection.member_id:
            members.note_problem(
                address,
                f"{connection} reports {response.leader_id} as the leader"
                if response.leader_id
                else f"{connection} knows no leader",
            )
            return False
        if members.is_outdated(response.term):
            members.note_problem(
                address,
                f"{connection} says that it leads term {response.term}, and there is a term "
                f"{members.highest_term}",
            )
            return False
        return not self._is_left(connection)

    def _is_left(self, connection: Connection) -> bool:
        """Return whether a connection is the silent one, or another one to its member while the
        silent one may still answer.
        """
        silent = self._silent
        if silent is None or connection.member_id != silent.member_id:
            return False
        return connection is silent or not silent.is_retired


async def ask_all_members(
    members: Members, is_wanted: IsWanted | None = None
) -> MetadataResponse | ClientError:
    """Ask all members once for METADATA.

    Returns the first wanted response; without `is_wanted`, the first that names a leader and whose
    term is not outdated. If there is none, returns the response with the highest term of those that
    name a leader, else of the other responses, or else an error.
    """

    def ends(answer: MetadataResponse | ClientError) -> bool:
        if not isinstance(answer, MetadataResponse):
            return False
        if is_wanted is not None:
            return is_wanted(answer)
        return answer.leader_id is not None and not members.is_outdated(answer.term)

    answers: list[MetadataResponse | ClientError] = []
    async with asyncio.TaskGroup() as tasks:
        pending = {
            tasks.create_task(_answer_or_error(members, address)) for address in members.addresses()
        }
        while pending and not any(map(ends, answers)):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            answers += (task.result() for task in done)
        for task in pending:
            task.cancel()
    return next(filter(ends, answers), None) or max(answers, key=_rank)


def _rank(answer: MetadataResponse | ClientError) -> tuple[int, int]:
    """Rank answers, from the best: with a leader, other responses, refusals, other errors."""
    if isinstance(answer, MetadataResponse):
        return (2 if answer.leader_id is None else 3), answer.term
    return int(isinstance(answer, RefusedError)), 0


async def _answer_or_error(
    members: Members, address: ServerAddress
) -> MetadataResponse | ClientError:
    try:
        _, response = await members.metadata(address)
    except (ConnectionLostError, RefusedError) as error:
        return error
    return response
