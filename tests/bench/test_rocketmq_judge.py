"""The judge of stock clients' messages: what it allows around failovers, and what it finds."""

from typing import Any

import pytest

from bench.rocketmq_judge import AGAIN_S_MAX, IN_DOUBT, NO_ANSWER, Event, MessageJudge, Verdict
from dledger_formats.log.checksum import crc32
from dledger_formats.rocketmq import message_record
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.message_record import MessageRecord

REFUSED = int(ResponseCode.SERVICE_NOT_AVAILABLE)


def body_of(key: str) -> bytes:
    return key.encode().ljust(100, b".")


def sent(key: str, offset: int, **changed: Any) -> Event:
    return {
        "event": "sent",
        "key": key,
        "status": "SEND_OK",
        "queue": 0,
        "offset": offset,
    } | changed


def tried(key: str, code: int = NO_ANSWER) -> Event:
    return {"event": "tried", "key": key, "code": code, "text": "why"}


def received(key: str, offset: int, **changed: Any) -> Event:
    body = body_of(key)
    return {
        "event": "received", "key": key, "queue": 0, "offset": offset, "body": body.hex(),
        "crc": crc32(body) & 0x7FFFFFFF,
    } | changed  # fmt: skip


def logged(key: str, offset: int, body: bytes | None = None, topic: str = "t") -> bytes:
    return bytes(
        message_record.encode(
            MessageRecord(
                topic, 0, offset, 0, body_of(key) if body is None else body,
                f"KEYS\x01{key}\x02".encode(),
            )
        )
    )  # fmt: skip


def judged(*events: Event, log: list[bytes] | None = None, apart_s: float = 0.0) -> Verdict:
    judge = MessageJudge("t")
    for number, event in enumerate(events):
        judge.take(event, number * apart_s)
    if log is not None:
        judge.take_log(log)
    return judge.verdict()


def test_messages_that_are_delivered_once_from_their_places_are_right() -> None:
    verdict = judged(
        sent("k0", 0), received("k0", 0), received("k1", 1), sent("k1", 1),
        log=[logged("k0", 0), logged("k1", 1), logged("k0", 0, topic="another")],
    )  # fmt: skip

    assert verdict == Verdict(acknowledged=2, delivered=2, redelivered=0, repeated=0, faults=[])


def test_a_message_may_be_delivered_again_from_its_place_soon_after() -> None:
    events = sent("k0", 0), received("k0", 0), received("k0", 0)

    assert judged(*events).faults == []
    assert judged(*events).redelivered == 1
    [late] = judged(*events, apart_s=AGAIN_S_MAX + 1).faults
    assert late.startswith("k0 was delivered again from (0, 0) after 21.0 s")


@pytest.mark.parametrize("code", IN_DOUBT)
def test_a_try_that_may_be_stored_explains_one_copy(code: int) -> None:
    events = tried("k0", code), sent("k0", 1), received("k0", 0), received("k0", 1)

    assert judged(*events) == Verdict(
        acknowledged=1, delivered=1, redelivered=0, repeated=1, faults=[]
    )
    [fault] = judged(*events, received("k0", 2)).faults
    assert fault.startswith("k0 is at [(0, 0), (0, 1), (0, 2)]; (0, 1) was acknowledged, and 1")


def test_a_copy_without_such_a_try_is_a_fault() -> None:
    copies = sent("k0", 1), received("k0", 0), received("k0", 1)

    assert len(judged(*copies).faults) == 1
    assert len(judged(tried("k0", REFUSED), *copies).faults) == 1
    assert len(judged(*copies[::2], log=[logged("k0", 0), logged("k0", 1)]).faults) == 1


def test_a_message_that_every_try_was_refused_must_not_be_stored() -> None:
    failed: Event = {"event": "failed", "key": "k0", "text": "no"}

    assert judged(tried("k0", REFUSED), failed).faults == []
    assert len(judged(tried("k0", REFUSED), failed, received("k0", 0)).faults) == 1
    assert judged(tried("k0"), failed, received("k0", 0)).faults == []


def test_a_message_whose_send_has_not_ended_may_be_stored_or_not() -> None:
    events = sent("k0", 0), received("k0", 0), received("k1", 1)

    assert judged(*events).faults == []
    assert len(judged(*events, sent("k2", 2), received("k2", 2)).faults) == 1


def test_what_is_lost_or_moved_is_a_fault() -> None:
    [lost] = judged(sent("k0", 0)).faults
    assert lost == "k0 of (0, 0) was acknowledged and not delivered"

    assert len(judged(sent("k0", 0), received("k0", 1)).faults) == 2


def test_a_place_of_two_messages_is_a_fault() -> None:
    faults = judged(sent("k0", 0), received("k0", 0), sent("k1", 0), received("k1", 0)).faults

    assert faults == ["(0, 0) was given to ['k0', 'k1']"]


@pytest.mark.parametrize("change", [{"body": b"x".hex()}, {"crc": 1}])
def test_another_body_or_checksum_is_a_fault(change: dict[str, Any]) -> None:
    [fault] = judged(sent("k0", 0), received("k0", 0, **change)).faults

    assert fault == "k0 was delivered from (0, 0) with another body or checksum"


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        ([], "the log has None at (0, 0), where clients have seen k0"),
        ([logged("k1", 0)], "the log has k1 at (0, 0), where clients have seen k0"),
        ([logged("k0", 0, b"x")], "the log has another body of k0 at (0, 0)"),
        ([logged("k0", 0), logged("k0", 0)], "the log has k0 and k0 at (0, 0)"),
        ([logged("k0", 0), b"bytes"], "the log has a body that is no message: short"),
    ],
)
def test_a_log_that_contradicts_the_clients_is_a_fault(log: list[bytes], fault: str) -> None:
    faults = judged(sent("k0", 0), received("k0", 0), log=log).faults

    assert any(each.startswith(fault) for each in faults), faults


def test_an_answer_that_is_not_ok_is_a_fault() -> None:
    [fault] = judged(sent("k0", 0, status="FLUSH_DISK_TIMEOUT"), received("k0", 0)).faults

    assert fault == "k0 was answered with FLUSH_DISK_TIMEOUT"
