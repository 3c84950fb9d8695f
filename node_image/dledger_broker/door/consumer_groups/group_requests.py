"""Consumer groups: the leader writes which clients join (34) and leave (35); every member answers
requests for lists of clients (38) and for checks of a subscription (46).
"""

import asyncio
from collections import deque
from functools import partial
from typing import Final, TypeAlias

from dledger_broker.door.between_members import door_frames
from dledger_broker.door.between_members.door_frames import Way
from dledger_broker.door.calls.call import Call
from dledger_broker.door.calls.failures import answered
from dledger_broker.door.consumer_groups.group_clients import Client
from dledger_broker.door.consumer_groups.read_heartbeats import client_of
from dledger_broker.leading.client_leases import ClientLeases
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.offset_commits import OffsetCommits
from dledger_broker.leading.state_changes import StateChanges
from dledger_broker.messages import tag_filter
from dledger_broker.messages.retries import retry_topic
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.json_objects import FormatError
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.consumer_groups import (
    CheckClient,
    Consumer,
    ConsumerGroupFields,
    ConsumerIds,
    HeartbeatAnswerFields,
    UnregisterClientFields,
)
from dledger_formats.rocketmq.state_records import ClientJoined
from dledger_node.services.drafts import Outcome

GROUPS_AT_ONCE: Final = 8
"""Groups that a client joins with one draft: more would hold up the event loop."""
BEAT: Final = HeartbeatAnswerFields(supports_v2=False, subscription_changed=False)

Refused: TypeAlias = dict[str, RefusedError]
"""The groups that a client cannot join now, and why."""


class GroupRequests:
    """Answers the clients of consumer groups, and members that report on their clients."""

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
        """Take a member's note about the clients that are connected to it. Raises FormatError."""
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
        """Answer with the clients of a group. Raises FormatError."""
        group = call.fields(ConsumerGroupFields).consumer_group
        ids = self._owner.state.client_ids(group)
        if not ids:
            remark = f"the group {group[:150]!r} has no clients"
            call.answer(ResponseCode.SYSTEM_ERROR, remark=remark)
            return
        call.answer(ResponseCode.SUCCESS, body=ConsumerIds(consumer_id_list=ids).to_json())

    def check(self, call: Call) -> None:
        """Answer whether a subscription can be served. Raises FormatError, RefusedError."""
        request = call.body(CheckClient)
        assert isinstance(request, CheckClient)
        tag_filter.check(request.subscription_data)
        call.answer(ResponseCode.SUCCESS)

    def join(self, call: Call) -> None:
        """Write what is new about a client, at the leader, and answer once it is applied. A group
        that it cannot join now keeps it out of no other one.

        Raises FormatError.
        """
        client, _ = client_of(call.command.body)  # the client's own member answers with refusals
        state, client_id = self._owner.state, client.client_id
        new: deque[Consumer] = deque()
        for group, consumer in client.consumers.items():
            is_leaving = self._leases.is_leaving((group, client_id))
            is_known = group in state.tables.groups.configs  # else it was deleted
            if state.consumer(group, client_id) != consumer or is_leaving or not is_known:
                new.append(consumer)
            else:
                self._leases.joined((group, client_id))
        if new:
            self._join_some(call, client, new, {})
        else:
            call.answer(ResponseCode.SUCCESS, BEAT)

    def _join_some(
        self, call: Call, client: Client, new: deque[Consumer], refused: Refused
    ) -> None:
        """Propose the next groups that a client joins: all at once would take long. Add those that
        it cannot join to `refused`.

        Raises FormatError.
        """
        created: list[bytearray] = []
        records: list[bytearray] = []
        left = GROUPS_AT_ONCE
        try:
            while new and left:
                consumer, before, left = new.popleft(), len(created), left - 1
                try:
                    records += self._joining(client.client_id, consumer, created)
                except RefusedError as refusal:
                    refused[consumer.group_name] = RefusedError(refusal.code, refusal.remark)
                    self._forget_topics(created[before:])
                    del created[before:]
        except BaseException:  # whatever the error: none of these topics gets into the log
            self._forget_topics(created)
            raise
        if not records:
            go_on = partial(self._go_on_joining, call, client, new, refused)
            asyncio.get_running_loop().call_soon(answered, call, go_on)
            return

        def joined(outcome: Outcome) -> None:
            if outcome is Outcome.COMMITTED:
                self._go_on_joining(call, client, new, refused)
                return
            if outcome is Outcome.REFUSED:
                self._forget_topics(created)
            call.turned(Way.IN_DOUBT)

        self._changes.propose(records, joined, arrived_s=call.arrived_s)

    def _go_on_joining(
        self, call: Call, client: Client, new: deque[Consumer], refused: Refused
    ) -> None:
        if not new:
            self._answer_joined(call, client, refused)
            return
        try:
            self._join_some(call, client, new, refused)
        except FormatError as error:
            call.refuse(RefusedError(ResponseCode.SYSTEM_ERROR, str(error)))

    def _joining(
        self, client_id: str, consumer: Consumer, created: list[bytearray]
    ) -> list[bytearray]:
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
        topic = retry_topic(group, owner.group(group))
        if owner.topic(topic.topic_name) is None:
            created.append(owner.create_topic(topic))
            records.append(created[-1])
        records.append(owner.change(joined))
        return records

    def _answer_joined(self, call: Call, client: Client, refused: Refused) -> None:
        for group in client.consumers:
            if group in refused:
                continue
            if self._owner.state.consumer(group, client.client_id) is None:
                remark = f"{client.client_id} could not join {group}: there are too many clients"
                refused[group] = RefusedError(ResponseCode.SYSTEM_BUSY, remark)
            else:
                self._leases.joined((group, client.client_id))
        if refused:
            call.refuse(next(iter(refused.values())))
        else:
            call.answer(ResponseCode.SUCCESS, BEAT)

    def _forget_topics(self, created: list[bytearray]) -> None:
        for change in created:
            self._owner.forget_topic(change)
