"""Single appends: each response, missing responses, cancellation, and `append_batch`."""

import asyncio
from typing import Any

import pytest

from dledger_client import session
from dledger_client.append.outcomes import Acknowledged, Appended, Refused, Unknown
from dledger_client.calls import dispatcher
from dledger_client.client import BATCH_MAX, DLedgerClient
from dledger_client.cluster import backoff
from dledger_client.cluster.members import Timing
from dledger_client.errors import (
    GroupUnreachableError,
    OutcomeUnknownError,
    RefusedError,
)
from dledger_fake_server.behavior import Fault
from dledger_fake_server.group import Group
from dledger_formats.log import disk
from dledger_formats.protocol.codes import NOT_APPENDED, DLedgerResponseCode
from dledger_formats.protocol.frames import RemotingCommand

Code = DLedgerResponseCode
BUSY = RemotingCommand(code=2, opaque=0, remark="[PCBUSY_CLEAN_QUEUE]broker busy")
SYSTEM_ERROR = RemotingCommand(code=1, opaque=0, remark="java.lang.NullPointerException: x")
NOT_SUPPORTED = RemotingCommand(code=3, opaque=0, remark="request type 50001 not supported")
UNREADABLE = RemotingCommand(code=200, opaque=0, body=b"not JSON")

LATER = [
    Code.LEADER_PENDING_FULL, Code.LEADER_TRANSFERRING, Code.LEADER_NOT_READY, Code.DISK_FULL, BUSY,
    Fault.GO_AWAY,
]  # fmt: skip
UNKNOWN = [
    Code.WAIT_QUORUM_ACK_TIMEOUT, Code.TERM_CHANGED, Code.EXPIRED_TERM, Code.TIMEOUT,
    Code.DISK_ERROR, Code.INTERNAL_ERROR, Code.UNKNOWN, Code.ILLEGAL_MEMBER_STATE, SYSTEM_ERROR,
    UNREADABLE, Fault.DISCONNECT, Fault.APPEND_AND_DISCONNECT, Fault.SEND_GARBAGE,
]  # fmt: skip
REFUSED = [Code.UNKNOWN_GROUP, Code.UNSUPPORTED, Code.UNEXPECTED_ARGUMENT, NOT_SUPPORTED]


def name_of(behavior: object) -> str:
    return getattr(behavior, "name", None) or f"remoting-{getattr(behavior, 'code', '')}"


def client_of(group: Group, *, at_least_once: bool = False, **timing: float) -> DLedgerClient:
    return DLedgerClient(
        group.servers, group.name, at_least_once=at_least_once, timing=Timing(**timing)
    )


async def test_an_append_returns_the_position_of_its_entry(group: Group) -> None:
    async with client_of(group) as client:
        await client.append(b"first")
        appended = await client.append(b"second")

    assert appended == Appended(index=1, term=1, pos=0)


@pytest.mark.parametrize("behavior", LATER, ids=name_of)
async def test_an_append_that_the_leader_cannot_accept_yet_is_resent(
    group: Group, behavior: DLedgerResponseCode | Fault
) -> None:
    group["n0"].script.extend([behavior, behavior])
    async with client_of(group) as client:
        await client.append(b"x")

    assert (group.log, len(group["n0"].appends)) == ([b"x"], 3)


@pytest.mark.parametrize("behavior", UNKNOWN, ids=name_of)
async def test_an_append_with_an_unknown_outcome_is_reported_and_not_resent(
    group: Group, behavior: DLedgerResponseCode
) -> None:
    group["n0"].script.append(behavior)
    async with client_of(group) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.append(b"x")

    assert sum(len(member.appends) for member in group.members.values()) == 1


@pytest.mark.parametrize("behavior", UNKNOWN, ids=name_of)
async def test_at_least_once_resends_an_append_with_an_unknown_outcome(
    group: Group, behavior: DLedgerResponseCode
) -> None:
    group["n0"].script.append(behavior)
    async with client_of(group, at_least_once=True) as client:
        appended = await client.append(b"x")

    assert group.log[appended.index] == b"x"
    assert len(group["n0"].appends) == 2


@pytest.mark.parametrize("behavior", REFUSED, ids=name_of)
async def test_a_refused_append_is_reported_and_not_resent(
    group: Group, behavior: DLedgerResponseCode
) -> None:
    group["n0"].script.append(behavior)
    async with client_of(group, at_least_once=True) as client:
        with pytest.raises(RefusedError) as caught:
            await client.append(b"x")

    assert caught.value.code in (behavior, Code.UNSUPPORTED)
    assert len(group["n0"].appends) == 1


