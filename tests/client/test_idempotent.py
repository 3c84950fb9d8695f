"""Idempotent appends: resent appends are in the log once; errors where that is impossible."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from dledger_client.append.outcomes import Acknowledged, Refused
from dledger_client.cli import main
from dledger_client.client import BATCH_MAX, DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import GroupUnreachableError, OutcomeUnknownError, RefusedError
from dledger_client.sync import BlockingClient
from dledger_fake_server.behavior import Fault
from dledger_fake_server.group import Group
from dledger_formats.log.channels import WINDOW
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.frames import RemotingCommand

Code = DLedgerResponseCode
LOST = [
    Fault.DISCONNECT, Fault.APPEND_AND_DISCONNECT, Fault.SEND_GARBAGE, Code.INTERNAL_ERROR,
    Code.WAIT_QUORUM_ACK_TIMEOUT, Code.TERM_CHANGED, Code.SEQUENCE_TOO_NEW,
    RemotingCommand(code=1, opaque=0, remark="java.lang.NullPointerException: x"),
]  # fmt: skip


def name_of(behavior: object) -> str:
    return getattr(behavior, "name", None) or f"remoting-{getattr(behavior, 'code', '')}"


def client_of(group: Group, **timing: float) -> DLedgerClient:
    return DLedgerClient(group.servers, group.name, idempotent=True, timing=Timing(**timing))


async def outcomes_of(client: DLedgerClient, bodies: list[bytes], **options: Any) -> list[Any]:
    return [outcome async for outcome in client.append_all(bodies, **options)]


@pytest.mark.parametrize("behavior", LOST, ids=name_of)
async def test_an_append_with_an_unknown_outcome_is_resent_and_in_the_log_once(
    group: Group, behavior: Any
) -> None:
    group["n0"].script.extend([behavior, behavior])
    async with client_of(group) as client:
        appended = await client.append(b"x")

    assert (group.log, appended.index) == ([b"x"], 0)
    assert len(group["n0"].appends) == 3


async def test_an_append_without_a_response_is_resent(group: Group) -> None:
    group["n0"].script.append(Fault.APPEND_WITHOUT_ANSWER)
    async with client_of(group, request_timeout_s=0.1) as client:
        await client.append(b"x")

    assert group.log == [b"x"]


async def test_one_registration_serves_all_appends(group: Group) -> None:
    async with client_of(group) as client:
        await asyncio.gather(*(client.append(b"%d" % number) for number in range(100)))
        await client.append_batch([b"x"] * 100)

    assert len(group.producers) == 1
    assert len(group.log) == 200


async def test_every_body_is_in_the_log_once_across_a_change_of_the_leader(group: Group) -> None:
    bodies = [b"body %d" % number for number in range(3000)]
    group["n0"].script.extend(
        [Code.SUCCESS] * 700 + [Fault.APPEND_WITHOUT_ANSWER] * 50 + [Fault.APPEND_AND_DISCONNECT]
    )
    async with client_of(group, request_timeout_s=0.2) as client:
        outcomes = []
        async for outcome in client.append_all(bodies, in_flight=2000):
            outcomes.append(outcome)
            if len(outcomes) == 1500:
                group.elect("n1")

    assert all(isinstance(outcome, Acknowledged) for outcome in outcomes)
    assert [group.log[outcome.index] for outcome in outcomes] == bodies
    assert len(group.log) == len(bodies)
    assert max(outcome.attempts for outcome in outcomes) > 1


@pytest.mark.parametrize(
    "behavior", [Fault.DISCONNECT, Fault.APPEND_AND_DISCONNECT, Code.WAIT_QUORUM_ACK_TIMEOUT],
    ids=name_of,
)  # fmt: skip
async def test_a_batch_with_an_unknown_outcome_is_in_the_log_once(
    group: Group, behavior: Any
) -> None:
    group.enable_batches()
    bodies = [b"%d" % number for number in range(300)]
    async with client_of(group) as client:
        await client.append(b"first")
        group["n0"].script.extend([Code.SUCCESS, behavior])
        outcomes = await outcomes_of(client, bodies, in_flight=400)

    assert sorted(group.log) == sorted([b"first", *bodies])
    assert [group.log[outcome.index] for outcome in outcomes] == bodies
    assert {type(outcome) for outcome in outcomes} == {Acknowledged}
    assert len(group["n0"].batches) > 2, "bodies shared requests"


async def test_a_batch_behind_a_later_one_is_sent_body_by_body(group: Group) -> None:
    group.enable_batches()
    bodies = [b"%d" % number for number in range(100)]
    async with client_of(group) as client:
        await client.append(b"first")
        group["n0"].script.append(Code.LEADER_PENDING_FULL)
        outcomes = await outcomes_of(client, bodies, in_flight=400)
        singles_before = len(group["n0"].appends)
        more = await outcomes_of(client, [b"x"] * 100, in_flight=400)

    assert sorted(group.log) == sorted([b"first", *bodies, *[b"x"] * 100])
    assert [group.log[outcome.index] for outcome in outcomes] == bodies
    assert {type(outcome) for outcome in more} == {Acknowledged}
    batched = [body for batch in group["n0"].batches for body in batch]
    assert batched.count(b"x") == 100, "the server still gets batches"
    assert singles_before > len(bodies)


async def test_a_batch_of_a_forgotten_producer_is_sent_again_as_a_batch(group: Group) -> None:
    group.enable_batches()
    async with client_of(group) as client:
        await client.append(b"a")
        group.producers.forget_all()
        outcomes = await client.append_batch([b"b", b"c", b"d"])

    assert {type(outcome) for outcome in outcomes} == {Acknowledged}
    assert group.log == [b"a", b"b", b"c", b"d"]
    assert group["n0"].batches == [[b"b", b"c", b"d"]] * 2


async def test_cancelled_batches_leave_no_sequence_unresolved(group: Group) -> None:
    group.enable_batches()
    async with client_of(group, request_timeout_s=0.1) as client:
        await client.append(b"first")
        group["n0"].script.append(Fault.NO_ANSWER)
        stream = client.append_all([b"x"] * 100, in_flight=100)
        waiting = asyncio.ensure_future(anext(stream))
        group["n0"].append_received.clear()
        await group["n0"].append_received.wait()
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        await stream.aclose()
        outcomes = await client.append_batch([b"y"] * 3 * WINDOW)

    assert {type(outcome) for outcome in outcomes} == {Acknowledged}


async def test_at_most_one_window_of_appends_is_in_flight(group: Group) -> None:
    group["n0"].script.extend([Fault.NO_ANSWER] + [Code.SUCCESS] * (3 * WINDOW))
    async with client_of(group, request_timeout_s=1.0) as client:
        outcomes = await outcomes_of(client, [b"x"] * 3 * WINDOW, in_flight=3 * WINDOW)

    assert {type(outcome) for outcome in outcomes} == {Acknowledged}
    assert len(group.log) == 3 * WINDOW
    assert outcomes[0].index == WINDOW - 1, "the rest of its window was appended before it"


async def test_append_batch_accepts_more_bodies_than_the_window(group: Group) -> None:
    async with client_of(group) as client:
        outcomes = await client.append_batch([b"x"] * BATCH_MAX)

    assert {type(outcome) for outcome in outcomes} == {Acknowledged}
    assert len(group.log) == BATCH_MAX


async def test_a_forgotten_producer_registers_again(group: Group) -> None:
    async with client_of(group) as client:
        await client.append(b"a")
        group.producers.forget_all()
        outcomes = await client.append_batch([b"b", b"c", b"d"])

    assert {type(outcome) for outcome in outcomes} == {Acknowledged}
    assert sorted(group.log) == [b"a", b"b", b"c", b"d"]
    assert len(group.producers) == 2


async def test_a_forgotten_producer_registers_again_only_once(group: Group) -> None:
    async with client_of(group) as client:
        await client.append(b"a")
        group.producers.forget_all()
        await client.append(b"b")
        await client.append(b"c")

    assert group.log == [b"a", b"b", b"c"]
    assert len(group.producers) == 2


async def test_an_append_that_a_forgotten_producer_may_have_made_is_unknown(
    group: Group,
) -> None:
    async with client_of(group) as client:
        await client.append(b"a")
        group["n0"].script.extend([Fault.APPEND_AND_DISCONNECT, Code.UNKNOWN_PRODUCER])
        with pytest.raises(OutcomeUnknownError, match="UNKNOWN_PRODUCER"):
            await client.append(b"b")
        await client.append(b"c")

    assert group.log == [b"a", b"b", b"c"]
    assert len(group.producers) == 2


async def test_a_sequence_that_is_too_old_is_refused_or_unknown(group: Group) -> None:
    async with client_of(group) as client:
        group["n0"].script.extend([Code.SEQUENCE_TOO_OLD])
        with pytest.raises(RefusedError, match="SEQUENCE_TOO_OLD"):
            await client.append(b"a")
        group["n0"].script.extend([Fault.DISCONNECT, Code.SEQUENCE_TOO_OLD])
        with pytest.raises(OutcomeUnknownError, match="SEQUENCE_TOO_OLD"):
            await client.append(b"a")


async def test_an_append_sent_before_its_deadline_is_unknown_after_it(group: Group) -> None:
    group["n0"].script.extend([Fault.APPEND_WITHOUT_ANSWER] * 10)
    async with client_of(group, request_timeout_s=0.05) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.append(b"x", deadline_s=0.5)


async def test_the_producer_registers_again_after_a_window_of_appends_without_effect(
    group: Group,
) -> None:
    async with client_of(group) as client:
        await client.append(b"first")
        group["n0"].script.extend([Code.UNKNOWN_GROUP] * WINDOW)
        refused = await client.append_batch([b"x"] * WINDOW)
        await client.append(b"last")

    assert {type(outcome) for outcome in refused} == {Refused}
    assert group.log == [b"first", b"last"]
    assert len(group.producers) == 2


@pytest.mark.parametrize(
    "behavior",
    [Code.LEADER_PENDING_FULL, Code.NOT_LEADER, Code.WAIT_QUORUM_ACK_TIMEOUT, Fault.DISCONNECT],
    ids=name_of,
)
async def test_a_registration_that_fails_is_retried(group: Group, behavior: Any) -> None:
    group["n0"].registrations.extend([behavior] * 3)
    async with client_of(group) as client:
        await client.append(b"x")

    assert group.log == [b"x"]


async def test_servers_without_idempotent_appends_receive_no_append(group: Group) -> None:
    for member in group.members.values():
        member.supports_producers = False
    async with client_of(group) as client:
        with pytest.raises(RefusedError, match="append without `idempotent`") as caught:
            await client.append(b"x")
        outcomes = await client.append_batch([b"x"] * 5)

    assert caught.value.code is Code.UNSUPPORTED
    assert {outcome.code for outcome in outcomes} == {Code.UNSUPPORTED}
    assert not any(member.appends for member in group.members.values())


async def test_an_append_without_a_leader_certainly_had_no_effect(group: Group) -> None:
    group.elect(None)
    async with client_of(group) as client:
        outcomes = await asyncio.gather(
            *(client.append(b"x", deadline_s=0.1 * number) for number in (1, 2, 3)),
            return_exceptions=True,
        )

    assert {type(outcome) for outcome in outcomes} == {GroupUnreachableError}
    assert not group.log


async def test_a_short_deadline_is_kept_behind_appends_with_longer_ones(group: Group) -> None:
    group["n0"].script.extend([Fault.NO_ANSWER] * 2 * WINDOW)
    async with client_of(group) as client:
        fill = [asyncio.ensure_future(client.append(b"x", deadline_s=20)) for _ in range(WINDOW)]
        await group["n0"].append_received.wait()

        with pytest.raises(GroupUnreachableError):
            await client.append(b"behind", deadline_s=0.2)

        for append in fill:
            append.cancel()
        await asyncio.gather(*fill, return_exceptions=True)


async def test_cancelled_appends_free_the_window(group: Group) -> None:
    group.elect(None)
    async with client_of(group) as client:
        appends = [asyncio.ensure_future(client.append(b"never")) for _ in range(3 * WINDOW)]
        await group["n0"].metadata_requested.wait()
        for append in appends:
            append.cancel()
        await asyncio.gather(*appends, return_exceptions=True)
        group.elect("n1")
        await client.append(b"next")

    assert group.log == [b"next"]


async def test_closing_the_client_ends_appends_that_wait_for_a_registration(group: Group) -> None:
    group["n0"].registrations.append(Fault.NO_ANSWER)
    async with client_of(group) as client:
        appends = [asyncio.ensure_future(client.append(b"x")) for _ in range(2 * WINDOW)]
        await group["n0"].metadata_requested.wait()

    ended = await asyncio.gather(*appends, return_exceptions=True)
    assert {type(error) for error in ended} == {GroupUnreachableError}


async def test_closing_the_client_ends_sent_appends_and_those_that_wait_for_the_window(
    group: Group,
) -> None:
    group["n0"].script.extend([Fault.NO_ANSWER] * 2 * WINDOW)
    async with client_of(group) as client:
        appends = [asyncio.ensure_future(client.append(b"x")) for _ in range(WINDOW + 7)]
        await group["n0"].append_received.wait()

    ended = await asyncio.gather(*appends, return_exceptions=True)
    kinds = [type(error) for error in ended]
    assert set(kinds[WINDOW:]) == {GroupUnreachableError}
    assert kinds[0] is OutcomeUnknownError


def test_at_least_once_and_idempotent_are_mutually_exclusive() -> None:
    with pytest.raises(ValueError, match="mutually exclusive"):
        DLedgerClient(["h:1"], "g", at_least_once=True, idempotent=True)


def test_the_blocking_client_supports_idempotent_appends(group_in_thread: Group) -> None:
    group_in_thread["n0"].script.extend([Fault.APPEND_AND_DISCONNECT])
    with BlockingClient(group_in_thread.servers, "g0", idempotent=True) as client:
        client.append(b"first")
        outcomes = list(client.append_all([b"%d" % number for number in range(3000)]))

    assert {type(outcome) for outcome in outcomes} == {Acknowledged}
    assert len(group_in_thread.log) == 3001


@pytest.mark.usefixtures("group_in_environment")
def test_append_idempotent_appends_each_line_once(group_in_thread: Group, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\nthree\n")
    group_in_thread["n0"].script.extend([Code.SUCCESS, Fault.APPEND_AND_DISCONNECT])

    assert main(["append", "--idempotent", str(path)]) == 0

    assert sorted(group_in_thread.log) == [b"one", b"three", b"two"]


@pytest.mark.usefixtures("group_in_environment")
def test_append_idempotent_reports_servers_without_support(
    group_in_thread: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    for member in group_in_thread.members.values():
        member.supports_producers = False

    assert main(["append", "--idempotent", "--body", "x"]) == 4

    assert "do not support idempotent appends" in capsys.readouterr().err


@pytest.mark.usefixtures("group_in_environment")
def test_append_rejects_idempotent_with_at_least_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["append", "--idempotent", "--at-least-once", "--body", "x"])

    assert caught.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


async def test_an_expired_append_does_not_register_the_producer(
    group: Group,
) -> None:
    async with client_of(group) as client:
        with pytest.raises(GroupUnreachableError):
            await client.append(b"x", deadline_s=1e-9)
        await client.append(b"y")

    assert group.log == [b"y"]
