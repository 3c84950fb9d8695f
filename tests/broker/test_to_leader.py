"""Requests on their way to the leader, over links that break and through leaders that change."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from dledger_broker.door.between_members.door_frames import REGISTER, Way
from dledger_broker.door.between_members.door_numbers import COUNT_MAX
from dledger_broker.door.calls.call import Call
from dledger_broker.door.passing_on import to_leader
from dledger_broker.door.passing_on.waiting import WaitingRequest
from dledger_broker.door.passing_on.waiting_room import CLIENT_BYTES_MAX, CLIENT_MAX, WAITING_MAX
from dledger_broker_client.played_leaders import Channel, Group, Link, call_of
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq import message_batch
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.message_batch import BatchMessage

Code = ResponseCode


def play(seed: int) -> tuple[Group, Channel, int]:
    """Play a random schedule; return the group, the client and the number of its sends."""
    rng, group, channel, sent = random.Random(seed), Group(), Channel(), 0
    for _ in range(rng.randint(20, 200)):
        match rng.randrange(15):
            case 0:
                group.elect(rng, here=rng.random() < 0.2)
            case 1:
                group.lose_leader()
            case 2 if group.links:
                rng.choice(group.links).lose()
            case 3:
                group.now_s += rng.random()
                group.door.tick()
            case 4 | 5:
                group.commit(rng)
            case 6 | 7 | 8 if group.links:
                group.arrive(rng.choice(group.links[-3:]))
            case 9:
                group.makes_links = rng.random() < 0.5
            case 10 if group.links:
                rng.choice(group.links).make()
            case 11:
                group.turn()
            case _:
                for _ in range(rng.randint(1, 5)):
                    sent += 1
                    group.door.take(call_of(group, channel, sent))
    group.settle()
    return group, channel, sent


@pytest.mark.parametrize("seed", range(300))
def test_a_message_is_in_the_log_once_and_its_answer_says_so(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(to_leader, "REQUESTS_MAX", random.Random(seed).choice([1, 2, 64]))
    group, channel, sent = play(seed)

    stored = group.stored()
    assert channel.codes.keys() == set(range(1, sent + 1)), "everything is answered"
    assert set(stored.values()) <= {1}
    for opaque, code in channel.codes.items():
        if code == Code.SUCCESS:
            assert stored[opaque] == 1
        elif code == Code.SERVICE_NOT_AVAILABLE:
            assert stored[opaque] == 0
        else:
            assert code == Code.SYSTEM_ERROR


def test_the_schedules_store_most_messages_and_leave_some_in_doubt() -> None:
    codes: Counter[int] = Counter()
    for seed in range(100):
        codes.update(play(seed)[1].codes.values())

    assert codes[Code.SUCCESS] > codes.total() / 2
    assert codes[Code.SERVICE_NOT_AVAILABLE] > 0
    assert codes[Code.SYSTEM_ERROR] > 0


def wait(group: Group, seconds: float) -> None:
    group.now_s += seconds
    group.door.tick()


def test_a_request_waits_two_seconds_for_a_leader() -> None:
    group, channel = Group(), Channel()
    group.door.take(call_of(group, channel, 1))

    wait(group, 1.99)
    assert channel.codes == {}
    wait(group, 0.02)

    assert channel.codes == {1: Code.SERVICE_NOT_AVAILABLE}


def test_a_message_without_an_answer_is_in_doubt_after_two_and_a_half_seconds() -> None:
    group, channel = Group(), Channel()
    group.elect(random.Random(0), here=False)
    group.door.take(call_of(group, channel, 1))
    link = group.links[0]
    group.arrive(link)
    group.committed = 2
    group.commit(random.Random(0))

    wait(group, 2.4)
    assert channel.codes == {}
    wait(group, 0.2)

    assert channel.codes == {1: Code.SYSTEM_ERROR}


def test_a_request_whose_link_is_never_made_is_refused_and_never_sent() -> None:
    group, channel = Group(), Channel()
    group.makes_links = False
    group.elect(random.Random(0), here=False)
    group.door.take(call_of(group, channel, 1, RequestCode.QUERY_CONSUMER_OFFSET))

    wait(group, 1.99)
    assert channel.codes == {}
    wait(group, 0.02)

    assert channel.codes == {1: Code.SERVICE_NOT_AVAILABLE}
    assert not group.links[0].open


def test_what_may_be_repeated_is_sent_again_without_a_number() -> None:
    group, channel = Group(), Channel()
    group.elect(random.Random(0), here=False)
    group.door.take(call_of(group, channel, 1, RequestCode.QUERY_CONSUMER_OFFSET))
    [request] = group.links[0].arriving
    group.links[0].lose()
    group.door.tick()

    [again] = group.links[1].arriving
    assert (request.producer, again.producer) == (-1, -1)
    assert again.opaque == 1


def test_only_so_many_requests_wait() -> None:
    group, clients, last = Group(), [Channel(1), Channel(2)], Channel(3)
    for opaque in range(CLIENT_MAX):
        for channel in clients:
            group.door.take(call_of(group, channel, opaque))
    group.door.take(call_of(group, last, 1))

    assert last.codes == {1: Code.SERVICE_NOT_AVAILABLE}
    assert group.door.count == WAITING_MAX
    group.door.close()
    assert [len(channel.codes) for channel in clients] == [CLIENT_MAX, CLIENT_MAX]
    assert group.door.count == 0


def test_one_client_leaves_room_for_others() -> None:
    group, busy, other = Group(), Channel(1), Channel(2)
    for opaque in range(CLIENT_MAX + 1):
        group.door.take(call_of(group, busy, opaque))
    group.door.take(call_of(group, other, 1))

    assert busy.codes == {CLIENT_MAX: Code.SERVICE_NOT_AVAILABLE}
    assert other.codes == {}


def test_the_ext_fields_of_requests_that_wait_are_counted() -> None:
    group, channel = Group(), Channel()
    for opaque in range(2000):
        ext = {"i": "p" * 30_000}
        command = RemotingCommand(
            code=RequestCode.SEND_MESSAGE_V2, opaque=opaque, ext_fields=ext, body=b"x"
        )
        group.door.take(Call(channel, command, group.door, group.now_s))

    assert CLIENT_BYTES_MAX * 0.9 < group.door.count * 30_000 < CLIENT_BYTES_MAX


def test_a_request_that_this_member_began_to_serve_still_ends_in_time() -> None:
    group, channel = Group(), Channel()
    begun = call_of(group, channel, 1)
    wait(group, 1.0)
    group.door.take(call_of(group, channel, 2))
    group.door.turned(begun, Way.NOT_STORED)

    wait(group, 1.1)

    assert channel.codes == {1: Code.SERVICE_NOT_AVAILABLE}


@pytest.mark.parametrize(
    ("code", "field"), [(RequestCode.SEND_MESSAGE_V2, "m"), (RequestCode.SEND_MESSAGE, "batch")]
)
def test_a_batch_gets_a_number_for_each_message_however_its_flag_is_written(
    code: RequestCode, field: str
) -> None:
    group, channel = Group(), Channel()
    body = message_batch.encode(BatchMessage(0, b"%d" % n, b"") for n in range(3))
    for flag in ("true", "TRUE", "True", "false", "FALSE"):
        command = RemotingCommand(code=code, opaque=1, ext_fields={field: flag}, body=body)
        waiting = WaitingRequest(Call(channel, command, group.door, 0.0), 0)

        assert waiting.count == (3 if flag.lower() == "true" else 1)


def test_a_request_that_fits_no_frame_is_refused_in_words() -> None:
    group, channel = Group(), Channel()
    group.elect(random.Random(0), here=False)
    command = RemotingCommand(
        code=RequestCode.UPDATE_CONSUMER_OFFSET, opaque=1, ext_fields={}, body=bytes(16 << 20)
    )
    group.door.take(Call(channel, command, group.door, group.now_s))

    assert channel.codes == {1: Code.MESSAGE_ILLEGAL}
    assert "at most" in (channel.remarks[1] or "")
    assert group.links[0].arriving == []


def test_a_request_that_another_member_passed_on_is_not_passed_on_again() -> None:
    class PassedOn(Call):
        is_passed_on = True
        ways: Sequence[Way] = ()

        def turned(self, way: Way) -> None:
            self.ways = (*self.ways, way)

    group, channel = Group(), Channel()
    command = RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, opaque=1, ext_fields={})
    call = PassedOn(channel, command, group.door, group.now_s)
    group.elect(random.Random(0), here=False)
    group.door.take(call)

    assert call.ways == (Way.NOT_STORED,)
    assert group.door.count == 0


def send_one(group: Group, channel: Channel) -> Link:
    """Let a leader get a message under a number; return the link, whose request has arrived."""
    group.elect(random.Random(0), here=False)
    group.door.take(call_of(group, channel, 1))
    [link] = group.links
    group.arrive(link)
    group.committed = 2
    group.commit(random.Random(0))
    return link


def test_a_message_that_may_be_stored_gets_no_second_number_if_the_first_is_forgotten() -> None:
    group, channel = Group(), Channel()
    send_one(group, channel).lose()
    group.door.tick()
    [_, link] = group.links
    group.answer(link, link.arriving[0].number, Way.STRANGE_NUMBER)

    assert channel.codes == {1: Code.SYSTEM_ERROR}


def test_a_message_whose_number_is_forgotten_is_sent_again_under_another() -> None:
    group, channel = Group(), Channel()
    link = send_one(group, channel)
    group.answer(link, link.arriving[0].number, Way.STRANGE_NUMBER)
    group.door.tick()

    assert [request.code for request in link.arriving] == [310, REGISTER]
    assert channel.codes == {}


def pass_on(group: Group, seconds: float) -> None:
    """Let all links deliver what they have, tick by tick, while nothing is committed."""
    for _ in range(round(seconds / 0.05)):
        group.run_all_turns()
        for link in group.links:
            while link.open and link.arriving:
                group.arrive(link)
        wait(group, 0.05)


def test_a_message_that_waits_for_its_quorum_is_repeated_after_growing_pauses() -> None:
    group, channel = Group(), Channel()
    send_one(group, channel)
    for opaque in range(2, 102):
        group.door.take(call_of(group, channel, opaque))
    pass_on(group, 0.05)
    group.links[0].lose()
    before = group.door.counters.values["requests_resent"]
    pass_on(group, 2.2)
    copies = (group.door.counters.values["requests_resent"] - before) / 101

    assert 5 <= copies < 10
    assert group.door.counters.values["requests_passed_on"] == 101


def test_a_repeated_message_learns_of_a_commit_that_comes_just_in_time() -> None:
    for late_s in (0.0, 0.3, 0.9, 1.5, 2.0):
        group, channel = Group(), Channel()
        link = send_one(group, channel)
        pass_on(group, 0.05)
        link.lose()
        pass_on(group, late_s)
        group.commit_up_to(len(group.tails[1].entries))
        pass_on(group, 0.4)

        assert channel.codes == {1: Code.SUCCESS}


def test_numbers_of_messages_that_this_member_served_as_the_leader_are_free_again() -> None:
    group, channel = Group(), Channel()
    for first in range(1, 6 * COUNT_MAX, COUNT_MAX // 2):
        group.elect(random.Random(0), here=False)
        for opaque in range(first, first + COUNT_MAX // 2):
            group.door.take(call_of(group, channel, opaque))
        group.arrive(group.links[-1])
        group.committed = len(group.tails[group.term].entries)
        group.commit(random.Random(0))
        group.run_all_turns()
        group.elect(random.Random(0), here=True)
        group.run_all_turns()

    registrations = [
        entry for entry in group.tails[group.term].entries if entry and not entry.sequence
    ]
    assert set(channel.codes.values()) == {Code.SUCCESS}
    assert len(registrations) == 1
