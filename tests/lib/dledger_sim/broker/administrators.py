"""Administrators of a broker group: they create and delete a topic and groups that others use.

An administrator requests one change of a name at a time. A deletion without an answer may take
effect at any later time.
"""

from collections import Counter
from typing import Final

from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.subscription_groups import DeleteGroupFields, SubscriptionGroup
from dledger_formats.rocketmq.topics import CreateTopicFields, TopicFields
from dledger_sim.broker.ports import Ask, Ports
from dledger_sim.judges.broker_rules import BrokerRules

ADMINISTRATOR: Final = 80
"""The client that administers."""
DELETABLE: Final = "projects"
"""The topic that is created and deleted."""
READ_AND_WRITE: Final = 6


class Administrators:
    """All administrators of a run."""

    def __init__(self, rules: BrokerRules, ports: Ports, queues: int) -> None:
        """`queues` is the number of queues of the topic."""
        self._rules = rules
        self._ports = ports
        self._queues = queues
        self._changing: set[str] = set()
        """Topics and groups with a change in progress."""
        self._doubtful: Counter[str] = Counter()
        """Number of deletions whose outcome is unknown, by topic or group."""

    def set_topic(self, member_id: str) -> None:
        """Create the topic, unless it exists as wanted."""
        fields = CreateTopicFields(
            topic=DELETABLE, read_queue_nums=self._queues, write_queue_nums=self._queues,
            perm=READ_AND_WRITE, topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        ask = Ask(int(RequestCode.UPDATE_AND_CREATE_TOPIC), fields.to_ext())
        self._set(member_id, DELETABLE, ask)

    def set_group(self, member_id: str, group: str) -> None:
        """Create a consumer group, unless it exists as wanted."""
        body = SubscriptionGroup(group_name=group).to_json()
        self._set(
            member_id, group, Ask(int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP), {}, body)
        )

    def delete_topic(self, member_id: str) -> None:
        """Delete the topic with its messages, and the offsets of all groups in it."""
        ext = TopicFields(topic=DELETABLE).to_ext()
        self._delete(member_id, DELETABLE, Ask(int(RequestCode.DELETE_TOPIC_IN_BROKER), ext))

    def delete_group(self, member_id: str, group: str) -> None:
        """Delete a consumer group with its offsets."""
        ext = DeleteGroupFields(group_name=group, clean_offset=True).to_ext()
        self._delete(member_id, group, Ask(int(RequestCode.DELETE_SUBSCRIPTIONGROUP), ext))

    def _set(self, member_id: str, name: str, ask: Ask) -> None:
        if name in self._changing:
            return

        def answered(answer: RemotingCommand | None) -> None:
            self._changing.discard(name)
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self._rules.counts["settings_acknowledged"] += 1

        if self._ports.ask(ADMINISTRATOR, member_id, ask, answered):
            self._changing.add(name)

    def _delete(self, member_id: str, name: str, ask: Ask) -> None:
        if name in self._changing:
            return
        before = self._rules.deletion_begins(name)
        self._doubtful[name] += 1

        def answered(answer: RemotingCommand | None) -> None:
            self._changing.discard(name)
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self._doubtful[name] -= 1
                self._rules.deletion_ends(name, before, is_last=not self._doubtful[name])

        if self._ports.ask(ADMINISTRATOR, member_id, ask, answered):
            self._changing.add(name)
