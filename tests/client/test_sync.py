"""The blocking client."""

import asyncio
import errno
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Event, Thread
from typing import TypeVar

import pytest
import uvloop

from dledger_client import sync
from dledger_client.append.outcomes import Acknowledged, Appended, Outcome, Unknown
from dledger_client.client import DLedgerClient
from dledger_client.errors import NoEntryError, OutcomeUnknownError, RefusedError
from dledger_client.read.tail import LogBounds
from dledger_client.session import BATCHES_MAX
from dledger_client.sync import BlockingClient
from dledger_fake_server.behavior import Fault
from dledger_fake_server.group import Group
from dledger_formats.protocol.codes import DLedgerResponseCode
from tools.groups.waiting import wait_for

T = TypeVar("T")


def test_the_blocking_client_appends_and_reads(group_in_thread: Group) -> None:
    with BlockingClient(group_in_thread.servers, "g0") as client:
        assert client.append(b"hello") == Appended(index=0, term=1, pos=0)
        assert client.get(0).body == b"hello"
        assert client.metadata().leader_id == "n0"


def test_errors_reach_the_caller(group_in_thread: Group) -> None:
    with BlockingClient(group_in_thread.servers, "g0") as client, pytest.raises(NoEntryError):
        client.get(7)


def test_threads_can_share_a_client(group_in_thread: Group) -> None:
    with (
        BlockingClient(group_in_thread.servers, "g0") as client,
        ThreadPoolExecutor(4) as threads,
    ):
        appended = list(threads.map(client.append, [b"%d" % number for number in range(100)]))

    assert [group_in_thread.log[a.index] for a in appended] == [b"%d" % n for n in range(100)]


def test_an_error_in_the_block_stops_the_thread(group_in_thread: Group) -> None:
    client = BlockingClient(group_in_thread.servers, "other")
    with pytest.raises(RefusedError), client:
        client.append(b"x")

    assert not client.is_running


def test_append_batch_returns_an_outcome_for_each_body(group_in_thread: Group) -> None:
    with BlockingClient(group_in_thread.servers, "g0") as client:
        outcomes = client.append_batch([b"a", b"b"])

    assert outcomes == [
        Acknowledged(number=number, index=number, term=1, attempts=1) for number in (0, 1)
    ]


@pytest.mark.parametrize("in_flight", [1, 3, 64, 100_000])
def test_append_all_yields_outcomes_in_the_order_of_the_bodies(
    group_in_thread: Group, in_flight: int
) -> None:
    bodies = [b"%d" % number for number in range(300)]
    with BlockingClient(group_in_thread.servers, "g0") as client:
        outcomes = list(client.append_all(iter(bodies), in_flight=in_flight))

    assert [outcome.number for outcome in outcomes] == list(range(300))
    assert [group_in_thread.log[o.index] for o in outcomes if isinstance(o, Acknowledged)] == bodies


def test_append_all_takes_no_more_bodies_than_in_flight_allows(group_in_thread: Group) -> None:
    group_in_thread["n0"].script.append(Fault.NO_ANSWER)
    taken = []

    def bodies() -> Iterator[bytes]:
        while True:
            taken.append(b"")
            yield b"x"

    with BlockingClient(group_in_thread.servers, "g0") as client:
        outcomes = client.append_all(bodies(), in_flight=40, deadline_s=0.2)

        assert isinstance(next(outcomes), Unknown)
        assert len(taken) <= 40
        outcomes.close()  # type: ignore[attr-defined]  # a generator


def test_append_all_sends_a_batch_when_its_linger_time_is_over(group_in_thread: Group) -> None:
    log = group_in_thread.log

    def bodies() -> Iterator[bytes]:
        for number in range(4):
            wait_for(lambda count=number: len(log) == count, "the earlier bodies are appended")
            yield b"%d" % number

    with BlockingClient(group_in_thread.servers, "g0", linger_s=0.0) as client:
        assert len(list(client.append_all(bodies()))) == 4


def test_append_all_takes_no_more_bytes_than_in_flight_allows(
    group_in_thread: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "IN_FLIGHT_BYTES", 800)
    monkeypatch.setattr(sync, "BATCH_BYTES", 100)
    group_in_thread["n0"].script.extend([Fault.NO_ANSWER] * 2)
    taken = []

    def bodies() -> Iterator[bytes]:
        while True:
            taken.append(b"")
            yield bytes(50)

    with BlockingClient(group_in_thread.servers, "g0") as client:
        outcomes = client.append_all(bodies(), in_flight=100_000, deadline_s=0.2)

        assert isinstance(next(outcomes), Unknown)
        assert len(taken) <= 16
        outcomes.close()  # type: ignore[attr-defined]  # a generator


