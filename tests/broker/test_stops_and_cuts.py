"""A member that stops answers what it has read; one that is cut off says so in time."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, bodies, number, pull_ext, send_ext
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import (
    VERSION_5_3_1,
    VERSION_5_3_3,
    RequestCode,
    ResponseCode,
)
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

Code = RequestCode
IN_FLIGHT = 200
CLIENT_TIMEOUT_S = 3.0
"""After that time a stock client gives up a send."""


class SenderUntilTheEnd(threading.Thread):
    """Keeps sends in flight at one member until that closes the connection; keeps the answers."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__()
        self._address, self._topic = address, topic
        self.answers: list[RemotingCommand] = []
        self.unanswered = 0

    def run(self) -> None:
        with BrokerClient(self._address) as client:
            opaques: list[int] = []
            with contextlib.suppress(OSError):
                while True:
                    body = b"%d" % len(opaques)
                    opaques.append(client.begin(Code.SEND_MESSAGE_V2, send_ext(self._topic), body))
                    if len(opaques) >= IN_FLIGHT:
                        self.answers.append(client.answer(opaques[len(self.answers)]))
            with contextlib.suppress(OSError):
                while len(self.answers) < len(opaques):
                    self.answers.append(client.answer(opaques[len(self.answers)]))
            self.unanswered = len(opaques) - len(self.answers)


@pytest.mark.parametrize("leads", [True, False])
def test_a_member_that_stops_answers_what_it_has_read_and_stores_nothing_else(
    tmp_path: Path, leads: bool
) -> None:
    """A client that sends again what has no answer then stores nothing twice."""
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        follower = next(member for member in group.peers if member != leader)
        stopped = leader if leads else follower
        with BrokerClient(group.broker_addresses[leader]) as client:
            assert client.send("ended", b"0").code == ResponseCode.SUCCESS
        sender = SenderUntilTheEnd(group.broker_addresses[stopped], "ended")
        sender.start()
        wait_for(lambda: len(sender.answers) > 2000, "many sends are answered")
        group.stop(stopped)
        sender.join(60)
        codes = [answer.code for answer in sender.answers]
        assert codes == [ResponseCode.SUCCESS] * len(codes)
        with BrokerClient(group.broker_addresses[group.master()]) as client:
            pulled = all_bodies(client, "ended", len(codes) + 1)

    assert Counter(pulled[1:]) == Counter(b"%d" % n for n in range(len(sender.answers)))
    assert sender.unanswered > 0, "the client was still sending"


@contextlib.contextmanager
def stopping(group: BrokerGroup, member: str) -> Iterator[None]:
    """Tell a member to stop; it has ended when this ends."""
    stop = threading.Thread(target=group.stop, args=(member,))
    stop.start()
    yield
    stop.join(60)


def all_bodies(client: BrokerClient, topic: str, count: int) -> list[bytes]:
    client.wait_until_visible(topic, count)
    pulled: list[bytes] = []
    while found := bodies(client.pull(topic, len(pulled))):
        pulled += found
    return pulled


def waiting_pull(topic: str) -> dict[str, str]:
    return pull_ext(topic, 1, sysFlag="6", suspendTimeoutMillis="20000")


def test_a_client_that_knows_go_away_is_told_to_ask_elsewhere(tmp_path: Path) -> None:
    """Its held pull is answered, and whatever it asks then has no effect."""
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        with BrokerClient(group.broker_addresses[leader], version=VERSION_5_3_3) as client:
            client.send("away")
            client.wait_until_visible("away", 1)
            held = client.begin(Code.PULL_MESSAGE, waiting_pull("away"))
            with stopping(group, leader):
                answer = client.answer(held)
                asked = [
                    client.begin(Code.PULL_MESSAGE, waiting_pull("away")),
                    client.begin(Code.SEND_MESSAGE_V2, send_ext("away"), b"late"),
                    client.begin(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}),
                ]
                codes = [client.answer(each).code for each in asked]
        with BrokerClient(group.broker_addresses[group.master()]) as client:
            client.send("away", b"last")
            pulled = all_bodies(client, "away", 2)

    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert codes == [ResponseCode.GO_AWAY] * 3
    assert pulled == [b"body", b"last"]


