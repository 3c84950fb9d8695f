"""Queue files that are damaged in a log whose front is removed: no message counts as removed that
the log still has.
"""

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
KEPT_MAX = 600
"""More messages than the log keeps in the end: 450 fill its limit and another segment."""
HELD = {"sysFlag": "6", "suspendTimeoutMillis": "15000"}
"""A pull that may be held; it brings its own subscription."""
LEFT_WHOLE = 5
"""The last units, which no damage hits."""


def body_of(offset: int) -> bytes:
    return b"%d." % offset + bytes(300)


def fill_until_removed(group: BrokerGroup) -> int:
    """Send messages until the only member has removed what it does not keep; return the next
    offset.
    """
    count = 0
    with BrokerClient(group.broker_addresses["n0"]) as client:

        def has_removed() -> bool:
            nonlocal count
            if group.status("n0").ledger_begin_index > BATCH:
                return True
            opaques = [
                client.begin(RequestCode.SEND_MESSAGE_V2, send_ext("t"), body_of(at))
                for at in range(count, count + BATCH)
            ]
            assert {client.answer(each).code for each in opaques} == {ResponseCode.SUCCESS}
            count += BATCH
            return False

        wait_for(has_removed, "the member has removed messages")

        def keeps_few() -> bool:
            status = group.status("n0")
            return status.ledger_end_index - status.ledger_begin_index < KEPT_MAX

        wait_for(keeps_few, "the member has removed all that it does not keep")
        client.wait_until_visible("t", count)
    return count


def zeroed(raw: bytearray, first: int, end: int) -> None:
    """Zero units."""
    raw[first * UNIT_BYTES : end * UNIT_BYTES] = bytes((end - first) * UNIT_BYTES)


def early(raw: bytearray, first: int, end: int) -> None:
    """Let units say that their messages are at the beginning of the log."""
    for at in range(first, end):
        raw[at * UNIT_BYTES : at * UNIT_BYTES + 8] = (1 + at).to_bytes(8, "big")


@pytest.mark.parametrize("damage", [zeroed, early])
def test_a_consumer_is_not_moved_past_messages_whose_units_are_damaged(
    tmp_path: Path, damage: object
) -> None:
    assert callable(damage)
    with BrokerGroup(
        tmp_path, members=1, segment_size_bytes=1 << 16, index_segment_size_bytes=1 << 14,
        snapshot_threshold=100, snapshots_reserved=1, retention_bytes=RETENTION_BYTES,
    ) as group:  # fmt: skip
        group.master()
        end = fill_until_removed(group)
        with BrokerClient(group.broker_addresses["n0"]) as client:
            first = number(client.pull("t", end - 1), "minOffset")
        group.stop("n0")
        [path] = (group.store_folder("n0") / "queues").rglob("t/0/*")
        raw = bytearray(path.read_bytes())
        damage(raw, first + 1, end - LEFT_WHOLE)
        path.write_bytes(raw)
        group.start("n0")
        group.wait_until_up("n0")
        group.master()
        wanted = (first + end) // 2
        pulled: list[bytes] = []
        with BrokerClient(group.broker_addresses["n0"]) as client:
            while wanted + len(pulled) < end:
                answer = client.pull("t", wanted + len(pulled), **HELD)
                assert answer.code == ResponseCode.SUCCESS, answer
                pulled += bodies(answer)
            gone = client.pull("t", 0, **HELD)

    assert 0 < first < wanted
    assert pulled == [body_of(at) for at in range(wanted, end)]
    assert gone.code == ResponseCode.PULL_OFFSET_MOVED
    assert first <= number(gone, "nextBeginOffset") <= wanted
