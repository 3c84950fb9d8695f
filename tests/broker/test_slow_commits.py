"""Sends through a follower while every commit is slow: none is lost, and none is stored twice."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, bodies, number
from dledger_broker_client.sender import Sender
from dledger_formats.rocketmq.codes import ResponseCode
from tools.groups.broker_group import BrokerGroup

pytestmark = pytest.mark.group

SENDS = 1200
SLOW_S = 1.2
"""Longer than a member waits for the first sign of life of a leader."""
AWAKE_S = 0.3


@contextlib.contextmanager
def slow(group: BrokerGroup, members: list[str]) -> Iterator[None]:
    """Let members run for a short time now and then, as those whose disks or links are slow."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            for member in members:
                group.freeze(member)
            over.wait(SLOW_S)
            for member in members:
                group.thaw(member)
            over.wait(AWAKE_S)

    pulses = threading.Thread(target=run)
    pulses.start()
    try:
        yield
    finally:
        over.set()
        pulses.join()


def all_bodies(client: BrokerClient, topic: str, count: int) -> list[bytes]:
    client.wait_until_visible(topic, count)
    pulled: list[bytes] = []
    while found := bodies(client.pull(topic, len(pulled))):
        pulled += found
    return pulled


def test_sends_through_a_follower_are_stored_once_while_every_commit_takes_over_a_second(
    tmp_path: Path,
) -> None:
    """Both followers are slow, so that no quorum is fast, and one of them is the sender's door."""
    with BrokerGroup(tmp_path, heartbeat_interval_ms=250, election_timeout_ms=4000) as group:
        leader = group.master()
        door, other = (member for member in group.peers if member != leader)
        group.wait_for_status(door, lambda status: status.leader_id == leader, "follows")
        with BrokerClient(group.broker_addresses[door]) as client:
            assert client.send("slow", b"first").code == ResponseCode.SUCCESS
        group.stop(door)  # once started again, it needs its numbers from a slow quorum
        group.start(door)
        group.wait_until_up(door)
        with slow(group, [door, other]):
            sender = Sender(group.broker_addresses[door], "slow", SENDS)
            sender.start()
            assert sender.sent.wait(60)
            sender.join(120)
        group.master()
        codes = [answer.code for answer in sender.answers]
        stored = [n for n, code in enumerate(codes) if code == ResponseCode.SUCCESS]
        # Those in doubt may be stored, too.
        last = max((number(sender.answers[n], "queueOffset") for n in stored), default=0)
        with BrokerClient(group.broker_addresses[door]) as client:
            pulled = all_bodies(client, "slow", last + 1)

    assert len(codes) == SENDS
    times = Counter(pulled)
    assert set(times.values()) == {1}, "no message is stored twice"
    for n in stored:
        assert pulled[number(sender.answers[n], "queueOffset")] == b"%d" % n
    for n, code in enumerate(codes):
        if code == ResponseCode.SERVICE_NOT_AVAILABLE:
            assert times[b"%d" % n] == 0
    assert stored, "a slow quorum is one"