def test_a_client_that_knows_no_go_away_notices_the_stop_at_once(tmp_path: Path) -> None:
    """Clients of 4.9 notice a reset, and would wait 30 s for the answer to their next pull."""
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        with BrokerClient(group.broker_addresses[leader], version=VERSION_5_3_1) as client:
            client.send("stopped")
            client.wait_until_visible("stopped", 1)
            held = client.begin(Code.PULL_MESSAGE, waiting_pull("stopped"))
            with stopping(group, leader):
                answer = client.answer(held)
                unread = client.begin(Code.PULL_MESSAGE, waiting_pull("stopped"))
                with pytest.raises(ConnectionResetError):
                    client.answer(unread)

    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY


@pytest.mark.parametrize("leads", [True, False])
def test_behind_a_service_a_member_that_stops_goes_on_as_a_door_for_a_while(
    tmp_path: Path, leads: bool
) -> None:
    """kube-proxy may still lead new clients to it."""
    served = []
    with BrokerGroup(tmp_path, reached_at="127.0.0.1") as group:
        leader = group.master()
        stopped = leader if leads else next(each for each in group.peers if each != leader)
        address = group.broker_addresses[stopped]
        with BrokerClient(address) as client:
            client.send("going")
        with stopping(group, stopped), contextlib.suppress(OSError, HTTPException):
            while True:  # until it takes no clients any more
                is_stopping = group.get(stopped, "/readyz")[0] != HTTPStatus.OK
                with BrokerClient(address) as client:
                    body = b"%d" % len(served)
                    if client.send("going", body).code == ResponseCode.SUCCESS and is_stopping:
                        served.append(body)
        with BrokerClient(group.broker_addresses[group.master()]) as client:
            queue = {"topic": "going", "queueId": "0"}
            count = number(client.ask(Code.GET_MAX_OFFSET, queue), "offset")
            pulled = all_bodies(client, "going", count)

    assert served, "new clients were served after it was no longer ready"
    assert not Counter(served) - Counter(pulled)


def test_clients_of_a_member_that_is_cut_off_are_told_in_time(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        alone, other = (member for member in group.peers if member != leader)
        address = group.broker_addresses[alone]
        with BrokerClient(address) as sender, BrokerClient(address) as puller:
            sender.send("cut")
            puller.wait_until_visible("cut", 1)
            held = puller.begin(Code.PULL_MESSAGE, waiting_pull("cut"))
            group.freeze(leader)
            group.freeze(other)
            begun_s = time.monotonic()
            answer = sender.send("cut")
            took_s = time.monotonic() - begun_s
            with pytest.raises(ConnectionResetError):
                puller.answer(held)
            held_s = time.monotonic() - begun_s
            with BrokerClient(address) as reader:
                found = bodies(reader.pull("cut"))
        group.thaw(leader)
        group.thaw(other)

    assert answer.code in (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR)
    reasons = ("no leader took", "the leader did not answer", "no quorum answered")
    assert any(reason in (answer.remark or "") for reason in reasons)
    assert took_s < CLIENT_TIMEOUT_S
    assert held_s < 15, "a pull may be held for 20 s elsewhere"
    assert found == [b"body"], "what the member has is served"


def test_a_producer_of_a_member_that_is_cut_off_is_sent_elsewhere(tmp_path: Path) -> None:
    """Its connection may lead to this member forever, and others may have a leader."""
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        alone, other = (member for member in group.peers if member != leader)
        with BrokerClient(group.broker_addresses[alone]) as sender:
            sender.send("cut")
            group.freeze(leader)
            group.freeze(other)
            begun_s, answers = time.monotonic(), []
            with contextlib.suppress(ConnectionResetError):
                while time.monotonic() < begun_s + 30:
                    answers.append(sender.send("cut"))
            took_s = time.monotonic() - begun_s
        group.thaw(leader)
        group.thaw(other)

    assert took_s < 15
    assert answers[-1].code == ResponseCode.SERVICE_NOT_AVAILABLE, "it is answered before"
