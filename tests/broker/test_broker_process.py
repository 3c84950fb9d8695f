"""Brokers that are stopped, killed, damaged, or started over a log that is no broker's."""

import shutil
import socket
import struct
from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, bodies, number, pull_ext
from dledger_client.sync import BlockingClient
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from tools.groups.broker_group import BrokerGroup
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

MESSAGES = 300
HELD = {"sysFlag": "6", "suspendTimeoutMillis": "20000"}


def fill(group: BrokerGroup, member: str, first: int = 0) -> None:
    """Send messages, whose bodies are their offsets."""
    with BrokerClient(group.broker_addresses[member]) as client:
        opaques = [
            client.begin(RequestCode.SEND_MESSAGE_V2, send_ext_of(n), b"%d" % n)
            for n in range(first, first + MESSAGES)
        ]
        for n, opaque in enumerate(opaques, first):
            answer = client.answer(opaque)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert number(answer, "queueOffset") == n


def send_ext_of(n: int) -> dict[str, str]:
    return {
        "a": "p", "b": "t", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": str(n), "h": "0",
        "i": "", "k": "false",
    }  # fmt: skip


def pull_all(client: BrokerClient, count: int) -> list[bytes]:
    client.wait_until_visible("t", count)
    pulled: list[bytes] = []
    while len(pulled) < count:
        pulled += bodies(client.pull("t", len(pulled)))
    return pulled


def check_everything_is_served(group: BrokerGroup, member: str, count: int) -> None:
    with BrokerClient(group.broker_addresses[member]) as client:
        assert pull_all(client, count) == [b"%d" % n for n in range(count)]


def counted(group: BrokerGroup, member: str, name: str) -> int:
    page = group.get(member, "/metrics")[1].decode()
    [line] = [line for line in page.splitlines() if line.startswith(f"dledger_broker_{name} ")]
    return int(float(line.split()[1]))


@pytest.mark.parametrize("threshold", [10, 1_000_000])
def test_messages_and_offsets_survive_a_kill(tmp_path: Path, threshold: int) -> None:
    with BrokerGroup(tmp_path, 1, snapshot_threshold=threshold) as group:
        fill(group, group.master())
        with BrokerClient(group.broker_addresses["n0"]) as client:
            client.wait_until_visible("t", MESSAGES)
            ext = {"topic": "t", "queueId": "0", "consumerGroup": "g1", "commitOffset": "7"}
            client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)

        group.kill("n0")
        group.start("n0")
        group.wait_until_up("n0")
        fill(group, group.master(), MESSAGES)

        check_everything_is_served(group, "n0", 2 * MESSAGES)
        with BrokerClient(group.broker_addresses["n0"]) as client:
            found = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)
            assert number(found, "offset") == 7


@pytest.mark.parametrize("damage", ["cut", "zeroed", "swapped", "gone", "another checkpoint"])
def test_damaged_queues_are_built_again_and_serve_no_wrong_message(
    tmp_path: Path, damage: str
) -> None:
    with BrokerGroup(tmp_path, 1) as group:
        fill(group, group.master())
        check_everything_is_served(group, "n0", MESSAGES)
        group.stop("n0")
        damage_queues(group.store_folder("n0") / "queues", damage)
        group.start("n0")
        group.wait_until_up("n0")
        group.master()

        check_everything_is_served(group, "n0", MESSAGES)

        is_wrong = damage in ("cut", "zeroed", "swapped")
        assert counted(group, "n0", "queue_rebuilds_total") == is_wrong
        # A tick takes these figures, and the queues may be built before or after one.
        wait_for(
            lambda: (counted(group, "n0", "units_refused_total") > 0) == is_wrong,
            "the units that were refused are counted",
        )
        wait_for(
            lambda: counted(group, "n0", "unbuilt_entries") == 0, "no entry is counted as unbuilt"
        )


def damage_queues(folder: Path, damage: str) -> None:
    """Damage the units of all messages, or what says which log they belong to."""
    units = folder / "consumequeue" / "t" / "0" / f"{0:020d}"
    raw = units.read_bytes()
    match damage:
        case "cut":
            units.write_bytes(raw[:1234])
        case "zeroed":
            units.write_bytes(raw[:2000] + bytes(200) + raw[2200:])
        case "swapped":
            units.write_bytes(raw[20:40] + raw[:20] + raw[40:])
        case "gone":
            shutil.rmtree(folder)
        case "another checkpoint":
            (folder / "checkpoint").write_bytes(bytes(48))


