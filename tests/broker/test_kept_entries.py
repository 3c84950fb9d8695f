"""What retention must not remove from a broker's log."""

from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, number, pull_ext, send_ext
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

LIMIT_BYTES = 1 << 17


def small_log(folder: Path, members: int) -> BrokerGroup:
    return BrokerGroup(
        folder, members, segment_size_bytes=1 << 16, index_segment_size_bytes=1 << 14,
        retention_bytes=LIMIT_BYTES, snapshot_threshold=100, snapshots_reserved=1,
    )  # fmt: skip


def fill(client: BrokerClient) -> None:
    """Write about a third of what the log may have."""
    opaques = [
        client.begin(RequestCode.SEND_MESSAGE_V2, send_ext("filler"), bytes(300))
        for _ in range(100)
    ]
    for opaque in opaques:
        assert client.answer(opaque).code == ResponseCode.SUCCESS


def test_a_delayed_message_is_delivered_before_retention_may_remove_it(tmp_path: Path) -> None:
    with small_log(tmp_path, 1) as group:
        leader = group.master()
        with BrokerClient(group.broker_addresses[leader]) as client:
            sent = client.send("late", i="DELAY\x012\x02")
            assert sent.code == ResponseCode.SUCCESS
            while group.status(leader).ledger_begin_index < 50:
                fill(client)

            ext = {"topic": "late", "queueId": "0"}
            assert number(client.ask(RequestCode.GET_MAX_OFFSET, ext), "offset") == 1


def test_entries_stay_until_they_are_in_the_queues_of_the_member(tmp_path: Path) -> None:
    """A file lies where one member must make the folder of a queue, so it builds no further."""
    with small_log(tmp_path, 3) as group:
        leader = group.master()
        blocked = next(member for member in group.peers if member != leader)
        obstacle = group.store_folder(blocked) / "queues" / "consumequeue" / "stuck"
        obstacle.parent.mkdir(parents=True, exist_ok=True)
        obstacle.write_text("")
        with BrokerClient(group.broker_addresses[leader]) as client:
            client.send("stuck", b"first")
            begins = {0}
            while len(begins) < 4:  # the leader has removed segments three times
                fill(client)
                begins.add(group.status(leader).ledger_begin_index)

        assert group.status(blocked).ledger_begin_index == 0
        with BrokerClient(group.broker_addresses[blocked]) as client:
            opaque = client.begin(
                RequestCode.PULL_MESSAGE,
                pull_ext("stuck", 0, sysFlag="6", suspendTimeoutMillis="20000"),
            )
            client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
            obstacle.unlink()
            assert client.answer(opaque).code == ResponseCode.SUCCESS
        wait_for(
            lambda: group.status(blocked).ledger_begin_index > 0,
            "it removes segments, too",
            timeout_s=60,
        )
