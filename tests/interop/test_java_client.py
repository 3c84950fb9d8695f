"""Java DLedger's own client, in every version, with a group of Python members."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.sync import BlockingClient
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_java.client import JavaClient
from tools.groups.node_group import NodeGroup

pytestmark = [
    pytest.mark.interop,
    pytest.mark.sampled(2, by="java", among="test_java_client"),
]

BODIES = [b"", b"hello", bytes(range(256)), bytes(100_000), *(b"%d" % n for n in range(20))]


@pytest.fixture(scope="module")
def client(
    java: str, python_group: NodeGroup, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClient]:
    """A Java client of the shared group."""
    with JavaClient(tmp_path_factory.mktemp("java"), java, python_group.peers) as started:
        yield started


def read_back(group: NodeGroup, indexes: list[int]) -> list[bytes]:
    with BlockingClient(group.servers, "g") as client:
        return [client.get(index).body for index in indexes]


def test_appends_of_the_java_client_are_read_back_at_their_indexes(
    client: JavaClient, python_group: NodeGroup
) -> None:
    python_group.master()

    answers = [client.append(body) for body in BODIES]

    assert [client.get(answer.index).body for answer in answers] == BODIES
    assert read_back(python_group, [answer.index for answer in answers]) == BODIES


def test_the_java_client_reads_an_entrys_position(
    client: JavaClient, python_group: NodeGroup
) -> None:
    appended = client.append(b"where?")

    assert client.get(appended.index) == type(appended)(
        appended.code, appended.index, appended.pos, appended.term, b"where?"
    )
    with BlockingClient(python_group.servers, "g") as python:
        assert python.get(appended.index).pos == appended.pos


def test_a_java_client_that_never_appended_reads_bytes(
    java: str, python_group: NodeGroup, tmp_path: Path
) -> None:
    """Only an append reveals the form in which a client expects bytes."""
    body = bytes(range(256))
    with BlockingClient(python_group.servers, "g") as python:
        index = python.append(body).index

    with JavaClient(tmp_path, java, python_group.peers) as reader:
        assert reader.get(index).body == body


def test_the_java_client_gets_an_error_for_a_missing_entry(client: JavaClient) -> None:
    assert client.get(1_000_000).code is DLedgerResponseCode.INDEX_OUT_OF_RANGE


def test_a_java_client_that_knows_one_follower_finds_the_leader(
    java: str, python_group: NodeGroup, tmp_path: Path
) -> None:
    master = python_group.master()
    follower = next(member for member in python_group.peers if member != master)

    with JavaClient(tmp_path, java, {follower: python_group.peers[follower]}) as client:
        index = client.append(b"found").index

    assert read_back(python_group, [index]) == [b"found"]


def test_the_java_client_follows_a_new_leader(java: str, tmp_path: Path) -> None:
    with NodeGroup(tmp_path) as group, JavaClient(tmp_path, java, group.peers) as client:
        leader = group.master()
        stored = {client.append(body).index: body for body in (b"one", b"two")}

        group.kill(leader)
        stored |= {client.append(body).index: body for body in (b"three", b"four")}

        assert len(stored) == 4
        assert read_back(group, list(stored)) == list(stored.values())


def test_the_java_client_transfers_the_leadership(
    java: str, python_group: NodeGroup, tmp_path: Path
) -> None:
    master = python_group.master()
    successor = next(member for member in python_group.peers if member != master)

    with JavaClient(tmp_path, java, python_group.peers) as client:
        answer = client.transfer(master, successor, python_group.status(master).term)

    assert answer.code is DLedgerResponseCode.SUCCESS
    assert python_group.master() == successor
