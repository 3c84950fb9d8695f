"""Requests without numbers that are sent again: none may undo a later one."""

import random

import pytest

from dledger_broker.door.between_members.door_frames import DoorAnswer, Way
from dledger_broker.door.calls.call import Call
from dledger_broker_client.played_leaders import Channel, Group, Link
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode

Code = ResponseCode
OFFSET = RequestCode.UPDATE_CONSUMER_OFFSET
LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
HEARTBEAT, LEAVING = RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT
PAIRS = [(OFFSET, OFFSET), (LOCK, UNLOCK), (UNLOCK, LEAVING), (HEARTBEAT, LEAVING)]


def take(group: Group, channel: Channel, opaque: int, code: RequestCode, queue: int = 0) -> None:
    ext = {"consumerGroup": "g", "topic": "t", "queueId": str(queue), "commitOffset": str(opaque)}
    command = RemotingCommand(code=code, opaque=opaque, ext_fields=ext)
    group.now_s += 0.001
    group.door.take(Call(channel, command, group.door, group.now_s))


def begin() -> tuple[Group, Channel]:
    group = Group()
    group.elect(random.Random(0), here=False)
    return group, Channel()


def turn_back(link: Link, opaque: int) -> None:
    """Let the leader turn a request back, whose copy has arrived."""
    [request] = [each for each in link.arriving if each.opaque == opaque]
    link.arriving.remove(request)
    link.owner.answered([DoorAnswer(request.number, Way.NOT_STORED, b"")])


def opaques(link: Link) -> list[int]:
    return [each.opaque for each in link.arriving]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_request_waits_for_an_older_one_that_must_be_sent_again(
    first: RequestCode, second: RequestCode
) -> None:
    group, channel = begin()
    take(group, channel, 1, first)
    [link] = group.links
    turn_back(link, 1)
    take(group, channel, 2, second)
    assert opaques(link) == []

    group.door.tick()

    assert opaques(link) == [1, 2]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_request_is_not_sent_again_after_a_newer_one(
    first: RequestCode, second: RequestCode
) -> None:
    group, channel = begin()
    take(group, channel, 1, first)
    take(group, channel, 2, second)
    [link] = group.links
    turn_back(link, 1)
    group.door.tick()

    assert opaques(link) == [2]
    assert channel.codes == {1: Code.SERVICE_NOT_AVAILABLE}
    assert "a later request" in (channel.remarks[1] or "")


def test_a_request_waits_while_an_older_one_pauses() -> None:
    group, channel = begin()
    take(group, channel, 1, OFFSET)
    [link] = group.links
    for _ in range(3):
        turn_back(link, 1)
        group.now_s += 0.11
        group.door.tick()
    turn_back(link, 1)
    take(group, channel, 2, OFFSET)
    group.door.tick()
    assert opaques(link) == []

    group.now_s += 0.4
    group.door.tick()

    assert opaques(link) == [1, 2]


@pytest.mark.parametrize(("first", "second"), [(HEARTBEAT, LOCK), (UNLOCK, HEARTBEAT)])
def test_heartbeats_and_locks_may_follow_each_other(
    first: RequestCode, second: RequestCode
) -> None:
    group, channel = begin()
    take(group, channel, 1, first)
    take(group, channel, 2, second)
    [link] = group.links
    turn_back(link, 1)
    group.door.tick()

    assert opaques(link) == [2, 1]
    assert channel.codes == {}


def test_a_heartbeat_is_not_sent_again_after_its_client_has_left() -> None:
    group, channel = begin()
    for opaque, code in enumerate((HEARTBEAT, LEAVING, LOCK), 1):
        take(group, channel, opaque, code)
    [link] = group.links
    turn_back(link, 1)
    group.door.tick()

    assert opaques(link) == [2, 3]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_requests_are_sent_to_the_next_leader_in_their_order(
    first: RequestCode, second: RequestCode
) -> None:
    group, channel = begin()
    for opaque, code in enumerate((first, second, first, second), 1):
        take(group, channel, opaque, code)
    group.links[0].lose()
    group.door.tick()

    assert opaques(group.links[1]) == [1, 2, 3, 4]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_requests_that_a_leader_turns_back_one_by_one_are_sent_again_in_their_order(
    first: RequestCode, second: RequestCode
) -> None:
    group, channel = begin()
    for opaque, code in enumerate((first, second, first), 1):
        take(group, channel, opaque, code)
    [link] = group.links
    for opaque in (2, 1, 3):
        turn_back(link, opaque)
    group.door.tick()

    assert opaques(link) == [1, 2, 3]


@pytest.mark.parametrize("seed", range(100))
def test_no_offset_has_its_effect_after_a_newer_one(seed: int) -> None:
    rng = random.Random(seed)
    group, channel = begin()
    effects: list[int] = []
    for opaque in range(1, 60):
        link = group.links[-1] if group.links else None
        match rng.randrange(6):
            case 0 if link and link.arriving:
                turn_back(link, rng.choice(opaques(link)))
            case 1 if link and link.arriving:
                request = link.arriving.pop(0)
                effects.append(request.opaque)
                group.answer(link, request.number, Way.ANSWERED, request.opaque)
            case 2 if link:
                link.arriving.clear()
                link.lose()
            case 3:
                group.now_s += rng.choice((0.0, 0.05, 0.2))
                group.door.tick()
            case _:
                take(group, channel, opaque, OFFSET)

    assert effects == sorted(effects)
    group.door.close()
    assert group.door.count == 0


def test_requests_about_other_things_do_not_wait() -> None:
    group, channel = begin()
    take(group, channel, 1, OFFSET)
    [link] = group.links
    turn_back(link, 1)
    take(group, channel, 2, OFFSET, queue=1)
    take(group, channel, 3, LOCK)
    take(group, channel, 4, RequestCode.QUERY_CONSUMER_OFFSET)

    assert opaques(link) == [2, 3, 4]


def test_the_leader_serves_no_request_before_an_older_one_that_it_turned_back() -> None:
    class TurnsOneBack(Group):
        """Its leader turns the first request back."""

        has_turned = False

        def serve(self, call: Call) -> None:
            if self.has_turned:
                call.answer(Code.SUCCESS)
            else:
                self.has_turned = True
                call.turned(Way.NOT_STORED)

    group, channel = TurnsOneBack(), Channel()
    group.elect(random.Random(0), here=True)
    take(group, channel, 1, LOCK)
    take(group, channel, 2, UNLOCK)
    assert channel.codes == {}
    group.door.tick()

    assert list(channel.codes) == [1, 2]
