"""What a broker refuses because there is too much of it already, and what it keeps room for."""

import asyncio
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from dledger_broker.leading.offset_commits import OffsetCommits
from dledger_broker.leading.pending_topics import SYSTEM_QUEUES, SYSTEM_TOPICS
from dledger_broker.leading.state_changes import StateChanges
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.queues.feed import QueueFeed
from dledger_broker.state import changes, groups, topics
from dledger_broker_client.proposing_leaders import new_owner
from dledger_broker_log.states import topic_config
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.state_records import GroupSet, TopicSet
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_node.embedding import Member
from tools.groups.waiting import WAIT_S


@pytest.mark.parametrize("applied", [False, True])
def test_the_last_topics_are_kept_for_those_of_the_system(
    monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    monkeypatch.setattr(topics, "TOPICS_MAX", 10)
    owner, state = new_owner()
    for number in range(10 - SYSTEM_TOPICS):
        change = owner.create_topic(topic_config(f"t{number}"))
        if applied:
            owner.topics.stamped(change, 1000 + number)
            changes.make(state.tables, TopicSet(config=topic_config(f"t{number}")), number, 1)
            state.tables.last_physical_offset = 1000 + number

    with pytest.raises(RefusedError) as refused:
        owner.create_topic(topic_config("one-more"))

    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    assert "which is the limit" in refused.value.remark


def test_the_last_queues_are_kept_for_delayed_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "QUEUES_MAX", 100)
    owner, _ = new_owner()
    owner.create_topic(topic_config("t", 100 - SYSTEM_QUEUES - 1))
    owner.create_topic(topic_config("u"))

    with pytest.raises(RefusedError) as refused:
        owner.create_topic(topic_config("v"))

    assert "more than 100 queues" in refused.value.remark


async def test_more_consumer_groups_than_the_bound_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "GROUPS_MAX", 2)
    owner, state = new_owner()
    for name in ("g1", "g2"):
        record = GroupSet(config=SubscriptionGroup(group_name=name))
        changes.make(state.tables, record, 1, 1)
    commits = OffsetCommits(owner, StateChanges(owner))

    with pytest.raises(RefusedError) as refused:
        commits.group_change("g3")

    assert "which is the limit" in refused.value.remark
    assert commits.group_change("g1") is None


async def test_queues_that_are_being_built_are_not_built_once_more(tmp_path: Path) -> None:
    """A pull may meet files that were just deleted: its fault must not start another rebuild."""
    rebuilds: list[None] = []
    member = SimpleNamespace(applied_index=7)
    feed = QueueFeed(
        cast("Member", member), tmp_path,
        built=lambda _: None, rebuilding=lambda: rebuilds.append(None),
    )  # fmt: skip

    feed.rebuild("a unit is wrong", 0)
    assert feed.is_rebuilding
    feed.rebuild("a unit is missing", 0)
    assert len(rebuilds) == 1


class EmptyMember:
    """A member whose log is empty; its queues are deleted once `may_delete` is set."""

    applied_index = end_index = -1
    reading_disk = nullcontext

    def __init__(self) -> None:
        self.may_delete = threading.Event()
        self.may_delete.set()

    @property
    def begin_index(self) -> int:
        assert self.may_delete.wait(WAIT_S)
        return 0

    def header(self, _: int) -> None:
        return None

    def call_when_applied(self, _: object) -> None:
        return None


@pytest.mark.parametrize("begins", ["before the fault is found", "before the files are deleted"])
async def test_what_was_read_of_deleted_queues_does_not_build_them_once_more(
    tmp_path: Path, begins: str
) -> None:
    """Whatever a reader has found in files that are deleted by now, it may be late."""
    member, built, rebuilds = EmptyMember(), asyncio.Event(), list[None]()
    feed = QueueFeed(
        cast("Member", member), tmp_path,
        built=lambda _: built.set(), rebuilding=lambda: rebuilds.append(None),
    )  # fmt: skip
    await feed.open()
    member.may_delete.clear()
    seen_rebuilds = feed.rebuilds
    feed.rebuild("a unit is wrong", seen_rebuilds)
    if begins == "before the files are deleted":
        seen_rebuilds = feed.rebuilds
    member.may_delete.set()
    await built.wait()
    assert not feed.is_rebuilding

    feed.rebuild("another unit was wrong", seen_rebuilds)
    assert len(rebuilds) == 1
    feed.rebuild("another unit is wrong", feed.rebuilds)
    assert len(rebuilds) == 2
    await feed.close()
