"""The outcomes of the sends of a `Sender`, and whether each answer was right."""

from collections import Counter
from collections.abc import Sequence

from dledger_broker_client.client import BrokerClient, bodies, number
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import ResponseCode


def all_bodies(client: BrokerClient, topic: str, count: int) -> list[bytes]:
    """Return the bodies of queue 0 once this member has at least `count` messages in it."""
    client.wait_until_visible(topic, count)
    pulled: list[bytes] = []
    while found := bodies(client.pull(topic, len(pulled))):
        pulled += found
    return pulled


def stored(answers: Sequence[RemotingCommand]) -> list[int]:
    """Return the numbers of the sends that were acknowledged."""
    return [n for n, answer in enumerate(answers) if answer.code == ResponseCode.SUCCESS]


def count_at_least(answers: Sequence[RemotingCommand]) -> int:
    """Return how many messages the queue must have; those in doubt may be stored, too."""
    return max((number(answers[n], "queueOffset") for n in stored(answers)), default=-1) + 1


def assert_answers_were_right(answers: Sequence[RemotingCommand], pulled: list[bytes]) -> None:
    """Check that each acknowledged message is where its answer says, no message is stored twice,
    and no refused message is stored at all.
    """
    times = Counter(pulled)
    assert set(times.values()) <= {1}, "no message is stored twice"
    for n in stored(answers):
        assert pulled[number(answers[n], "queueOffset")] == b"%d" % n
    for n, answer in enumerate(answers):
        if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            assert times[b"%d" % n] == 0, "a message that was refused is not stored"