def test_an_interrupt_cancels_the_batch_whose_outcomes_are_awaited(
    group_in_thread: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Iterator[Unknown]:
        raise KeyboardInterrupt

    monkeypatch.setattr(sync, "_renumber_outcomes", interrupted)
    script = group_in_thread["n0"].script
    script.extend([DLedgerResponseCode.LEADER_PENDING_FULL] * 10_000)
    with BlockingClient(group_in_thread.servers, "g0") as client:
        with pytest.raises(KeyboardInterrupt):
            list(client.append_all([b"interrupted"]))
        with pytest.raises(RefusedError):  # on the same connection, after the request before
            client.append(b"refused", deadline_s=0.1)
        script.clear()
        for _ in range(20):
            client.append(b"later")

    assert b"interrupted" not in group_in_thread.log


def ending_with_an_error(_: bytes) -> bytes:
    raise OSError(errno.EIO, "the source broke")


def ending_with_a_wrong_body(body: bytes) -> bytes:
    return body.decode()  # type: ignore[return-value]


def outcomes_and_error(outcomes: Iterator[Outcome]) -> tuple[list[Outcome], str]:
    """Take outcomes until an error ends them."""
    taken: list[Outcome] = []
    try:
        taken.extend(outcomes)
    except (OSError, TypeError) as error:
        return taken, repr(error)
    return taken, "no error"


async def outcomes_and_error_of_the_asyncio_client(
    servers: str, bodies: Iterator[bytes]
) -> tuple[list[Outcome], str]:
    async with DLedgerClient(servers, "g0") as client:
        outcomes = client.append_all(bodies)
        taken = []
        try:
            while True:
                taken.append(await anext(outcomes))
        except (OSError, TypeError) as error:
            return taken, repr(error)


@pytest.mark.parametrize("end", [ending_with_an_error, ending_with_a_wrong_body])
def test_both_clients_yield_all_outcomes_before_they_raise_an_error_of_the_bodies(
    group_in_thread: Group, end: Callable[[bytes], bytes]
) -> None:
    good = [b"%d" % number for number in range(300)]

    def bodies() -> Iterator[bytes]:
        yield from good
        yield end(b"300")
        yield b"301"

    with BlockingClient(group_in_thread.servers, "g0") as client:
        outcomes, error = outcomes_and_error(client.append_all(bodies()))
    blocking_log, group_in_thread.log = group_in_thread.log, []
    other = asyncio.run(outcomes_and_error_of_the_asyncio_client(group_in_thread.servers, bodies()))

    assert blocking_log == group_in_thread.log == good
    assert (outcomes, error) == other
    assert [outcome.number for outcome in outcomes] == list(range(300))


@pytest.mark.parametrize("wrong_at", [0, 1, 2])
def test_append_all_raises_an_error_for_a_body_that_is_none(
    group_in_thread: Group, wrong_at: int
) -> None:
    bodies: list[bytes] = [b"a", b"b", b"c"]
    bodies[wrong_at] = None  # type: ignore[call-overload]
    client = BlockingClient(group_in_thread.servers, "g0", linger_s=60)
    with client, pytest.raises(TypeError, match="NoneType"):
        list(client.append_all(bodies))


def test_a_range_and_a_tail_are_read_in_order(group_in_thread: Group) -> None:
    group_in_thread.log = [b"%d" % number for number in range(1000)]
    with BlockingClient(group_in_thread.servers, "g0") as client:
        assert [entry.body for entry in client.get_range(0)] == group_in_thread.log
        entries = client.tail(990)
        assert [next(entries).index for _ in range(10)] == list(range(990, 1000))
        client.append(b"new")
        assert next(entries).body == b"new"


def test_an_error_comes_after_the_entries_before_it(group_in_thread: Group) -> None:
    group_in_thread.log = [b"x"] * 5
    with BlockingClient(group_in_thread.servers, "g0") as client:
        entries = client.get_range(0, 7)
        assert [next(entries).index for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(NoEntryError):
            next(entries)


def test_an_unfinished_tail_does_not_block_closing_the_client(
    group_in_thread: Group, caplog: pytest.LogCaptureFixture
) -> None:
    client = BlockingClient(group_in_thread.servers, "g0")
    with client:
        group_in_thread.log = [b"x"]
        entries = client.tail(0)
        next(entries)
    del entries
    gc.collect()

    assert not client.is_running
    assert not caplog.records, "asyncio logs a generator that was not closed"


def result_of(function: Callable[[], T]) -> T:
    """Run a function in a thread of its own, so that a test of what may hang ends."""
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(function())
        except BaseException as error:
            found.set_exception(error)

    Thread(target=run, daemon=True).start()
    return found.result(timeout=30)


def test_an_unfinished_tail_may_be_freed_in_the_thread_of_the_client(
    group_in_thread: Group,
) -> None:
    """The collector of reference cycles runs in whatever thread needs memory."""

    class Collecting(list[bytes]):
        def __iter__(self) -> Iterator[bytes]:
            gc.collect()
            return super().__iter__()

    def use_client() -> int:
        with BlockingClient(group_in_thread.servers, "g0") as client:
            client.append(b"x")
            entries = client.tail(0)
            next(entries)
            cycle: list[object] = [entries]
            cycle.append(cycle)
            del entries, cycle
            client.append_batch(Collecting([b"y"]))
            return client.append(b"z").index

    assert result_of(use_client) == 2


def test_a_client_whose_thread_cannot_start_raises_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> asyncio.AbstractEventLoop:
        raise OSError(errno.EMFILE, "Too many open files")

    client = BlockingClient("127.0.0.1:1", "g0")
    with monkeypatch.context() as patched:
        patched.setattr("dledger_client.sync.uvloop.new_event_loop", fail)
        with pytest.raises(OSError, match="Too many open files"):
            result_of(client.__enter__)

    assert not client.is_running


def test_the_blocking_client_has_bounds_and_transfer(group_in_thread: Group) -> None:
    group_in_thread.log = [b"x"] * 5
    with BlockingClient(group_in_thread.servers, "g0") as client:
        assert client.bounds() == LogBounds(begin_index=0, end_index=4)
        assert client.transfer("n1").leader_id == "n1"


@pytest.mark.parametrize("is_entered", [False, True])
def test_a_client_used_outside_its_block_raises_an_error(
    group_in_thread: Group, is_entered: bool
) -> None:
    client = BlockingClient(group_in_thread.servers, "g0")
    if is_entered:
        with client:
            pass
    with pytest.raises(RuntimeError, match="outside its `with` block"):
        client.append(b"x")


def errors_of_calls_while_a_client_is_closed(
    client: BlockingClient, call: Callable[[], object], count: int
) -> list[str]:
    """Close a client while threads call it again and again; return the error of each."""

    def work() -> str:
        try:
            while True:
                call()
        except BaseException as error:
            return type(error).__name__

    with ThreadPoolExecutor(count) as threads:
        with client:
            client.metadata()
            errors = [threads.submit(work) for _ in range(count)]
            client.metadata()
        return [error.result(timeout=30) for error in errors]


class SlowToClose(uvloop.Loop):
    """A loop that is closed well after it has run for the last time."""

    has_run = Event()
    may_close = Event()

    def close(self) -> None:
        self.has_run.set()
        assert self.may_close.wait(timeout=30)
        super().close()


def test_a_call_that_begins_after_the_last_turn_of_the_loop_does_not_hang(
    group_in_thread: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger_client.sync.uvloop.new_event_loop", SlowToClose)
    client = BlockingClient(group_in_thread.servers, "g0")
    client.__enter__()
    closing = Thread(target=client.__exit__, args=(None, None, None), daemon=True)
    closing.start()
    assert SlowToClose.has_run.wait(timeout=30)

    late = ThreadPoolExecutor(1).submit(client.append, b"late")
    wait_for(lambda: len(client._calls) == 1, "the call has begun")
    SlowToClose.may_close.set()
    with pytest.raises(OutcomeUnknownError, match="the client was closed"):
        late.result(timeout=30)
    closing.join(timeout=30)
    assert group_in_thread.log == []


def test_calls_of_a_client_that_is_closed_end_with_errors_of_the_client(
    group_in_thread: Group,
) -> None:
    allowed = {"GroupUnreachableError", "OutcomeUnknownError", "RuntimeError"}
    client = BlockingClient(group_in_thread.servers, "g0")
    for call in (client.bounds, partial(client.append, b"x")):
        assert set(errors_of_calls_while_a_client_is_closed(client, call, 8)) <= allowed


def test_append_all_of_a_client_that_is_closed_yields_the_outcomes_of_what_was_sent(
    group_in_thread: Group,
) -> None:
    client = BlockingClient(group_in_thread.servers, "g0")
    sent = 100

    def bodies() -> Iterator[bytes]:
        yield from (b"%d" % number for number in range(sent))
        wait_for(lambda: len(group_in_thread.log) == sent, "the first batch is appended")
        client.__exit__(None, None, None)
        yield from (b"x" for _ in range(sent))

    taken: list[Outcome] = []
    client.__enter__()
    with pytest.raises(RuntimeError, match="outside its `with` block"):
        taken.extend(client.append_all(bodies(), in_flight=sent * BATCHES_MAX))

    assert [one.number for one in taken] == list(range(sent))
