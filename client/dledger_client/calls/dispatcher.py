"""Sends calls to the current leader and decides when a call may be resent."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from dledger_client.calls.call import Call, must_be_split
from dledger_client.calls.call_queue import CallQueue
from dledger_client.calls.stalled import leave_stalled
from dledger_client.calls.statistics import AppendStatistics
from dledger_client.calls.unsent import UnsentCalls
from dledger_client.calls.verdicts import Judgement, Verdict, judge, success
from dledger_client.cluster.addresses import ServerAddress
from dledger_client.cluster.backoff import PAUSE_MIN_S, pause_s
from dledger_client.cluster.connection import Connection
from dledger_client.cluster.members import Members, Timing
from dledger_client.cluster.search import LeaderSearch
from dledger_client.errors import (
    ClientError,
    ConnectionLostError,
    GroupUnreachableError,
    NotLeaderError,
    OutcomeUnknownError,
)
from dledger_client.tasks import Spawn
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.requests import Message

EXPIRY_INTERVAL_S: Final = 0.05
DISK_FULL_PAUSE_S: Final = 0.5
"""Minimum pause after DISK_FULL: retention takes time to free space."""


class Dispatcher:
    """Owns the connection to the leader, the waiting calls, and the search for the leader.

    A call that has not ended is in exactly one place: on a connection, or in `_unsent`.
    """

    def __init__(
        self,
        group: str,
        servers: Sequence[ServerAddress],
        timing: Timing,
        statistics: AppendStatistics,
        spawn: Spawn,
        *,
        follow_leader: bool,
        random: Callable[[], float],
    ) -> None:
        self.members = Members(group, servers, timing, self, follow_leader=follow_leader)
        self._spawn = spawn
        self._statistics = statistics
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._leader: Connection | None = None
        self._unsent = UnsentCalls()
        self._search: asyncio.Task[None] | None = None
        self._leader_check: asyncio.Task[None] | None = None
        # Searches since the last successful response; each one but the first starts after a pause.
        self._searches = 0
        self._trouble_since_s = 0.0
        self.is_closed = False
        self.on_stall: Callable[[Connection], None] = lambda _: None

    @property
    def leader(self) -> Connection | None:
        """The connection to the leader; None while no leader is known."""
        return self._leader

    @property
    def stuck_call(self) -> Call | None:
        """A call that waits for a leader, or to be sent again; None if there is none."""
        return self._unsent.first

    def submit(self, call: Call) -> None:
        """Send a call now, or as soon as a leader is found."""
        self.record_start(call)
        if self._leader is not None and not self.is_closed:
            self.send(call, self._leader, call.began_s)
        else:
            self.forward(call)

    def record_start(self, call: Call) -> None:
        """Count a new call in the statistics; `forward` or `end` must follow."""
        if call.kind.appends:
            self._statistics.record_start(call.began_s, call.entry_count)

    def close(self) -> None:
        """End every call: the outcome of a sent call is unknown, the others had no effect."""
        self.is_closed = True
        for task in (self._search, self._leader_check):
            if task is not None:
                task.cancel()
        for call in self._unsent.take_all():
            self.end(call, GroupUnreachableError("the client was closed"))

    # CallHandler

    def answered(self, call: Call, command: RemotingCommand) -> None:
        """Process a member's response: end the call, or resend it if that is safe."""
        response = success(call.kind, command)
        if response is not None:
            self.succeeded(call, response)
            return
        judgement = judge(call.kind, command)
        if judgement.verdict is Verdict.DONE:
            assert judgement.response is not None
            self.succeeded(call, judgement.response)
            return
        call.last_code, call.problem = judgement.code, f"{call.connection}: {judgement.reason}"
        if judgement.verdict is Verdict.REFUSED or (
            judgement.verdict is Verdict.RETRY_WITH_NUMBERS and call.sent_as_numbers
        ):
            if must_be_split(call, call.refusal()):
                self._split(call)
            self.end(call, call.refusal())
        elif judgement.verdict is Verdict.RETRY_ELSEWHERE:
            self._send_elsewhere(call, judgement)
        elif judgement.verdict is Verdict.RETRY_WITH_NUMBERS:
            assert call.connection is not None
            call.connection.bytes_as_numbers = True
            self.forward(call)
        elif judgement.verdict is Verdict.RETRY_LATER:
            if call.is_crowded_out(self._loop.time()):
                self._split(call)
                self.end(call, call.refusal())
            else:
                self._send_later(call)
        elif judgement.verdict is Verdict.REREGISTER:
            self._reregister(call)
        else:
            call.may_have_happened = True
            if call.is_repeatable:
                self._send_later(call)
            else:
                self.end(call, OutcomeUnknownError(call.problem))

    def succeeded(self, call: Call, response: Message) -> None:
        """End a call that succeeded."""
        self._searches = 0
        if response.term > self.members.highest_term:
            self.members.record_term(response.term)
        if call.kind.appends:
            self._statistics.record_acknowledged(self._loop.time(), call.entry_count)
        self._resolve(call, response)

    def lost(self, call: Call, error: ConnectionLostError) -> None:
        """Process a lost attempt: resend the call if that is safe, else end it as unknown."""
        call.last_code, call.problem = None, str(error)
        call.may_have_happened |= error.was_sent
        if error.was_sent and not call.is_repeatable:
            self.end(call, OutcomeUnknownError(call.problem))
        else:
            self.forward(call)

    def cancelled(self, call: Call) -> None:
        """Drop a cancelled call.

        A delayed call ends now; a call that waits for a leader, at the next expiry check; a call
        that was sent, with its response or its timeout.
        """
        if self._unsent.drop_delayed(call):
            self.end(call, GroupUnreachableError("cancelled"))

    # ConnectionWatcher

    def connection_lost(self, connection: Connection) -> None:
        """Forget the leader if this was the connection to it; the next call starts a search."""
        if self._leader is connection:
            self._leader = None

    def connection_stalled(self, connection: Connection) -> None:
        """Ask the members for the leader while the leader does not respond."""
        self.on_stall(connection)
        if self._leader is connection and self._leader_check is None:
            self._leader_check = self._spawn(self._leave_stalled(connection))

    # Sending, resending and ending a call

    def forward(self, call: Call) -> None:
        """Send a call that was counted before, or end it if it expired or was cancelled."""
        if call.answer.done():  # cancelled by its caller
            self.end(call, GroupUnreachableError("cancelled"))
        elif self.is_closed:
            self.end(call, GroupUnreachableError("the client was closed"))
        elif self._leader is not None:
            self.send(call, self._leader, self._loop.time())
        else:
            self._unsent.waiting.append(call)
            if self._search is None:
                self._search = self._spawn(self._search_leader())

    def send(self, call: Call, connection: Connection, now_s: float) -> None:
        """Send a call on a connection, or end it if it expired."""
        if call.deadline_s <= now_s:
            self._end_overdue(call)
            return
        call.attempts += 1
        call.connection = connection
        call.sent_as_numbers = connection.bytes_as_numbers
        call.due_at_s = now_s + call.answer_s
        expires_at_s = call.due_at_s + self.members.timing.request_timeout_s
        call.expires_at_s = min(call.deadline_s, expires_at_s)
        request = call.request.addressed_to(connection.member_id)
        connection.send(call.kind.code, call.kind.encode(request, call.sent_as_numbers), call)

    def _send_elsewhere(self, call: Call, judgement: Judgement) -> None:
        connection = call.connection
        assert connection is not None
        if self._leader is connection:
            self._leader = None
        call.last_code = None  # the code of a member that does not lead is not the group's refusal
        if not self.members.follow_leader or judgement.code is DLedgerResponseCode.UNKNOWN_MEMBER:
            self.members.forget(connection)  # a Service may route to another pod next time
        leader_id = judgement.response.leader_id if judgement.response else None
        service_wait_s = self.members.timing.service_wait_s
        if self.members.follow_leader:
            self.forward(call)
        elif judgement.code is DLedgerResponseCode.NOT_LEADER and (
            not leader_id or call.may_reach_leader(self._loop.time(), service_wait_s)
        ):
            self._send_later(call)  # the next leader may be another server
        else:
            self.end(call, NotLeaderError(call.problem, leader_id))

    def _split(self, call: Call) -> None:
        """Have a refused batch sent as single appends, by the sequencer or by its owner."""
        assert call.connection is not None
        if call.last_code is not DLedgerResponseCode.SEQUENCES_NOT_NEW:
            call.connection.note_refused_batch(call.entry_count)
        if call.sequencer is not None and not call.answer.done():
            call.sequencer.split(call)

    def _reregister(self, call: Call) -> None:
        if call.sequencer is None or call.may_have_happened:
            self.end(call, call.refusal())
        else:
            call.sequencer.reregister(call)

    def _send_later(self, call: Call) -> None:
        at_least_s = PAUSE_MIN_S
        if call.last_code is DLedgerResponseCode.DISK_FULL:
            at_least_s = DISK_FULL_PAUSE_S
            call.full_problem = call.problem
        now_s = self._loop.time()
        pause = pause_s(now_s - call.began_s, self._random, at_least_s)
        if (rest_s := call.deadline_s - now_s) > pause:
            self._unsent.delay(call, pause, self.forward)
        else:  # not `forward`: a timer may run a little early, and would send the call once more
            self._unsent.delay(call, max(0.0, rest_s), self._end_overdue)

    def end(self, call: Call, answer: ClientError) -> None:
        """End a call that failed."""
        if call.is_in_doubt:
            answer = OutcomeUnknownError(call.problem or str(answer))
        if call.kind.appends:
            if must_be_split(call, answer):
                self._statistics.record_withdrawn(call.entry_count)
            else:
                self._statistics.record_failed(self._loop.time(), answer, call.entry_count)
        self._resolve(call, answer)

    def _resolve(self, call: Call, answer: Message | ClientError) -> None:
        if not call.answer.done():
            call.answer.set_result(answer)
        if call.sequencer is not None:
            call.sequencer.ended(call)
        if call.on_end is not None:
            call.on_end()

    def _end_overdue(self, call: Call) -> None:
        is_searching = self._leader is None and self.members.follow_leader
        others = self.members.problems if is_searching or not call.problem else []
        # Not some milliseconds more: the same cause must have the same text each time.
        waited_s = min(self._loop.time(), call.deadline_s) - call.began_s
        self.end(call, call.overdue(self.members.group, waited_s, others))

    # Finding the leader

    async def _search_leader(self) -> None:
        """Find the leader for the waiting calls; end calls that expire during the search."""
        try:
            while self._unsent.waiting and self._leader is None:
                self._searches += 1
                if self._searches == 1:
                    self._trouble_since_s = self._loop.time()
                else:
                    elapsed_s = self._loop.time() - self._trouble_since_s
                    await asyncio.sleep(pause_s(elapsed_s, self._random))
                found = await self.find_while(lambda: bool(self._unsent.waiting))
                if isinstance(found, Connection):
                    self.follow(found)
                elif found is not None:
                    self._end_all_waiting(found)
        finally:
            self._search = None

    async def _leave_stalled(self, stalled: Connection) -> None:
        try:
            await leave_stalled(self, stalled)
        finally:
            self._leader_check = None

    async def find_while(
        self, is_wanted: Callable[[], bool], *, silent: Connection | None = None
    ) -> Connection | ClientError | None:
        """Search the leader, and end waiting calls that expire meanwhile; return None once the
        leader is no longer wanted. `silent` is as in LeaderSearch.
        """
        search = LeaderSearch(self.members, self._random, silent=silent)
        find = self._spawn(search.run())
        try:
            while is_wanted():
                await asyncio.wait({find}, timeout=EXPIRY_INTERVAL_S)
                self.expire(self._unsent.waiting, self._end_overdue)
                if find.done():
                    return find.result()
        finally:
            find.cancel()
        return None

    def follow(self, connection: Connection) -> None:
        """Send the waiting calls and all further ones on this connection, if it is open."""
        if not (connection.is_open and self.members.may_use(connection)):
            return
        self.members.use(connection)
        self._leader = connection
        self._statistics.record_leader(connection.member_id)
        for call in self._unsent.waiting.take_all():
            self.forward(call)

    def expire(self, queue: CallQueue, end_overdue: Callable[[Call], None]) -> None:
        """End the calls in a queue that were cancelled or whose deadline has passed."""
        now_s = self._loop.time()
        for call in queue.take_if(lambda call: call.is_over(now_s)):
            if call.answer.done():
                self.end(call, GroupUnreachableError("cancelled"))
            else:
                end_overdue(call)

    def _end_all_waiting(self, error: ClientError) -> None:
        for call in self._unsent.waiting.take_all():
            self.end(call, error)
