"""Registrations of a member at the leader that get no answer, are refused, or come too early."""

import asyncio
import random
from collections import Counter
from typing import cast

import pytest

from dledger_broker.door.between_members import door_frames
from dledger_broker.door.between_members.door_frames import REGISTER, DoorAnswer, DoorRequest, Way
from dledger_broker.door.between_members.registrations import ANSWER_S
from dledger_broker.door.calls.call import Call
from dledger_broker.door.passing_on.from_doors import FromDoors
from dledger_broker_client.played_leaders import Channel, Group, Link, call_of
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_node.embedding import Member
from dledger_node.remoting.connection_views import PeerConnection

Code = ResponseCode
FULL = DLedgerResponseCode.DISK_FULL


def begin() -> tuple[Group, Channel]:
    """Let a member begin to register, for a message with the opaque 1."""
    group, channel = Group(), Channel()
    group.elect(random.Random(0), here=False)
    group.door.take(call_of(group, channel, 1))
    return group, channel


def wait(group: Group, seconds: float) -> None:
    group.now_s += seconds
    group.door.tick()


def commit_all(group: Group) -> None:
    group.commit_up_to(len(group.tails[group.term].entries))


def refuse(link: Link, frame: bytes) -> None:
    """Answer the registration that arrives next."""
    [register] = [each for each in link.arriving if each.code == REGISTER]
    link.arriving.clear()
    link.owner.answered([DoorAnswer(register.number, Way.NOT_STORED, frame)])


def registrations(group: Group) -> int:
    return sum(each.code == REGISTER for link in group.links for each in link.arriving)


def test_a_registration_that_is_lost_costs_a_second() -> None:
    group, channel = begin()
    group.links[0].arriving.clear()
    wait(group, 0.9)
    assert group.links[0].open

    wait(group, 0.2)
    wait(group, 0.1)
    assert not group.links[0].open
    group.settle()

    assert channel.codes == {1: Code.SUCCESS}


def test_a_registration_that_a_slow_quorum_commits_gives_its_numbers() -> None:
    group, channel = begin()
    wait(group, 0.001)
    group.arrive(group.links[0])
    for _ in range(24):
        wait(group, 0.05)
    commit_all(group)
    [link] = group.links
    group.arrive(link)
    commit_all(group)

    assert channel.codes == {1: Code.SUCCESS}


def test_sends_succeed_while_every_commit_takes_more_than_a_second() -> None:
    group, channel = begin()
    lengths: list[int] = []
    for opaque in range(2, 202):
        group.door.take(call_of(group, channel, opaque))
        while group.links[-1].open and group.links[-1].arriving:
            group.arrive(group.links[-1])
        lengths.append(len(group.tails[1].entries))
        if len(lengths) > 24:  # entries are committed 24 steps of 0.05 s after they came
            group.commit_up_to(lengths[-25])
        wait(group, 0.05)

    codes = Counter(channel.codes.values())
    assert codes[Code.SUCCESS] > 150
    assert sum(not entry.sequence for entry in group.tails[1].entries if entry) == 1
    assert len(group.links) == 1


def test_numbers_that_come_late_are_used() -> None:
    group, channel = begin()
    [link] = group.links
    group.now_s += 0.001
    link.greet()
    wait(group, ANSWER_S)
    assert channel.codes == {1: Code.SERVICE_NOT_AVAILABLE}
    group.door.take(call_of(group, channel, 3))
    assert registrations(group) == 1
    [register] = [each for each in link.arriving if each.code == REGISTER]
    group.answer(link, register.number, Way.STORED, identity=0)

    assert [each.opaque for each in link.arriving if each.code != REGISTER] == [3]


def test_requests_that_need_no_number_do_not_wait_for_one() -> None:
    group, channel = begin()
    for opaque, code in enumerate((RequestCode.HEART_BEAT, RequestCode.QUERY_CONSUMER_OFFSET), 2):
        group.door.take(call_of(group, channel, opaque, code))

    assert [each.code for each in group.links[0].arriving] == [REGISTER, 34, 14]


