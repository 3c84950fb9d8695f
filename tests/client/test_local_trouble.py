"""Which troubles of a member `dledger group local` tells, and that it tells each once."""

from typing import Any

from dledger_client.local.trouble import OutOfService, StorageTrouble, TroubleWatch
from dledger_formats.http.status import (
    STORE_IS_OPENING,
    FlushDiskType,
    NodeStatus,
    Role,
    StorageState,
)


def status(**changes: Any) -> NodeStatus:
    values: dict[str, Any] = {
        "group": "g", "self_id": "n0", "role": Role.FOLLOWER, "term": 1, "leader_id": "n1",
        "master": False, "ready": True, "reason": "", "broker_id": 1, "ledger_begin_index": 0,
        "ledger_end_index": 1, "ledger_end_term": 1, "committed_index": 1, "durable_index": 1,
        "flush_disk_type": FlushDiskType.SYNC_FLUSH, "peers": {}, "voters": ["n0", "n1", "n2"],
        "version": "",
    }  # fmt: skip
    return NodeStatus(**(values | changes))


def closed(reason: str) -> NodeStatus:
    return status(ready=False, reason=reason, voters=[])


def test_a_store_that_stays_closed_is_told_once() -> None:
    watch = TroubleWatch()

    told = [watch.learn(closed("it belongs to another group")) for _ in range(4)]

    trouble = OutOfService(member_id="n0", reason="it belongs to another group")
    assert told == [None, trouble, None, None]


def test_a_store_that_is_being_opened_is_not_told() -> None:
    watch = TroubleWatch()

    assert [watch.learn(closed(STORE_IS_OPENING)) for _ in range(3)] == [None] * 3
    assert watch.is_suspected
    assert watch.learn(status()) is None
    assert not watch.is_suspected


def test_another_reason_is_told_too() -> None:
    watch = TroubleWatch()
    for _ in range(2):
        watch.learn(closed("one"))

    told = [watch.learn(closed("two")) for _ in range(3)]

    assert told == [None, OutOfService(member_id="n0", reason="two"), None]


def test_a_store_that_failed_is_told_at_once_and_again_after_it_was_sound() -> None:
    watch = TroubleWatch()
    failed = status(storage=StorageState.FULL, reason="the volume is full")

    told = [watch.learn(one) for one in (failed, failed, status(), failed)]

    trouble = StorageTrouble(member_id="n0", state=StorageState.FULL, reason="the volume is full")
    assert told == [trouble, None, None, trouble]


def test_a_member_that_waits_for_a_leader_is_not_told() -> None:
    watch = TroubleWatch()

    assert [watch.learn(status(ready=False, reason="knows no leader")) for _ in range(3)] == [
        None
    ] * 3


def test_damage_that_waits_for_a_peer_is_told_of_a_member_in_service() -> None:
    waiting = status(storage=StorageState.HEALING, unmended="entry 7 is damaged")

    assert TroubleWatch().learn(waiting) == StorageTrouble(
        member_id="n0", state=StorageState.HEALING, reason="entry 7 is damaged"
    )
