"""Consumer groups: the leader writes who joins (34) and who leaves (35); every member answers lists
of clients (38) and checks of a subscription (46).
"""

from typing import Final

from dledger_broker.door.between_members import door_frames
from dledger_broker.door.between_members.door_frames import Way
from dledger_broker.door.calls.call import Call
from dledger_broker.door.consumer_groups.group_clients import Client
from dledger_broker.leading.client_leases import ClientLeases
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.offset_commits import OffsetCommits
from dledger_broker.leading.state_changes import StateChanges
from dledger_broker.messages import tag_filter
from dledger_broker.messages.retries import retry_topic
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.rocketmq import loose_heartbeats
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.consumer_groups import (
    CheckClient,
    Consumer,
    ConsumerGroupFields,
    ConsumerIds,
    HeartbeatAnswerFields,
    Subscription,
    UnregisterClientFields,
)
from dledger_formats.rocketmq.state_records import ClientJoined
from dledger_node.services.drafts import Outcome

BEAT: Final = HeartbeatAnswerFields(supports_v2=False, subscription_changed=False)


class GroupRequests:
    """Answers what clients ask as members of consumer groups, and members for their clients."""

    def __init__(
        self,
        owner: LogOwner,
        commits: OffsetCommits,
        changes: StateChanges,
        leases: ClientLeases,
    ) -> None:
        self._owner = owner
        self._commits = commits
        self._changes = changes
        self._leases = leases

    def note(self, call: Call) -> None:
        """Take a note of a member about the clients that it holds. Raises FormatError."""
        note = door_frames.decode_presence(call.command.body)
        knows_all = self._leases.noted(
            note.member, note.seen, note.gone, is_first=note.is_first, is_new=note.is_new,
            is_last=note.is_last, ages_s=note.ages_s,
        )  # fmt: skip
        call.answer(ResponseCode.SUCCESS if knows_all else ResponseCode.QUERY_NOT_FOUND)

    def leave(self, call: Call) -> None:
        """Let a client leave a group, at the leader. Raises FormatError."""
        fields = call.fields(UnregisterClientFields)
        group, client_id = fields.consumer_group or "", fields.client_id
        if self._owner.state.consumer(group, client_id) is None:
            call.answer(ResponseCode.SUCCESS)
            return

        def left(outcome: Outcome) -> None:
            if outcome is Outcome.COMMITTED:
                call.answer(ResponseCode.SUCCESS)
            else:
                call.turned(Way.IN_DOUBT)

        self._leases.remove([(group, client_id)], left, call.arrived_s)

    def client_ids(self, call: Call) -> None:
        """Answer the clients of a group. Raises FormatError."""
        group = call.fields(ConsumerGroupFields).consumer_group
        ids = self._owner.state.client_ids(group)
        if not ids:
            remark = f"the group {group[:150]!r} has no clients"
            call.answer(ResponseCode.SYSTEM_ERROR, remark=remark)
            return
        call.answer(ResponseCode.SUCCESS, body=ConsumerIds(consumer_id_list=ids).to_json())

    def check(self, call: Call) -> None:
        """Tell whether a subscription can be served. Raises FormatError, RefusedError."""
        request = call.body(CheckClient)
        assert isinstance(request, CheckClient)
        tag_filter.wanted_codes(request.subscription_data)
        call.answer(ResponseCode.SUCCESS)

    def join(self, call: Call) -> None:
        """Write what is new of a client, at the leader, and answer once that is applied.

        Raises FormatError, RefusedError.
        """
        client = client_of(call)
        state, client_id = self._owner.state, client.client_id
        created: list[str] = []
        records: list[bytearray] = []
        try:
            for group, consumer in client.consumers.items():
                is_leaving = self._leases.is_leaving((group, client_id))
                is_known = group in state.tables.groups.configs  # else it was deleted
                if state.consumer(group, client_id) != consumer or is_leaving or not is_known:
                    records += self._joining(client_id, consumer, created)
                else:
                    self._leases.joined((group, client_id))
        except BaseException:  # whatever it was: none of these topics gets into the log
            self._forget_topics(created)
            raise
        if not records:
            call.answer(ResponseCode.SUCCESS, BEAT)
            return

        def joined(outcome: Outcome) -> None:
            if outcome is Outcome.COMMITTED:
                self._answer_joined(call, client)
                return
            if outcome is Outcome.REFUSED:
                self._forget_topics(created)
            call.turned(Way.IN_DOUBT)

        self._changes.propose(records, joined, arrived_s=call.arrived_s)

    def _joining(self, client_id: str, consumer: Consumer, created: list[str]) -> list[bytearray]:
        """Return what must be written for a client that joins a group."""
        group, owner = consumer.group_name, self._owner
        joined = ClientJoined(client_id=client_id, consumer=consumer)
        records = []
        group_change = self._commits.group_change(group)
        if group_change is not None:
            records.append(group_change)
        else:
            refusal = owner.state.refusal(joined)
            if refusal is not None:
                raise RefusedError(ResponseCode.SYSTEM_BUSY, refusal)
        topic = retry_topic(group, owner.state.tables.groups.configs.get(group))
        if owner.topic(topic.topic_name) is None:
            records.append(owner.create_topic(topic))
            created.append(topic.topic_name)
        records.append(owner.change(joined))
        return records

    def _answer_joined(self, call: Call, client: Client) -> None:
        for group in client.consumers:
            if self._owner.state.consumer(group, client.client_id) is None:
                remark = f"{client.client_id} could not join {group}: there are too many clients"
                call.answer(ResponseCode.SYSTEM_BUSY, remark=remark)
                return
            self._leases.joined((group, client.client_id))
        call.answer(ResponseCode.SUCCESS, BEAT)

    def _forget_topics(self, names: list[str]) -> None:
        for name in names:
            self._owner.forget_topic(name)


def client_of(call: Call) -> Client:
    """Return what a heartbeat says. Raises FormatError, RefusedError."""
    heartbeat = loose_heartbeats.read(call.command.body)
    consumers = {each.group_name: _ordered(each) for each in heartbeat.consumer_data_set}
    for consumer in consumers.values():
        _check(heartbeat.client_id, consumer)
    return Client(heartbeat.client_id, consumers, len(call.command.body))


def _ordered(consumer: Consumer) -> Consumer:
    """Return the same in an order of its own: Java's sets have none."""
    subscriptions = [
        Subscription(
            topic=each.topic, sub_string=each.sub_string, sub_version=each.sub_version,
            expression_type=each.expression_type, tags_set=sorted(each.tags_set),
            code_set=sorted(each.code_set), class_filter_mode=each.class_filter_mode,
        )
        for each in sorted(consumer.subscription_data_set, key=lambda each: each.topic)
    ]  # fmt: skip
    return Consumer(
        group_name=consumer.group_name, consume_type=consumer.consume_type,
        message_model=consumer.message_model, consume_from_where=consumer.consume_from_where,
        subscription_data_set=subscriptions, unit_mode=consumer.unit_mode,
    )  # fmt: skip


def _check(client_id: str, consumer: Consumer) -> None:
    """Refuse a client that could not be written into the log. Raises FormatError, RefusedError."""
    retry_topic(consumer.group_name)
    if not 0 < len(client_id) <= 255:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"the client id has {len(client_id)} letters; 1 to 255 are allowed",
        )
    for subscription in consumer.subscription_data_set:
        tag_filter.wanted_codes(subscription)
    ClientJoined(client_id=client_id, consumer=consumer).check()