def test_messages_that_wait_for_numbers_are_sent_in_their_order() -> None:
    group, channel = begin()
    group.door.take(call_of(group, channel, 2, RequestCode.HEART_BEAT))
    for opaque in (3, 4):
        group.door.take(call_of(group, channel, opaque))
    group.arrive(group.links[0])
    group.committed = len(group.tails[1].entries)
    group.commit(random.Random(0))

    assert [each.opaque for each in group.links[0].arriving] == [2, 1, 3, 4]


def test_a_full_disk_is_the_answer_to_the_messages_that_wait_for_numbers() -> None:
    group, channel = begin()
    refuse(group.links[0], door_frames.encode_refusal(FULL))

    assert channel.codes == {1: Code.SERVICE_NOT_AVAILABLE}
    assert "DISK_FULL" in (channel.remarks[1] or "")
    assert group.door.count == 0


def test_a_refused_registration_is_repeated_at_growing_intervals() -> None:
    group, channel = begin()
    asked = 0
    for opaque in range(2, 402):
        if registrations(group):
            asked += 1
            refuse(group.links[0], door_frames.encode_refusal(FULL))
        group.door.take(call_of(group, channel, opaque))
        wait(group, 0.01)

    assert asked in range(5, 9), "it is asked for 4 s"


@pytest.mark.parametrize("frame", [b"", door_frames.encode_refusal(DLedgerResponseCode.NOT_LEADER)])
def test_messages_wait_if_another_leader_may_give_numbers(frame: bytes) -> None:
    group, channel = begin()
    refuse(group.links[0], frame)
    assert channel.codes == {}
    assert registrations(group) == 0

    wait(group, 0.1)
    assert registrations(group) == 1
    group.settle()

    assert channel.codes == {1: Code.SUCCESS}


def test_the_next_leader_is_asked_at_once() -> None:
    group, _ = begin()
    for _ in range(2):
        refuse(group.links[0], b"")
        wait(group, 0.2)
    group.elect(random.Random(0), here=False)

    assert [each.code for each in group.links[-1].arriving] == [REGISTER]


@pytest.mark.parametrize("frame", [b"", bytes(3), bytes(8)])
def test_a_refusal_that_cannot_be_read_is_a_format_error(frame: bytes) -> None:
    with pytest.raises(FormatError):
        door_frames.decode_refusal(frame)


def test_the_code_of_a_refusal_is_read_as_it_was_written() -> None:
    for code in DLedgerResponseCode:
        assert door_frames.decode_refusal(door_frames.encode_refusal(code)) is code
    assert door_frames.decode_refusal(b"\x7f" * 4) is DLedgerResponseCode.UNKNOWN


class Peer:
    """The connection of another member."""

    def __init__(self) -> None:
        self.answers: list[DoorAnswer] = []

    def send(self, data: bytes) -> None:
        for command in FrameDecoder().feed(data):
            self.answers += door_frames.decode_answers(command.body)


def test_a_leader_lets_others_ask_again_until_its_queues_are_open() -> None:
    request = DoorRequest(7, RequestCode.SEND_MESSAGE_V2, 1, 0, 0, {}, b"", bytes(8), 1, 1, 1)
    [command] = FrameDecoder().feed(door_frames.encode_requests([request]))
    taken: list[Call] = []

    async def serve() -> list[DoorAnswer]:
        peer = Peer()
        doors = FromDoors(cast("Member", None), Group().door)
        doors.serve(command, cast("PeerConnection", peer))
        doors.open(taken.append)
        doors.serve(command, cast("PeerConnection", peer))
        await asyncio.sleep(0)
        return peer.answers

    assert asyncio.run(serve()) == [DoorAnswer(7, Way.NOT_STORED, b"")]
    assert [call.command for call in taken] == [
        RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, opaque=1, ext_fields={})
    ]
