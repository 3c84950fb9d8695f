"""The blocking client."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dledger_client.append.outcomes import Acknowledged, Appended, Unknown
from dledger_client.errors import NoEntryError, RefusedError
from dledger_client.read.tail import LogBounds
from dledger_client.sync import BlockingClient
from dledger_fake_server.behavior import Fault
from dledger_fake_server.group import Group
from tools.groups.waiting import wait_for


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
