"""Leaders from which nothing comes, and those that only take their time."""

import random

from dledger_broker.door.between_members.door_frames import Way
from dledger_broker.door.between_members.hearing import GRACE_S
from dledger_broker.door.between_members.refusals import AVOIDED_S
from dledger_broker_client.played_leaders import Channel, Group, call_of
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode

Code = ResponseCode
QUERY = RequestCode.QUERY_CONSUMER_OFFSET


def ask(group: Group, channel: Channel, opaque: int) -> None:
    group.door.take(call_of(group, channel, opaque, QUERY))


def wait(group: Group, seconds: float) -> None:
    group.now_s += seconds
    group.door.tick()


def test_a_leader_that_holds_requests_but_answers_the_greeting_is_asked_again() -> None:
    group, channel = Group(), Channel()
    group.elect(random.Random(0), here=False)
    ask(group, channel, 1)
    wait(group, 0.001)
    [link] = group.links
    link.greet()
    wait(group, 2.6)
    ask(group, channel, 2)

    assert channel.codes == {1: Code.SERVICE_NOT_AVAILABLE}
    assert [each.opaque for each in link.arriving] == [1, 2]
    assert link.open


def test_a_leader_that_tells_of_its_missing_quorum_just_too_late_keeps_its_link() -> None:
    group, channel = Group(), Channel()
    group.elect(random.Random(0), here=False)
    ask(group, channel, 1)
    ask(group, channel, 2)
    wait(group, 2.5)
    [link] = group.links
    group.now_s += 0.02
    group.answer(link, link.arriving[0].number, Way.IN_DOUBT)
    wait(group, GRACE_S)
    ask(group, channel, 3)

    assert link.open
    assert [each.opaque for each in link.arriving] == [1, 2, 3]


def mute() -> tuple[Group, Channel]:
    """Let a leader stay silent, the answer to the HELLO included, until its time is up."""
    group, channel = Group(), Channel()
    group.elect(random.Random(0), here=False)
    ask(group, channel, 1)
    wait(group, 2.6)
    wait(group, GRACE_S)
    ask(group, channel, 2)
    assert "does not answer this member" in (channel.remarks[2] or "")
    return group, channel


def test_a_silent_leader_is_asked_again_once_it_answers_the_greeting() -> None:
    group, channel = mute()
    [_, link] = group.links
    link.greet()
    ask(group, channel, 3)

    assert [each.opaque for each in link.arriving] == [3]


def test_a_silent_leader_is_asked_again_once_it_leads_anew() -> None:
    group, channel = mute()
    group.door.leader_changed()
    ask(group, channel, 3)

    assert 3 not in channel.codes


def test_one_connection_is_tried_while_a_silent_leader_is_not_asked() -> None:
    group, channel = mute()
    group.links[1].lose()
    for opaque in range(3, 30):
        wait(group, 0.05)
        ask(group, channel, opaque)
    assert len(group.links) == 2

    wait(group, AVOIDED_S)
    ask(group, channel, 30)

    assert [each.opaque for each in group.links[2].arriving] == [30]


def test_a_link_over_which_other_answers_come_is_kept() -> None:
    group, channel = Group(), Channel()
    group.elect(random.Random(0), here=False)
    for opaque in (1, 2):
        group.door.take(call_of(group, channel, opaque, QUERY))
    [link] = group.links
    group.now_s = 1.0
    group.answer(link, link.arriving[1].number, Way.ANSWERED, 2)
    group.now_s = 2.6
    group.door.tick()

    assert channel.codes == {1: Code.SERVICE_NOT_AVAILABLE, 2: Code.SUCCESS}
    assert link.open


def test_a_message_on_a_silent_link_is_in_doubt_for_the_right_reason() -> None:
    group, channel = Group(), Channel()
    group.elect(random.Random(0), here=False)
    group.door.take(call_of(group, channel, 1))
    group.arrive(group.links[0])
    group.committed = 2
    group.commit(random.Random(0))
    group.now_s = 2.6
    group.door.tick()

    assert channel.codes == {1: Code.SYSTEM_ERROR}
    assert channel.remarks[1] == "the leader did not answer in time; the message may be stored"
    wait(group, GRACE_S)
    assert not group.links[0].open
