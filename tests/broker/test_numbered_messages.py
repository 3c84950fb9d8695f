"""Messages that reach the leader under a number, more than once."""

from collections.abc import Iterator

import pytest

from dledger_broker.door.between_members.door_frames import Way
from dledger_broker_client.client import BrokerClient, bodies, number
from dledger_broker_client.door import DoorClient
from dledger_formats.rocketmq import message_batch
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.message_batch import BatchMessage
from tools.groups.broker_group import BrokerGroup

pytestmark = pytest.mark.group


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerGroup]:
    """Three members, one of which is stopped: the tests send in its name."""
    with BrokerGroup(tmp_path_factory.mktemp("numbered")) as running:
        leader = running.master()
        running.stop(next(member for member in running.peers if member != leader))
        yield running


@pytest.fixture
def door(group: BrokerGroup) -> Iterator[DoorClient]:
    """A connection in the name of the stopped member."""
    leader = group.master()
    stopped = next(member for member in group.peers if member not in group.running())
    with DoorClient(group, stopped, leader) as client:
        yield client


@pytest.fixture
def leader(group: BrokerGroup) -> Iterator[BrokerClient]:
    """A connection to the leader."""
    with BrokerClient(group.broker_addresses[group.master()]) as client:
        yield client


def test_a_message_that_comes_again_is_answered_with_its_place(
    door: DoorClient, leader: BrokerClient
) -> None:
    producer = door.register()
    first = door.send("again", b"one", producer, 1)
    other = door.send("again", b"two", producer, 2)
    again = door.send("again", b"one", producer, 1)
    leader.wait_until_visible("again", 2)

    assert first[0] is other[0] is again[0] is Way.STORED
    assert first[1] is not None
    assert again[1] is not None
    assert again[1].ext_fields == first[1].ext_fields
    assert bodies(leader.pull("again")) == [b"one", b"two"]


def test_of_a_batch_that_comes_again_only_the_missing_messages_are_written(
    door: DoorClient, leader: BrokerClient
) -> None:
    producer = door.register()
    door.send("parts", b"two", producer, 2)
    batch = message_batch.encode(BatchMessage(0, body, b"") for body in (b"one", b"two", b"three"))
    way, answer = door.send("parts", batch, producer, 1, 3)
    again = door.send("parts", batch, producer, 1, 3)
    leader.wait_until_visible("parts", 3)
    pulled = leader.pull("parts")

    assert bodies(pulled) == [b"two", b"one", b"three"]
    assert way is again[0] is Way.STORED
    assert answer is not None
    assert answer.ext_fields is not None
    assert len(set(answer.ext_fields["msgId"].split(","))) == 3
    assert number(answer, "queueOffset") == 1, "that of the first message"
    assert again[1] is not None
    assert again[1].ext_fields == answer.ext_fields


def test_a_message_under_a_number_that_nobody_registered_is_not_written(
    door: DoorClient, leader: BrokerClient
) -> None:
    leader.send("strange")
    way, answer = door.send("strange", b"other", 1 << 40, 1)
    leader.wait_until_visible("strange", 1)

    assert (way, answer) == (Way.STRANGE_NUMBER, None)
    assert bodies(leader.pull("strange")) == [b"body"]


def test_a_batch_with_too_few_numbers_is_refused(door: DoorClient) -> None:
    batch = message_batch.encode(BatchMessage(0, body, b"") for body in (b"one", b"two", b"three"))
    way, answer = door.send("counted", batch, door.register(), 1, 2)

    assert way is Way.ANSWERED
    assert answer is not None
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark == "3 messages have 2 numbers"


def test_a_message_that_comes_again_shares_the_outcome_of_the_first_copy(
    group: BrokerGroup, door: DoorClient, leader: BrokerClient
) -> None:
    """Its entry is in the log and waits for a quorum; the second copy does, too."""
    producer = door.register()
    leader.send("shared")
    [follower] = (member for member in group.running() if member != group.master())
    group.freeze(follower)
    try:
        copies = [door.begin_send("shared", b"one", producer, 1) for _ in range(2)]
        batch = message_batch.encode(BatchMessage(0, body, b"") for body in (b"two", b"three"))
        copies += [door.begin_send("shared", batch, producer, 2, 2) for _ in range(2)]
        door.note_presence()  # is answered without a quorum, after the leader has taken the copies
    finally:
        group.thaw(follower)
    ways, answers = zip(*map(door.answer, copies), strict=True)
    leader.wait_until_visible("shared", 4)

    assert set(ways) == {Way.STORED}
    fields = [answer.ext_fields for answer in answers]
    assert fields[0] == fields[1]
    assert fields[2] == fields[3]
    assert bodies(leader.pull("shared")) == [b"body", b"one", b"two", b"three"]