def test_sends_that_wait_for_a_new_leader_keep_their_order(tmp_path: Path) -> None:
    """The first of them arrive before the leader is ready, the last ones after that."""
    offsets: list[int] = []
    with BrokerGroup(tmp_path, 1) as group:
        for _ in range(3):
            with BrokerClient(group.broker_addresses["n0"]) as client:
                opaques = [
                    client.begin(RequestCode.SEND_MESSAGE_V2, send_ext_of(n), b"x")
                    for n in range(MESSAGES)
                ]
                answers = [client.answer(opaque) for opaque in opaques]
            # An election may take longer than sends wait; those are refused.
            stored = [answer for answer in answers if answer.code == ResponseCode.SUCCESS]
            assert {answer.code for answer in answers} <= {
                ResponseCode.SUCCESS,
                ResponseCode.SERVICE_NOT_AVAILABLE,
            }
            offsets += [number(answer, "queueOffset") for answer in stored]
            group.kill("n0")
            group.start("n0")
            group.wait_until_up("n0")

    assert offsets == list(range(len(offsets)))


def test_every_member_serves_pulls_and_sends(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        fill(group, leader)
        for member in group.peers:
            check_everything_is_served(group, member, MESSAGES)
        follower = next(member for member in group.peers if member != leader)
        fill(group, follower, MESSAGES)
        with BrokerClient(group.broker_addresses[follower]) as client:
            beyond = client.pull("t", 2 * MESSAGES + 5)

        assert beyond.code == ResponseCode.PULL_OFFSET_MOVED
        assert number(beyond, "nextBeginOffset") == 0

        group.kill(leader)
        wait_for(lambda: group.master() != leader, "another member leads")
        fill(group, group.master(), 2 * MESSAGES)
        group.start(leader)
        group.wait_until_up(leader)
        for member in group.peers:
            check_everything_is_served(group, member, 3 * MESSAGES)


def test_a_member_that_lacks_removed_entries_serves_those_after_them(tmp_path: Path) -> None:
    with BrokerGroup(
        tmp_path, segment_size_bytes=1 << 16, index_segment_size_bytes=1 << 14,
        retention_bytes=1 << 17, snapshot_threshold=100, snapshots_reserved=1,
    ) as group:  # fmt: skip
        leader = group.master()
        fill(group, leader)
        behind = next(member for member in group.peers if member != leader)
        count = MESSAGES
        while group.status(leader).ledger_begin_index < MESSAGES:
            fill(group, leader, count)
            count += MESSAGES
        group.kill(behind)
        shutil.rmtree(group.store_folder(behind))
        group.start(behind)
        group.wait_until_up(behind)

        with BrokerClient(group.broker_addresses[behind]) as client:
            client.wait_until_visible("t", count)
            ext = {"topic": "t", "queueId": "0"}
            first = number(client.ask(RequestCode.GET_MIN_OFFSET, ext), "offset")
            assert 0 < first < count
            assert bodies(client.pull("t", first))[0] == b"%d" % first
        with BrokerClient(group.broker_addresses[leader]) as client:
            # It is held until the log has shown the first message that it still has.
            moved = client.pull("t", 0, **HELD)
            assert moved.code == ResponseCode.PULL_OFFSET_MOVED
            assert number(moved, "nextBeginOffset") == number(moved, "minOffset") > 0


def hold_a_pull(client: BrokerClient) -> int:
    """Begin a pull at the end of the queue; return its opaque once the broker has it."""
    client.wait_until_visible("t", MESSAGES)
    held = pull_ext("t", MESSAGES, **HELD)
    opaque = client.begin(RequestCode.PULL_MESSAGE, held)
    client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    return opaque


def test_a_held_pull_of_a_killed_broker_is_reset_at_once(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path, 1) as group:
        fill(group, group.master())
        with BrokerClient(group.broker_addresses["n0"]) as client:
            opaque = hold_a_pull(client)
            group.kill("n0")

            with pytest.raises(ConnectionResetError):
                client.answer(opaque)


def test_a_held_pull_is_answered_before_an_orderly_stop(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path, 1) as group:
        fill(group, group.master())
        with BrokerClient(group.broker_addresses["n0"]) as client:
            opaque = hold_a_pull(client)
            group.stop("n0")

            assert client.answer(opaque).code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_a_broker_does_not_serve_a_log_that_is_no_brokers(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, 1) as group:
        group.master()
        with BlockingClient(group.servers, "g") as client:
            client.append(b"no message")

    broker = BrokerGroup(tmp_path, 1)
    broker.start("n0")

    assert broker.wait_for_exit("n0") == 1
    assert "is not a message of a broker of this version" in broker.log("n0")


def test_a_client_that_vanishes_leaves_no_held_pull_behind(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path, 1) as group:
        fill(group, group.master())
        client = BrokerClient(group.broker_addresses["n0"])
        client.wait_until_visible("t", MESSAGES)
        held = pull_ext("t", MESSAGES, **HELD)
        for _ in range(100):
            client.begin(RequestCode.PULL_MESSAGE, held)

        def shown() -> bytes:
            page = group.get("n0", "/metrics")[1]
            return next(
                line for line in page.splitlines() if line.startswith(b"dledger_broker_held_pulls ")
            )

        wait_for(lambda: shown().endswith(b" 100.0"), "the pulls are held")
        with client:
            client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_for(lambda: shown().endswith(b" 0.0"), "the pulls are dropped")
