"""Members whose clocks differ by an hour: delays shift by as much, and nothing else does."""

import contextlib
import time
from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, bodies, messages
from dledger_client.errors import ClientError
from dledger_client.sync import BlockingClient
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

HOUR_MS = 3_600_000
FIVE_SECONDS = "DELAY\x012\x02"
CLOCK_AHEAD = """
import time

ns, s = time.time_ns, time.time
time.time_ns = lambda: ns() + 3_600 * 10**9
time.time = lambda: s() + 3_600
"""
"""Python runs a module of the name `sitecustomize` at each start."""


def put_ahead(group: BrokerGroup, member: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Start a member again with a clock that is an hour ahead."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(CLOCK_AHEAD)
    group.stop(member)
    with patch.context() as changed:
        changed.setenv("PYTHONPATH", str(folder))
        group.start(member)
    group.wait_until_up(member)


def lead(group: BrokerGroup, member: str) -> None:
    """Make a member the leader."""

    def leads() -> bool:
        with (
            contextlib.suppress(ClientError),  # it has not caught up yet
            BlockingClient(group.servers, "g") as client,
        ):
            client.transfer(member)
        return group.master() == member

    wait_for(leads, f"{member} leads")


def test_a_leader_that_is_an_hour_ahead_delivers_an_hour_earlier_and_does_nothing_else_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerGroup(tmp_path) as group:
        first = group.master()
        ahead = next(member for member in group.peers if member != first)
        put_ahead(group, ahead, tmp_path / "ahead", monkeypatch)
        with BrokerClient(group.broker_addresses[first]) as client:
            for level, topic in ((17, "in-an-hour"), (18, "in-two-hours")):
                sent = client.send(topic, b"late", i=f"DELAY\x01{level}\x02")
                assert sent.code == ResponseCode.SUCCESS
            client.send("plain", b"0")
            lead(group, ahead)
            client.wait_until_visible("in-an-hour", 1)
            for n in range(1, 10):
                assert client.send("plain", b"%d" % n).code == ResponseCode.SUCCESS
            soon = client.send("soon", b"after a second", i="DELAY\x011\x02")
            assert soon.code == ResponseCode.SUCCESS
            client.wait_until_visible("soon", 1)
            lead(group, first)
            client.send("plain", b"10")
            client.wait_until_visible("plain", 11)
            pulled = client.pull("plain")
            two_hours = client.ask(
                RequestCode.GET_MAX_OFFSET, {"topic": "in-two-hours", "queueId": "0"}
            )

        assert bodies(pulled) == [b"%d" % n for n in range(11)], "nothing else depends on clocks"
        stored_ms = [record.store_timestamp for record in messages(pulled)]
        assert abs(stored_ms[5] - stored_ms[0] - HOUR_MS) < HOUR_MS / 10
        assert abs(stored_ms[10] - time.time_ns() // 1_000_000) < HOUR_MS / 10
        assert (two_hours.ext_fields or {}).get("offset", "0") == "0", "an hour is left"


def test_a_delayed_message_of_a_leader_that_is_an_hour_ahead_holds_up_none_of_the_next_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerGroup(tmp_path) as group:
        first = group.master()
        ahead = next(member for member in group.peers if member != first)
        put_ahead(group, ahead, tmp_path / "ahead", monkeypatch)
        with BrokerClient(group.broker_addresses[first]) as client:
            client.send("plain")
            lead(group, ahead)
            assert client.send("early", i=FIVE_SECONDS).code == ResponseCode.SUCCESS
            lead(group, first)
            assert client.send("right", i=FIVE_SECONDS).code == ResponseCode.SUCCESS
            sent_s = time.monotonic()

            client.wait_until_visible("right", 1)
            waited_s = time.monotonic() - sent_s
            early = messages(client.pull("early"))

    assert len(early) == 1, "it was before the other one"
    assert waited_s < 60, "it once waited for an hour"