@pytest.mark.parametrize("last", [Code.UNSUPPORTED, Code.LEADER_PENDING_FULL], ids=name_of)
async def test_an_append_refused_after_an_unknown_attempt_is_unknown(
    group: Group, last: DLedgerResponseCode
) -> None:
    group["n0"].script.extend([Fault.APPEND_AND_DISCONNECT, *[last] * 100])
    async with client_of(group, at_least_once=True) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.append(b"x", deadline_s=0.3)


def test_no_code_that_means_not_appended_is_tested_as_unknown() -> None:
    assert not NOT_APPENDED & {code for code in UNKNOWN if isinstance(code, Code)}


async def test_an_append_that_gets_no_response_is_unknown(group: Group) -> None:
    group["n0"].script.append(Fault.NO_ANSWER)
    async with client_of(group, request_timeout_s=0.1) as client:
        with pytest.raises(OutcomeUnknownError, match="did not respond in time"):
            await client.append(b"x")

    assert len(group["n0"].appends) == 1


async def test_a_late_response_does_not_affect_the_next_append(group: Group) -> None:
    group["n0"].script.append(Fault.NO_ANSWER)
    async with client_of(group, request_timeout_s=0.1) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.append(b"late")
        late = RemotingCommand(code=200, flag=1, opaque=1, body=b'{"code":200,"term":9,"index":9}')
        group["n0"].send_to_all(late)

        assert (await client.append(b"next")).index == 0


async def test_an_append_is_refused_with_disk_full_at_its_deadline(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "DISK_FULL_PAUSE_S", 600.0)
    monkeypatch.setattr(backoff, "PAUSE_MAX_S", 600.0)
    group["n0"].script.append(Code.DISK_FULL)
    async with client_of(group) as client, asyncio.timeout(60):
        with pytest.raises(RefusedError, match="415 DISK_FULL"):
            await client.append(b"x", deadline_s=0.5)


