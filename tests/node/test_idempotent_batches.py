"""APPEND_IDEMPOTENT_BATCH over the wire: a batch is appended as a whole or not at all."""

import json
from collections.abc import Iterator

import pytest

from dledger_formats.log.channels import WINDOW
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_group.producer_client import ProducerClient
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group

Code = DLedgerResponseCode


@pytest.fixture(scope="module")
def lone_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    """One member, which leads all the time."""
    with NodeGroup(tmp_path_factory.mktemp("lone"), members=1) as running:
        yield running


@pytest.fixture
def client(lone_group: NodeGroup) -> Iterator[ProducerClient]:
    with ProducerClient(lone_group, lone_group.master()) as client:
        yield client


def end_index(group: NodeGroup) -> int:
    return group.status(group.master()).ledger_end_index


def test_batches_in_one_write_are_appended_in_order(
    lone_group: NodeGroup, client: ProducerClient
) -> None:
    producer = client.register()
    before = end_index(lone_group)

    answers = client.append_batches(producer, (1, 3), (4, 1), (5, 2))

    assert [answer["index"] for answer in answers] == [before + 1, before + 4, before + 5]
    assert end_index(lone_group) == before + 6
    assert [client.append(producer, at)["index"] for at in range(1, 7)] == [
        before + at for at in range(1, 7)
    ], "each body has its own sequence"


@pytest.mark.parametrize(
    "second", [(1, 3), (3, 3), (2, 1), (1, 9)], ids=["same", "overlaps", "within", "contains"]
)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_batch_that_may_be_in_the_log_is_refused_as_a_whole(
    lone_group: NodeGroup, client: ProducerClient, second: tuple[int, int], at_once: bool
) -> None:
    producer = client.register()
    before = end_index(lone_group)

    if at_once:
        first_answer, answer = client.append_batches(producer, (1, 3), second)
    else:
        (first_answer,) = client.append_batches(producer, (1, 3))
        (answer,) = client.append_batches(producer, second)

    assert first_answer["index"] == before + 1
    assert answer["code"] == Code.SEQUENCES_NOT_NEW
    assert end_index(lone_group) == before + 3


def test_a_batch_behind_a_later_append_is_refused_and_its_bodies_may_follow(
    lone_group: NodeGroup, client: ProducerClient
) -> None:
    producer = client.register()
    before = end_index(lone_group)

    client.append(producer, 7)
    (answer,) = client.append_batches(producer, (1, 3))

    assert answer["code"] == Code.SEQUENCES_NOT_NEW
    assert client.append(producer, 1)["index"] == before + 2


def test_a_batch_outside_the_window_or_of_an_unknown_producer_is_refused(
    lone_group: NodeGroup, client: ProducerClient
) -> None:
    producer = client.register()
    before = end_index(lone_group)

    (far,) = client.append_batches(producer, (WINDOW - 1, 3))
    (unknown,) = client.append_batches(999_999_999, (1, 2))

    assert (far["code"], unknown["code"]) == (Code.SEQUENCE_TOO_NEW, Code.UNKNOWN_PRODUCER)
    assert end_index(lone_group) == before


def test_batches_of_two_producers_do_not_touch_each_other(
    lone_group: NodeGroup, client: ProducerClient
) -> None:
    first, second = client.register(), client.register()
    opaques = [*client.send_batches(first, (1, 5)), *client.send_batches(second, (1, 5))]

    answers = [json.loads(client.answer(opaque).body) for opaque in opaques]

    assert [answer["code"] for answer in answers] == [Code.SUCCESS] * 2
    assert {client.append(first, 5)["index"], client.append(second, 5)["index"]} == {
        answer["index"] + 4 for answer in answers
    }
