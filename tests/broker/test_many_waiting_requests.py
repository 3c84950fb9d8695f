"""Thousands of requests that wait for a leader: each turn serves, sends or ends a slice of them."""

import itertools
import random
from collections.abc import Callable

import pytest

from dledger_broker.door.passing_on.slices import BYTES_MAX, REQUESTS_MAX
from dledger_broker.door.passing_on.waiting_room import CLIENT_MAX
from dledger_broker_client.played_leaders import Channel, Group, call_of
from dledger_formats.rocketmq import message_batch
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.message_batch import BatchMessage
from dledger_node.slices import PER_TURN

OFFSETS = RequestCode.QUERY_CONSUMER_OFFSET


def waiting_group(count: int, *, body_bytes: int = 1) -> tuple[Group, Channel]:
    """Return a group without a leader in which so many requests wait."""
    group, channel = Group(), Channel()
    for opaque in range(1, count + 1):
        group.door.take(call_of(group, channel, opaque, OFFSETS, b"x" * body_bytes))
    return group, channel


def test_a_new_leader_serves_a_slice_in_each_turn_and_all_in_order() -> None:
    group, channel = waiting_group(CLIENT_MAX)

    group.elect(random.Random(0), here=True)
    served = [len(channel.codes)]
    while group.turn():
        served.append(len(channel.codes))

    assert served[0] == REQUESTS_MAX
    assert max(after - before for before, after in itertools.pairwise(served)) == REQUESTS_MAX
    assert list(channel.codes) == list(range(1, CLIENT_MAX + 1))


def test_a_slice_ends_with_the_bytes_that_a_turn_may_handle() -> None:
    group, channel = waiting_group(8, body_bytes=BYTES_MAX)

    group.elect(random.Random(0), here=True)

    assert len(channel.codes) == 1


def test_a_slice_ends_with_the_messages_that_a_turn_may_handle() -> None:
    """Three batches of 1,024 messages once were one slice: it took 32 ms."""
    group, channel = Group(), Channel()
    body = message_batch.encode(BatchMessage(0, b"x", b"") for _ in range(REQUESTS_MAX))
    for opaque in range(1, 4):
        group.door.take(call_of(group, channel, opaque, RequestCode.SEND_BATCH_MESSAGE, body))

    group.elect(random.Random(0), here=True)
    served = [len(channel.codes)]
    while group.turn():
        served.append(len(channel.codes))

    assert served == [1, 2, 3]


def test_a_follower_sends_a_slice_in_each_turn_and_all_in_order() -> None:
    group, _ = waiting_group(CLIENT_MAX)

    group.elect(random.Random(0), here=False)
    [link] = group.links
    assert len(link.arriving) == REQUESTS_MAX
    group.run_all_turns()

    assert [request.opaque for request in link.arriving] == list(range(1, CLIENT_MAX + 1))


@pytest.mark.parametrize("here", [True, False])
def test_the_requests_that_come_between_two_slices_do_not_keep_the_room_full(here: bool) -> None:
    group, channel = waiting_group(10 * REQUESTS_MAX)
    group.elect(random.Random(0), here=here)
    opaques, turns = itertools.count(10 * REQUESTS_MAX + 1), 0

    while group.turn() and turns < 20:
        turns += 1
        for opaque in itertools.islice(opaques, 2 * REQUESTS_MAX):
            group.door.take(call_of(group, channel, opaque, OFFSETS))

    handled = list(channel.codes) if here else [each.opaque for each in group.links[0].arriving]
    assert handled == list(range(1, next(opaques)))
    assert turns < 10
    assert set(channel.codes.values()) <= {ResponseCode.SUCCESS}, "none is refused"


def test_a_leader_that_goes_between_two_slices_serves_no_further_request() -> None:
    group, channel = waiting_group(3 * REQUESTS_MAX)
    group.elect(random.Random(0), here=True)

    group.lose_leader()
    group.run_all_turns()

    assert len(channel.codes) == REQUESTS_MAX
    assert group.door.count == 2 * REQUESTS_MAX


class CountingChannel(Channel):
    """A connection that counts what is written to it."""

    writes = 0

    def send(self, data: bytes) -> None:
        self.writes += 1
        super().send(data)


def late(group: Group) -> None:
    """Let the time of all that waits be up."""
    group.now_s = 2.1
    group.door.tick()


def unanswered(group: Group) -> None:
    """Let a leader get all that waits, and answer none of it in time."""
    group.elect(random.Random(0), here=False)
    group.run_all_turns()
    group.links[0].greet()
    group.now_s = 2.6
    group.door.tick()


def refused(group: Group) -> None:
    """Let a leader get all that waits, which takes no requests from other members."""
    group.elect(random.Random(0), here=False)
    group.run_all_turns()
    group.door.refused(range(1, len(group.links[0].arriving) + 1))


@pytest.mark.parametrize("end", [late, unanswered, refused])
def test_requests_that_end_without_a_leader_are_answered_a_slice_in_each_turn(
    end: Callable[[Group], None],
) -> None:
    """10,000 of them once took one turn of 90 ms, with a write for each."""
    group, channels = Group(), (CountingChannel(1), CountingChannel(2))
    for opaque in range(CLIENT_MAX):
        for channel in channels:
            group.door.take(call_of(group, channel, opaque, OFFSETS))

    end(group)
    ended = [0, sum(len(channel.codes) for channel in channels)]
    while group.turn():
        ended.append(sum(len(channel.codes) for channel in channels))

    assert max(after - before for before, after in itertools.pairwise(ended)) == PER_TURN
    for channel in channels:
        assert list(channel.codes.values()) == [ResponseCode.SERVICE_NOT_AVAILABLE] * CLIENT_MAX
        assert channel.writes <= 2 * CLIENT_MAX / PER_TURN
    assert group.door.count == 0


def test_requests_that_have_not_ended_when_a_member_closes_are_answered_then() -> None:
    group, channel = waiting_group(CLIENT_MAX)
    late(group)
    assert len(channel.codes) == PER_TURN

    group.door.close()

    assert len(channel.codes) == CLIENT_MAX
    assert group.door.count == 0
