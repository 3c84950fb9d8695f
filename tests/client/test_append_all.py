"""Many appends in flight: order, limits, and changes of the leader."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import pytest

from dledger_client.append.outcomes import Acknowledged, Outcome, Refused, Unknown
from dledger_client.append.stream import append_stream
from dledger_client.calls.call import APPEND, Call
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import ConnectionLostError, GroupUnreachableError
from dledger_client.tasks import TaskScope
from dledger_fake_server.behavior import Fault
from dledger_fake_server.group import Group
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.requests import AppendEntryRequest, AppendEntryResponse

T = TypeVar("T")
Code = DLedgerResponseCode
BODIES = [b"body %d" % number for number in range(500)]


async def outcomes_of(client: DLedgerClient, bodies: list[bytes], **options: int) -> list[Outcome]:
    return [outcome async for outcome in client.append_all(bodies, **options)]


async def test_outcomes_come_in_the_order_of_the_bodies(group: Group) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        outcomes = await outcomes_of(client, BODIES)

    assert outcomes == [
        Acknowledged(number=number, index=number, term=1, attempts=1)
        for number in range(len(BODIES))
    ]
    assert group.log == BODIES


async def test_append_all_accepts_an_asynchronous_iterator(group: Group) -> None:
    async def bodies() -> AsyncIterator[bytes]:
        for body in BODIES:
            await asyncio.sleep(0)
            yield body

    async with DLedgerClient(group.servers, "g0") as client:
        numbers = [outcome.number async for outcome in client.append_all(bodies())]

    assert (numbers, group.log) == (list(range(len(BODIES))), BODIES)


async def test_an_outcome_does_not_wait_for_the_next_body(group: Group) -> None:
    first_has_outcome = asyncio.Event()

    async def bodies() -> AsyncIterator[bytes]:
        yield b"first"
        await first_has_outcome.wait()
        yield b"second"

    async with DLedgerClient(group.servers, "g0") as client:
        outcomes = client.append_all(bodies())
        assert (await anext(outcomes)).number == 0
        first_has_outcome.set()
        assert (await anext(outcomes)).number == 1
        await outcomes.aclose()


async def test_appends_are_sequential_with_one_in_flight(group: Group) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        await outcomes_of(client, BODIES[:20], in_flight=1)

    assert group["n0"].largest_read == 1


async def test_the_outcome_of_a_resent_append_keeps_its_position(
    group: Group,
) -> None:
    group["n0"].script.extend([Code.SUCCESS, Code.LEADER_PENDING_FULL])
    async with DLedgerClient(group.servers, "g0") as client:
        outcomes = await outcomes_of(client, BODIES[:5])

    assert [outcome.number for outcome in outcomes] == [0, 1, 2, 3, 4]
    assert isinstance(outcomes[1], Acknowledged)
    assert outcomes[1].attempts == 2
    assert sorted(group.log) == BODIES[:5]


async def test_each_body_has_its_own_outcome(group: Group) -> None:
    group["n0"].script.extend([Code.SUCCESS, Code.WAIT_QUORUM_ACK_TIMEOUT, Code.UNSUPPORTED])
    async with DLedgerClient(group.servers, "g0") as client:
        outcomes = await outcomes_of(client, BODIES[:4])

    assert [type(outcome) for outcome in outcomes] == [Acknowledged, Unknown, Refused, Acknowledged]


async def test_append_all_takes_no_more_bodies_than_in_flight_allows(group: Group) -> None:
    taken = []

    def bodies() -> Iterator[bytes]:
        for body in BODIES:
            taken.append(body)
            yield body

    async with DLedgerClient(group.servers, "g0") as client:
        outcomes = client.append_all(bodies(), in_flight=7)
        for number in range(50):
            await anext(outcomes)
            assert len(taken) <= number + 1 + 7
        await outcomes.aclose()


class DiscardingHandler:
    """A handler of calls that are never sent; ignores cancellations."""

    def answered(self, call: Call, command: RemotingCommand) -> None:
        raise AssertionError("nothing was sent")

    def lost(self, call: Call, error: ConnectionLostError) -> None:
        raise AssertionError("nothing was sent")

    def cancelled(self, call: Call) -> None:
        pass


class RecordingStarter:
    """Records the calls that it starts and sends none."""

    def __init__(self) -> None:
        self.started: list[Call] = []
        self.takes_batches = False

    def check_loop(self) -> None:
        """Do nothing: the test has one loop."""

    def start_append(self, body: bytes, deadline_s: float | None) -> Call:
        call = Call(
            kind=APPEND,
            request=AppendEntryRequest(body=body),
            is_repeatable=False,
            deadline_s=deadline_s or 0.0,
            handler=DiscardingHandler(),
            answer=asyncio.get_running_loop().create_future(),
        )
        self.started.append(call)
        return call

    def start_batch(self, bodies: Sequence[bytes], deadline_s: float | None) -> Call:
        raise AssertionError("the starter takes no batches")


async def test_append_all_takes_no_more_bytes_than_in_flight_allows() -> None:
    starter = RecordingStarter()
    started = starter.started
    async with TaskScope() as tasks:
        outcomes = append_stream(
            starter, [bytes(40)] * 9, in_flight=9, in_flight_bytes=100, deadline_s=None,
            spawn=tasks.spawn,
        )  # fmt: skip
        first = asyncio.ensure_future(anext(outcomes))
        while len(started) < 3:  # noqa: ASYNC110 - the feeder sets no event when it stops
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(started) == 3
        for call in started:
            call.answer.set_result(AppendEntryResponse(index=0))
        assert (await first).number == 0
        await outcomes.aclose()


async def test_an_error_of_the_bodies_is_raised_after_the_earlier_outcomes(group: Group) -> None:
    def bodies() -> Iterator[bytes]:
        yield from BODIES[:3]
        raise LookupError("no more")

    async with DLedgerClient(group.servers, "g0") as client:
        outcomes = client.append_all(bodies())
        numbers = [(await anext(outcomes)).number for _ in range(3)]
        with pytest.raises(LookupError, match="no more"):
            await anext(outcomes)

    assert numbers == [0, 1, 2]


async def test_bodies_that_end_with_a_cancellation_of_their_own_are_not_told_as_complete(
    group: Group,
) -> None:
    async def bodies() -> AsyncIterator[bytes]:
        yield b"1"
        lost = asyncio.create_task(asyncio.sleep(600))
        lost.cancel()
        await lost
        yield b"2"

    async with DLedgerClient(group.servers, "g0") as client:
        outcomes = client.append_all(bodies())
        assert (await anext(outcomes)).number == 0
        with pytest.raises(asyncio.CancelledError):
            await anext(outcomes)


async def test_a_stream_whose_client_is_closed_is_not_told_as_complete(group: Group) -> None:
    async def bodies() -> AsyncIterator[bytes]:
        yield b"1"
        await asyncio.Event().wait()

    async with DLedgerClient(group.servers, "g0") as client:
        outcomes = client.append_all(bodies())
        assert (await anext(outcomes)).number == 0
        waiting = asyncio.ensure_future(anext(outcomes))
        await asyncio.sleep(0)
    with pytest.raises(GroupUnreachableError, match="the client was closed"):
        await waiting


async def test_closing_the_outcomes_early_stops_the_iteration_of_bodies(group: Group) -> None:
    taken = []

    async def bodies() -> AsyncIterator[bytes]:
        while True:
            taken.append(b"")
            await asyncio.sleep(0)
            yield b"x"

    async with DLedgerClient(group.servers, "g0") as client:
        async with contextlib.aclosing(client.append_all(bodies())) as outcomes:
            async for _ in outcomes:
                break
        count = len(taken)
        await client.append(b"several loop turns")

        assert len(taken) - count <= 1


async def test_a_stream_that_is_closed_before_it_takes_a_body_raises() -> None:
    def spawn(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(coroutine)
        task.cancel()
        return task

    starter = RecordingStarter()
    with pytest.raises(GroupUnreachableError, match="before it had taken all bodies"):
        async with asyncio.timeout(10):
            await anext(append_stream(starter, [b"x"], 1, 1, None, spawn))


# Changes of the leader


async def kill_leader(group: Group) -> None:
    """Kill n0 once the log has 50 entries, and elect n1 after the client has asked it."""
    while len(group.log) < 50:  # noqa: ASYNC110 - the log is a plain list
        await asyncio.sleep(0)
    group.elect(None)
    await group["n0"].stop()
    await group["n1"].metadata_requested.wait()
    group.elect("n1")


@pytest.mark.parametrize(
    "last_behavior", [Fault.DISCONNECT, Fault.APPEND_AND_DISCONNECT, Code.NOT_LEADER]
)
async def test_an_append_acknowledged_across_a_failover_is_in_the_log_once(
    group: Group, last_behavior: Fault | DLedgerResponseCode
) -> None:
    group["n0"].script.extend([Code.SUCCESS] * 100 + [last_behavior])
    async with DLedgerClient(group.servers, "g0") as client:
        killing = asyncio.create_task(kill_leader(group))
        outcomes = await outcomes_of(client, BODIES, in_flight=50)
        await killing

    acknowledged = [outcome for outcome in outcomes if isinstance(outcome, Acknowledged)]
    assert [group.log[outcome.index] for outcome in acknowledged] == [
        BODIES[outcome.number] for outcome in acknowledged
    ]
    assert len(set(group.log)) == len(group.log)
    assert not any(isinstance(outcome, Refused) for outcome in outcomes)
    assert len(acknowledged) >= len(BODIES) - 2 * 50


async def test_at_least_once_gets_every_body_acknowledged_across_a_failover(
    group: Group,
) -> None:
    async with DLedgerClient(group.servers, "g0", at_least_once=True) as client:
        killing = asyncio.create_task(kill_leader(group))
        outcomes = await outcomes_of(client, BODIES, in_flight=50)
        await killing

    assert [
        group.log[outcome.index] for outcome in outcomes if isinstance(outcome, Acknowledged)
    ] == BODIES


async def test_appends_not_yet_written_to_a_stuck_leader_go_to_the_next_leader(
    group: Group,
) -> None:
    bodies = [number.to_bytes(2, "big") * 50_000 for number in range(200)]
    timing = Timing(deadline_s=60, request_timeout_s=60, stall_s=0.1)
    async with DLedgerClient(group.servers, "g0", timing=timing) as client:
        await client.append(b"before")
        group["n0"].stop_reading()
        group.elect("n1")
        outcomes = await outcomes_of(client, bodies, in_flight=200)

    sent = [outcome.number for outcome in outcomes if isinstance(outcome, Unknown)]
    assert 0 < len(sent) < len(bodies)
    assert sent == list(range(len(sent)))
    assert group.log[1:] == bodies[len(sent) :]


async def test_statistics_count_acknowledgements_and_leader_changes_and_measure_the_longest_gap(
    group: Group,
) -> None:
    async with DLedgerClient(group.servers, "g0", at_least_once=True) as client:
        killing = asyncio.create_task(kill_leader(group))
        await outcomes_of(client, BODIES, in_flight=50)
        await killing

    statistics = client.statistics
    assert statistics.acknowledged == len(BODIES)
    assert (statistics.leader_id, statistics.leader_changes) == ("n1", 1)
    assert statistics.longest_gap_s > 0
