"""The client that blocks."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dledger_client.errors import NoEntryError, RefusedError
from dledger_client.outcomes import Appended
from dledger_client.sync import BlockingClient
from dledger_fake_server.group import Group


def test_a_script_appends_and_reads(group_in_thread: Group) -> None:
    with BlockingClient(group_in_thread.servers, "g0") as client:
        assert client.append(b"hello") == Appended(index=0, term=1, pos=0)
        assert client.get(0).body == b"hello"
        assert client.metadata().leader_id == "n0"


def test_errors_reach_the_script(group_in_thread: Group) -> None:
    with BlockingClient(group_in_thread.servers, "g0") as client, pytest.raises(NoEntryError):
        client.get(7)


def test_threads_may_share_a_client(group_in_thread: Group) -> None:
    with (
        BlockingClient(group_in_thread.servers, "g0") as client,
        ThreadPoolExecutor(4) as threads,
    ):
        appended = list(threads.map(client.append, [b"%d" % number for number in range(100)]))

    assert [group_in_thread.log[a.index] for a in appended] == [b"%d" % n for n in range(100)]


def test_a_script_that_fails_leaves_no_thread_behind(group_in_thread: Group) -> None:
    client = BlockingClient(group_in_thread.servers, "other")
    with pytest.raises(RefusedError), client:
        client.append(b"x")

    assert not client.is_running
