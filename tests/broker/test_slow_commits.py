"""Sends through a follower while every commit is slow: none is lost, and none is stored twice."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_broker_client import judge
from dledger_broker_client.client import BrokerClient
from dledger_broker_client.sender import Sender
from dledger_formats.rocketmq.codes import ResponseCode
from tools.groups.broker_group import BrokerGroup

pytestmark = pytest.mark.group

SENDS = 1200
KILLS = 3
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
        with BrokerClient(group.broker_addresses[door]) as client:
            pulled = judge.all_bodies(client, "slow", judge.count_at_least(sender.answers))

    assert len(sender.answers) == SENDS
    judge.assert_answers_were_right(sender.answers, pulled)
    assert judge.stored(sender.answers), "a slow quorum is one"


def test_no_acknowledged_send_is_lost_if_leaders_are_killed_while_commits_are_slow(
    tmp_path: Path,
) -> None:
    """What a quorum holds, the next leader has, whoever was slow to say so."""
    senders: list[Sender] = []
    pulled: list[list[bytes]] = []
    with BrokerGroup(tmp_path, heartbeat_interval_ms=250, election_timeout_ms=1000) as group:
        for number_of_round in range(KILLS):
            leader = group.master()
            door, other = (member for member in group.peers if member != leader)
            sender = Sender(group.broker_addresses[door], f"slow{number_of_round}", SENDS)
            senders.append(sender)
            with slow(group, [door, other]):
                sender.start()
                assert sender.sent.wait(60)
                group.kill(leader)
                sender.join(120)
                group.start(leader)
                group.wait_until_up(leader)
        group.master()
        for sender in senders:
            with BrokerClient(group.broker_addresses[group.master()]) as client:
                count = judge.count_at_least(sender.answers)
                pulled.append(judge.all_bodies(client, sender.topic, count) if count else [])

    for sender, found in zip(senders, pulled, strict=True):
        assert len(sender.answers) == SENDS
        judge.assert_answers_were_right(sender.answers, found)
    assert all(judge.stored(sender.answers) for sender in senders)
