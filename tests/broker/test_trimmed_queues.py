"""The queue files of members whose logs lose their fronts: they stay small, and lose no message.

The members have small files, and look at them several times a second.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, bodies, number, send_ext
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.consume_queue import UNIT_BYTES
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

BATCH = 100
RETENTION_BYTES = 1 << 17
FILE_UNITS = 50
MEMBER = f"""
import sys
from dledger_broker import console_script
from dledger_broker.queues import trimming
from dledger_broker.queues.queue_store import QueueStore

trimming.SWEEP_S = 0.1
QueueStore.open.__func__.__kwdefaults__["file_bytes"] = {FILE_UNITS * UNIT_BYTES}
sys.exit(console_script.main())
"""
HELD = {"sysFlag": "6", "suspendTimeoutMillis": "15000"}
"""A pull that may be held; it brings its own subscription."""


class TrimmingGroup(BrokerGroup):
    """Members that retain little, with small files of queues."""

    def __init__(self, folder: Path, members: int) -> None:
        super().__init__(
            folder, members, segment_size_bytes=1 << 16, index_segment_size_bytes=1 << 14,
            snapshot_threshold=100, snapshots_reserved=1, retention_bytes=RETENTION_BYTES,
        )  # fmt: skip

    def command(self, member: str) -> list[str]:
        """Return the command that starts a member."""
        return [sys.executable, "-c", MEMBER]

    def queue_files(self, member: str, queue: str = "t/0") -> list[Path]:
        """Return the files of a queue of a member; by default of that to which the tests send."""
        return sorted((self.store_folder(member) / "queues").rglob(f"{queue}/*"))

    def metric(self, member: str, name: str) -> float:
        """Return a metric of a member's broker."""
        page = self.get(member, "/metrics")[1].decode()
        [value] = re.findall(rf"^dledger_broker_{name} (\S+)$", page, re.MULTILINE)
        return float(value)


def body_of(offset: int) -> bytes:
    return b"%d." % offset + bytes(300)


def fill(client: BrokerClient, first: int) -> int:
    """Send messages whose bodies begin with their offsets; return the next offset."""
    opaques = [
        client.begin(RequestCode.SEND_MESSAGE_V2, send_ext("t"), body_of(at))
        for at in range(first, first + BATCH)
    ]
    assert {client.answer(each).code for each in opaques} == {ResponseCode.SUCCESS}
    return first + BATCH


def fill_until_removed(group: BrokerGroup, count: int) -> int:
    """Send messages, from offset `count` on, until every member has removed as many as a file has;
    return the next offset.
    """
    begins = {member: group.status(member).ledger_begin_index for member in group.peers}
    with BrokerClient(group.broker_addresses[group.master()]) as client:

        def have_removed() -> bool:
            nonlocal count
            if all(
                group.status(member).ledger_begin_index > begin + 3 * FILE_UNITS
                for member, begin in begins.items()
            ):
                return True
            count = fill(client, count)
            return False

        wait_for(have_removed, "all members have removed messages")
    return count


def check(group: TrimmingGroup, member: str, end: int) -> None:
    """Check that a member has the queue files of the messages that its log has, and no others, and
    that consumers get all of these messages.
    """
    with BrokerClient(group.broker_addresses[member]) as client:
        client.wait_until_visible("t", end)

        def first_kept() -> int:
            return number(client.pull("t", end - 1), "minOffset")

        def first_file() -> int:
            return (first_kept() - 1) // FILE_UNITS * FILE_UNITS * UNIT_BYTES

        first, pulled = first_kept(), list[bytes]()
        while first + len(pulled) < end:
            answer = client.pull("t", first + len(pulled), **HELD)
            if answer.code == ResponseCode.PULL_OFFSET_MOVED:  # retention goes on
                first, pulled = number(answer, "nextBeginOffset"), []
                continue
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            pulled += bodies(answer)
        wait_for(
            lambda: int(group.queue_files(member)[0].name) == first_file(), "older files are gone"
        )
    assert first > FILE_UNITS
    assert pulled == [body_of(at) for at in range(first, end)]
    assert len(group.queue_files(member)) <= (end - first) // FILE_UNITS + 2
    assert group.metric(member, "queue_rebuilds_total") == 0
    files = len(group.queue_files(member, "*/*"))
    wait_for(
        lambda: 0 < group.metric(member, "queue_file_bytes") <= 4096 * (files + 1),
        "the bytes of the files are counted",
    )


@pytest.fixture
def group(tmp_path: Path) -> Iterator[TrimmingGroup]:
    with TrimmingGroup(tmp_path, 3) as running:
        yield running


def test_members_keep_the_queue_files_of_what_their_logs_have_over_kills_and_stops(
    group: TrimmingGroup,
) -> None:
    """They kept 20 bytes of each message forever, on the volume of the log."""
    end = fill_until_removed(group, 0)
    for member in group.peers:
        check(group, member, end)
    leader = group.master()
    group.kill(leader)
    with BrokerClient(group.broker_addresses[group.master()]) as client:
        end = fill(client, end)
    group.start(leader)
    group.wait_until_up(leader)
    stopped = next(member for member in group.peers if member != group.master())
    group.stop(stopped)
    group.start(stopped)
    group.wait_until_up(stopped)
    end = fill_until_removed(group, end)

    for member in group.peers:
        check(group, member, end)


def test_a_member_whose_log_was_replaced_keeps_the_queue_files_of_the_new_one(
    group: TrimmingGroup,
) -> None:
    """It was away for longer than the others keep messages, so it gets a log with another front."""
    away = next(member for member in group.peers if member != group.master())
    end = fill_until_removed(group, 0)
    group.kill(away)
    with BrokerClient(group.broker_addresses[group.master()]) as client:
        for _ in range(20):
            end = fill(client, end)
    group.start(away)
    group.wait_until_up(away)

    check(group, away, end)
