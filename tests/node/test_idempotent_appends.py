"""REGISTER_PRODUCER and APPEND_IDEMPOTENT over the wire: duplicates and malformed requests."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_formats.log.channels import WINDOW
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode, SystemCode
from dledger_formats.protocol.producers import APPEND_IDEMPOTENT, REGISTER_PRODUCER
from dledger_group.producer_client import ProducerClient
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

Code = DLedgerResponseCode


@pytest.fixture(scope="module")
def lone_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    """One member, which leads all the time."""
    with NodeGroup(tmp_path_factory.mktemp("lone"), members=1) as running:
        yield running


@pytest.fixture
def calm_group(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members with timeouts so long that a busy machine deposes no leader."""
    with NodeGroup(tmp_path, heartbeat_interval_ms=250, election_timeout_ms=4000) as running:
        yield running


@pytest.fixture
def client(lone_group: NodeGroup) -> Iterator[ProducerClient]:
    with ProducerClient(lone_group, lone_group.master()) as client:
        yield client


def end_index(group: NodeGroup) -> int:
    return group.status(group.master()).ledger_end_index


def test_a_registration_is_an_entry_and_its_index_the_producer(
    lone_group: NodeGroup, client: ProducerClient
) -> None:
    before = end_index(lone_group)

    producers = [client.register(), client.register()]

    assert producers == [before + 1, before + 2]
    entry = client.ask(RequestCode.GET, beginIndex=producers[0])["entries"]
    assert isinstance(entry, list)
    assert (entry[0]["magic"], entry[0]["body"]) == (2, "")
    assert entry[0]["channel"] > 0


def test_a_copy_is_answered_with_the_first_ones_place_and_not_appended(
    lone_group: NodeGroup, client: ProducerClient
) -> None:
    producer = client.register()
    first = client.append(producer, 1)
    client.append(producer, 2)
    before = end_index(lone_group)

    duplicates = [client.append(producer, 1) for _ in range(3)]

    assert first["code"] == Code.SUCCESS
    assert duplicates == [first] * 3
    assert end_index(lone_group) == before


def test_duplicates_in_one_write_become_one_entry(
    lone_group: NodeGroup, client: ProducerClient
) -> None:
    producer = client.register()
    before = end_index(lone_group)
    sent = [
        client.send(APPEND_IDEMPOTENT, body="AAAA", producer=producer, sequence=sequence)
        for sequence in (1, 1, 2, 1, 2, 3)
    ]

    answers = [json.loads(client.answer(opaque).body) for opaque in sent]

    assert [answer["index"] - before for answer in answers] == [1, 1, 2, 1, 2, 3]
    assert end_index(lone_group) == before + 3


def test_appends_that_arrive_out_of_order_are_appended_once(
    lone_group: NodeGroup, client: ProducerClient
) -> None:
    producer = client.register()
    before = end_index(lone_group)

    indexes = [client.append(producer, sequence)["index"] for sequence in (3, 1, 2, 3, 2, 1)]

    assert indexes == [before + at for at in (1, 2, 3, 1, 3, 2)]


def test_a_sequence_outside_the_window_is_refused(
    lone_group: NodeGroup, client: ProducerClient
) -> None:
    producer = client.register()
    before = end_index(lone_group)

    far = client.append(producer, WINDOW + 1)
    assert far["code"] == Code.SEQUENCE_TOO_NEW
    assert client.append(producer, WINDOW)["code"] == Code.SUCCESS
    assert client.append(producer, WINDOW + 1)["code"] == Code.SUCCESS
    late = client.append(producer, 1)

    assert late["code"] == Code.SEQUENCE_TOO_OLD
    assert end_index(lone_group) == before + 2


@pytest.mark.parametrize("producer", [0, 1 << 62, 999_999_999])
def test_a_producer_that_never_registered_is_unknown(client: ProducerClient, producer: int) -> None:
    assert client.append(producer, 1)["code"] == Code.UNKNOWN_PRODUCER


@pytest.mark.parametrize("key", ["producer", "sequence"])
@pytest.mark.parametrize(
    "value", [-1, 1 << 63, 1 << 200, 1.5, True, None, "1", [1], {"a": 1}, -(1 << 63)], ids=repr
)
def test_a_malformed_number_is_refused_and_nothing_is_appended(
    lone_group: NodeGroup, client: ProducerClient, key: str, value: object
) -> None:
    producer = client.register()
    client.append(producer, 1)  # and the next one has the same form
    before = end_index(lone_group)
    fields = {"body": "AAAA", "producer": producer, "sequence": 2} | {key: value}

    answer = client.answer(client.send(APPEND_IDEMPOTENT, **fields))

    assert answer.code == SystemCode.SYSTEM_ERROR
    assert end_index(lone_group) == before
    assert client.append(producer, 2)["index"] == before + 1


def test_sequence_0_is_refused(client: ProducerClient) -> None:
    producer = client.register()

    answer = client.answer(
        client.send(APPEND_IDEMPOTENT, body="AAAA", producer=producer, sequence=0)
    )

    assert answer.code == SystemCode.SYSTEM_ERROR