async def test_a_pause_that_is_cut_off_by_the_deadline_ends_without_another_attempt(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event loop may run a timer up to a millisecond early."""
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def early(delay_s: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        return call_later(max(0.0, delay_s - 0.01), callback, *args)

    group["n0"].script.append(Code.DISK_FULL)
    async with client_of(group) as client:
        await client.bounds()
        monkeypatch.setattr(loop, "call_later", early)
        with pytest.raises(RefusedError, match="415 DISK_FULL"):
            await client.append(b"x", deadline_s=0.2)

    assert not group.log


async def test_a_deadline_counts_from_the_call_although_others_are_under_way(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "CALLS_MAX", 1)
    group["n0"].script.append(Fault.NO_ANSWER)
    async with client_of(group) as client, asyncio.timeout(2):
        first = asyncio.create_task(client.append(b"first"))
        await group["n0"].append_received.wait()
        for call in (client.append(b"second", deadline_s=0.2), client.get(0, deadline_s=0.2)):
            with pytest.raises(GroupUnreachableError, match="1 other requests"):
                await call
        first.cancel()

    assert group["n0"].appends == [b"first"]


@pytest.mark.parametrize("leaves", ["it hands over", "it stops"])
async def test_disk_full_is_the_reason_although_the_full_leader_leaves_afterwards(
    group: Group, leaves: str
) -> None:
    """`dledger append` may go on after DISK_FULL, and ends if the group is unreachable."""
    group["n0"].script.append(Code.DISK_FULL)
    async with client_of(group) as client:
        pending = asyncio.create_task(client.append(b"x", deadline_s=1.0))
        await group["n0"].append_received.wait()
        group.elect(None)
        if leaves == "it stops":
            await group["n0"].stop()

        with pytest.raises(RefusedError, match="415 DISK_FULL"):
            await pending


async def test_a_body_that_is_too_large_is_refused_before_it_is_sent(group: Group) -> None:
    async with client_of(group) as client:
        with pytest.raises(RefusedError, match="at most"):
            await client.append(bytes(disk.BODY_SIZE_MAX + 1))

    assert not group["n0"].appends


async def test_a_body_of_the_maximum_size_is_appended(group: Group) -> None:
    body = bytes(disk.BODY_SIZE_MAX)
    async with client_of(group) as client:
        await client.append(body)

    assert group.log == [body]


async def test_a_body_that_is_text_raises_a_type_error(group: Group) -> None:
    async with client_of(group) as client:
        with pytest.raises(TypeError, match="must be bytes"):
            await client.append("text")  # type: ignore[arg-type]


async def test_a_cancelled_append_does_not_affect_the_next_one(group: Group) -> None:
    group["n0"].script.append(Fault.NO_ANSWER)
    async with client_of(group) as client:
        cancelled = asyncio.create_task(client.append(b"x"))
        await group["n0"].append_received.wait()
        cancelled.cancel()

        assert (await client.append(b"y")).index == 0


async def test_closing_the_client_ends_an_append_in_flight_as_unknown(group: Group) -> None:
    group["n0"].script.append(Fault.NO_ANSWER)
    async with client_of(group) as client:
        sent = asyncio.create_task(client.append(b"x"))
        await group["n0"].append_received.wait()

    with pytest.raises(OutcomeUnknownError, match="closed"):
        await sent


async def test_closing_the_client_ends_an_append_that_waits_for_a_leader(group: Group) -> None:
    group.elect(None)
    async with client_of(group) as client:
        waiting = asyncio.create_task(client.append(b"x"))
        await group["n0"].metadata_requested.wait()

    with pytest.raises(GroupUnreachableError, match="closed"):
        await waiting


async def test_a_client_that_was_not_entered_raises_an_error(group: Group) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await client_of(group).append(b"x")


async def test_java_0_4_3_receives_bytes_as_arrays_of_numbers(group: Group) -> None:
    group["n0"].reads_only_numbers = True
    async with client_of(group) as client:
        await asyncio.gather(*(client.append(b"\x00\x80\xff") for _ in range(3)))
        attempts = len(group["n0"].appends)
        await client.append(b"again")

    assert group.log == [b"\x00\x80\xff"] * 3 + [b"again"]
    assert len(group["n0"].appends) == attempts + 1


# Cancellation and append_batch


async def test_the_error_of_a_cancelled_append_says_that_it_may_be_in_the_log(
    group: Group,
) -> None:
    group["n0"].script.append(Fault.APPEND_WITHOUT_ANSWER)
    async with client_of(group) as client:
        cancelled = asyncio.create_task(client.append(b"x"))
        await group["n0"].append_received.wait()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await cancelled

    assert "may be in the log" in caught.value.__notes__[0]
    assert client.statistics.unknown == 1


async def test_a_cancelled_append_that_waits_for_a_leader_is_never_sent(group: Group) -> None:
    group.elect(None)
    async with client_of(group) as client:
        cancelled = asyncio.create_task(client.append(b"cancelled"))
        await group["n0"].metadata_requested.wait()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await cancelled
        group.elect("n1")
        await client.append(b"next")

    assert group.log == [b"next"]
    assert not getattr(caught.value, "__notes__", [])


async def test_a_cancelled_append_that_waits_for_a_retry_is_never_resent(
    group: Group,
) -> None:
    group["n0"].script.append(Code.DISK_FULL)  # the client pauses for half a second
    async with client_of(group) as client:
        cancelled = asyncio.create_task(client.append(b"cancelled"))
        await group["n0"].append_received.wait()
        # Responses on a connection are processed in order: this one comes after DISK_FULL.
        await client.membership()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert client.statistics.refused == 1, "the retry is dropped at once"
        await client.append(b"next")

    assert group.log == [b"next"]


async def test_append_batch_pipelines_its_bodies_and_returns_an_outcome_for_each(
    group: Group,
) -> None:
    group["n0"].script.extend([Code.SUCCESS, Code.UNSUPPORTED, Code.WAIT_QUORUM_ACK_TIMEOUT])
    async with client_of(group) as client:
        await client.metadata()
        outcomes = await client.append_batch([b"a", b"b", b"c", b"d"])

    assert group["n0"].largest_read == 4
    assert [type(outcome) for outcome in outcomes] == [Acknowledged, Refused, Unknown, Acknowledged]
    assert [outcome.number for outcome in outcomes] == [0, 1, 2, 3]


async def test_append_batch_of_nothing_returns_nothing(group: Group) -> None:
    async with client_of(group) as client:
        assert await client.append_batch([]) == []


@pytest.mark.parametrize("bodies", [[b""] * (BATCH_MAX + 1), [bytes(1 << 22)] * 17])
async def test_append_batch_rejects_too_many_bodies_or_bytes(
    group: Group, bodies: list[bytes]
) -> None:
    async with client_of(group) as client:
        with pytest.raises(ValueError, match="at most"):
            await client.append_batch(bodies)


async def test_a_cancelled_append_batch_appends_nothing_later(group: Group) -> None:
    group.elect(None)
    async with client_of(group) as client:
        cancelled = asyncio.create_task(client.append_batch([b"cancelled"] * 100))
        await group["n0"].metadata_requested.wait()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        group.elect("n1")
        await client.append(b"next")

    assert group.log == [b"next"]


async def test_a_client_that_is_open_is_not_opened_again(group: Group) -> None:
    client = DLedgerClient(group.servers, "g0")
    async with client:
        with pytest.raises(RuntimeError, match="is open already; open another one"):
            await client.__aenter__()
        assert (await client.append(b"x")).index == 0
    async with client:
        assert (await client.append(b"y")).index == 1
