"""Requests of administrators that change topics and consumer groups (17, 215, 216, 200 and 207).

The leader writes the change, and answers once it is applied. A change that would not change the
state is not written.
"""

from collections.abc import Callable

from dledger_broker.door.between_members.door_frames import Way
from dledger_broker.door.calls.call import Call
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.offset_commits import OffsetCommits
from dledger_broker.leading.state_changes import StateChanges
from dledger_broker.messages import send_checks, settings_checks
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.state_records import GroupDeleted, GroupSet, TopicDeleted
from dledger_formats.rocketmq.subscription_groups import DeleteGroupFields, SubscriptionGroup
from dledger_formats.rocketmq.topics import CreateTopicFields, TopicFields
from dledger_node.services.drafts import Outcome


class Administration:
    """Changes topics and groups, at the leader."""

    def __init__(self, owner: LogOwner, commits: OffsetCommits, changes: StateChanges) -> None:
        self._owner = owner
        self._commits = commits
        self._changes = changes

    def set_topic(self, call: Call) -> None:
        """Create a topic, or change its settings. Raises FormatError, RefusedError."""
        fields = call.fields(CreateTopicFields)
        owner, name = self._owner, fields.topic
        send_checks.check_topic(name)
        topic = owner.state.tables.topics.by_name.get(name)
        config = settings_checks.topic_config(fields, owner.topic(name))
        if topic is not None and topic.config == config:
            call.answer(ResponseCode.SUCCESS)
            return

        def is_set() -> bool:
            now = owner.state.tables.topics.by_name.get(name)
            return now is not None and now.config == config

        def done(outcome: Outcome) -> None:
            if outcome is Outcome.REFUSED:
                owner.forget_topic(change)
            _answer(call, outcome, is_set, f"the topic {name} was changed by somebody else, too")

        change = owner.create_topic(config)
        self._changes.propose([change], done, arrived_s=call.arrived_s)

    def delete_topic(self, call: Call) -> None:
        """Delete a topic with its messages. Raises FormatError, RefusedError."""
        name = call.fields(TopicFields).topic
        owner = self._owner
        send_checks.check_topic(name)
        if owner.topic(name) is None and name not in owner.state.tables.topics.by_name:
            call.answer(ResponseCode.SUCCESS)  # as Java's broker does
            return
        deletion = TopicDeleted(topic=name)
        record = owner.change(deletion)
        owner.topics.begin_deleting(name)
        self._commits.drop(lambda _, topic: topic == name)

        def done(outcome: Outcome) -> None:
            if outcome is Outcome.REFUSED:
                owner.topics.deletions.refused(name)
            _answer(call, outcome)

        self._changes.propose([record], done, deletion, call.arrived_s)

    @staticmethod
    def delete_topic_from_names(call: Call) -> None:
        """Answer SUCCESS to the deletion of a topic at name servers, since no routes are kept here.

        Raises FormatError.
        """
        call.fields(TopicFields)
        call.answer(ResponseCode.SUCCESS)

    def set_group(self, call: Call) -> None:
        """Create a consumer group, or change its settings. Raises FormatError, RefusedError."""
        config = call.body(SubscriptionGroup)
        assert isinstance(config, SubscriptionGroup)
        settings_checks.check_group(config)
        owner, name = self._owner, config.group_name
        groups = owner.state.tables.groups
        self._commits.group_change(name)  # refuses a group that is being deleted
        refusal = groups.refusal(config)
        if refusal is not None:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, refusal)
        if groups.configs.get(name) == config:
            call.answer(ResponseCode.SUCCESS)
            return

        def is_set() -> bool:
            return owner.state.tables.groups.configs.get(name) == config

        def done(outcome: Outcome) -> None:
            if outcome is not Outcome.UNKNOWN and owner.coming_groups.get(name) is config:
                del owner.coming_groups[name]
            remark = (
                f"the group {name} was changed by somebody else, too, or the broker has too many "
                "groups"
            )
            _answer(call, outcome, is_set, remark)

        record = owner.change(GroupSet(config=config))
        owner.coming_groups[name] = config
        self._changes.propose([record], done, arrived_s=call.arrived_s)

    def delete_group(self, call: Call) -> None:
        """Delete the settings of a group, and perhaps its offsets.

        A client that is still in the group creates it again. Raises FormatError and RefusedError.
        """
        fields = call.fields(DeleteGroupFields)
        owner, name = self._owner, fields.group_name
        self._commits.group_change(name)  # refuses a name that is invalid, or is being deleted
        if name not in owner.state.tables.groups.configs:
            call.answer(ResponseCode.SUCCESS)  # as Java's broker does
            return
        deletion = GroupDeleted(group=name, clean_offset=bool(fields.clean_offset))
        record = owner.change(deletion)
        owner.deleted_groups.begin(name)
        owner.coming_groups.pop(name, None)
        self._commits.drop(lambda group, _: group == name)

        def done(outcome: Outcome) -> None:
            if outcome is Outcome.REFUSED:
                owner.deleted_groups.refused(name)
            _answer(call, outcome)

        self._changes.propose([record], done, deletion, call.arrived_s)


def _answer(
    call: Call,
    outcome: Outcome,
    is_done: Callable[[], bool] = lambda: True,
    remark: str | None = None,
) -> None:
    """Answer once a change is applied; the state may have refused it, or changed again since."""
    if outcome is not Outcome.COMMITTED:
        call.turned(Way.IN_DOUBT)
    elif is_done():
        call.answer(ResponseCode.SUCCESS)
    else:
        call.answer(ResponseCode.SYSTEM_ERROR, remark=remark)