def test_the_layout_of_requests_may_change_at_any_time(
    lone_group: NodeGroup, client: ProducerClient
) -> None:
    """A request is read the same whether its envelope is recognized or parsed again."""
    producer = client.register()
    before = end_index(lone_group)

    indexes = [
        client.ask(APPEND_IDEMPOTENT, body="AAAA", producer=producer, sequence=1)["index"],
        client.ask(APPEND_IDEMPOTENT, producer=producer, sequence=2, body="AQ==")["index"],
        client.ask(APPEND_IDEMPOTENT, body="Ag==", producer=producer, sequence=3)["index"],
        client.ask(APPEND_IDEMPOTENT, body="", x={"y": [1]}, producer=producer, sequence=4)[
            "index"
        ],
        client.ask(APPEND_IDEMPOTENT, body="Aw==", producer=producer, sequence=5)["index"],
    ]

    assert indexes == list(range(before + 1, before + 6))
    bodies = []
    for index in indexes:
        entries = client.ask(RequestCode.GET, beginIndex=index)["entries"]
        assert isinstance(entries, list)
        bodies.append(entries[0]["body"])
    assert bodies == ["AAAA", "AQ==", "Ag==", "", "Aw=="]


@pytest.mark.parametrize("code", [REGISTER_PRODUCER, APPEND_IDEMPOTENT])
@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [("group", "other", Code.UNKNOWN_GROUP), ("remoteId", "n9", Code.UNKNOWN_MEMBER)],
)
def test_a_request_for_another_member_or_group_is_refused(
    client: ProducerClient, code: int, key: str, value: str, expected: Code
) -> None:
    fields = {"body": "AAAA", "producer": 1, "sequence": 1, key: value}

    assert client.ask(code, **fields)["code"] == expected


def test_a_follower_refuses_registrations_and_idempotent_appends(calm_group: NodeGroup) -> None:
    master = calm_group.master()
    follower = next(member for member in calm_group.running() if member != master)
    with ProducerClient(calm_group, follower) as client:
        assert client.ask(REGISTER_PRODUCER)["code"] == Code.NOT_LEADER
        assert client.append(1, 1)["code"] == Code.NOT_LEADER


def test_a_body_that_no_entry_can_hold_is_refused_and_its_sequence_is_free(
    lone_group: NodeGroup, client: ProducerClient
) -> None:
    producer = client.register()
    before = end_index(lone_group)

    too_long = client.append(producer, 1, "A" * (2 << 20))

    assert too_long["code"] == Code.UNEXPECTED_ARGUMENT
    assert client.append(producer, 1)["index"] == before + 1


def test_metrics_count_duplicates_and_producers(
    lone_group: NodeGroup, client: ProducerClient
) -> None:
    def metric(name: str) -> float:
        lines = lone_group.get(client.member, "/metrics")[1].decode().splitlines()
        return float(next(line for line in lines if line.startswith(name + " ")).split()[1])

    before = metric("dledger_node_producers"), metric("dledger_node_appends_repeated_total")
    producer = client.register()
    client.append(producer, 1)
    client.append(producer, 1)

    after = metric("dledger_node_producers"), metric("dledger_node_appends_repeated_total")
    assert after == (before[0] + 1, before[1] + 1)


def place_of(answer: dict[str, object]) -> list[object]:
    return [answer[key] for key in ("code", "index", "term", "pos")]


def test_a_new_leader_knows_the_appends_of_the_old_one(calm_group: NodeGroup) -> None:
    with ProducerClient(calm_group, calm_group.master()) as client:
        old = client.member
        producer = client.register()
        places = [place_of(client.append(producer, sequence)) for sequence in (1, 2, 4)]
    calm_group.kill(old)

    with ProducerClient(calm_group, calm_group.master()) as client:
        duplicates = [place_of(client.append(producer, sequence)) for sequence in (1, 2, 4)]
        new = place_of(client.append(producer, 3))

    assert client.member != old
    assert duplicates == places
    assert new[0] == Code.SUCCESS
    assert new[1] not in {place[1] for place in places}


@pytest.mark.parametrize("keeps_files", [True, False])
def test_duplicates_are_still_known_after_all_members_restart(
    calm_group: NodeGroup, keeps_files: bool
) -> None:
    group = calm_group
    with ProducerClient(group, group.master()) as client:
        producer = client.register()
        place = place_of(client.append(producer, 1))
    wait_for(
        lambda: len({group.status(member).committed_index for member in group.running()}) == 1,
        "every member has committed the append",
    )
    for member in group.running():
        assert group.stop(member) == 0
        assert (group.store_folder(member) / "producers").exists()
        if not keeps_files:
            (group.store_folder(member) / "producers").unlink()
    for member in group.peers:
        group.start(member)

    with ProducerClient(group, group.master()) as client:
        copy = place_of(client.append(producer, 1))
        new = place_of(client.append(producer, 2))

    assert copy == place
    assert new[0] == Code.SUCCESS


def test_a_leader_without_a_quorum_acknowledges_no_duplicate_of_an_uncommitted_entry(
    calm_group: NodeGroup,
) -> None:
    with ProducerClient(calm_group, calm_group.master()) as client:
        producer = client.register()
        for member in calm_group.running():
            if member != client.member:
                calm_group.freeze(member)
        sent = [
            client.send(APPEND_IDEMPOTENT, body="AAAA", producer=producer, sequence=1)
            for _ in range(2)
        ]

        codes = [json.loads(client.answer(opaque).body)["code"] for opaque in sent]

    assert codes == [Code.WAIT_QUORUM_ACK_TIMEOUT] * 2


def test_a_leader_that_was_cut_off_calls_no_producer_unknown(calm_group: NodeGroup) -> None:
    """It may be deposed, and its log may lack a registration that the others have committed."""
    with ProducerClient(calm_group, calm_group.master()) as client:
        for member in calm_group.running():
            if member != client.member:
                calm_group.freeze(member)

        answer = client.append(12_345, 1)

    assert answer["code"] in (Code.NOT_LEADER, Code.LEADER_NOT_READY)
