"""Requests for the broker's state: single settings (351, 352), whole tables (21, 43, 45, 201, 402),
and the figures of the member (28).

Every member answers them. A large table takes a thread a second or more, so tables are made one at
a time, and all requests for a table that come meanwhile share the next one.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

import msgspec

from dledger_broker.door.calls.call import Call
from dledger_broker.door.calls.failures import answered_after_reads, refusal_of
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.registration import routes
from dledger_broker.settings import BrokerSettings
from dledger_broker.state import tables_shown
from dledger_broker.state.tables import Tables
from dledger_formats.protocol.frames import FRAME_BYTES_MAX
from dledger_formats.rocketmq import topic_names
from dledger_formats.rocketmq.codes import VERSION_5_3_3, RequestCode, ResponseCode
from dledger_formats.rocketmq.json_bodies import JsonBody
from dledger_formats.rocketmq.names import RuntimeInfo
from dledger_formats.rocketmq.subscription_groups import GroupFields, MessageRequestModes
from dledger_formats.rocketmq.topics import TopicFields
from dledger_node.embedding import Member

BODY_BYTES_MAX: Final = FRAME_BYTES_MAX - 64 * 1024
"""The longest table that fits a frame."""
_VERSION: Final = "V5_3_3"

Table: TypeAlias = Callable[[Tables], JsonBody]


class TableRequests:
    """Answers requests for what is in the state."""

    def __init__(
        self,
        settings: BrokerSettings,
        member: Member,
        owner: LogOwner,
        threads: ThreadPoolExecutor,
        values: Counter[str],
    ) -> None:
        """`values` are the broker's counters."""
        self._settings = settings
        self._member = member
        self._owner = owner
        self._threads = threads
        self._values = values
        self._loop = asyncio.get_running_loop()
        self._started_ms = time.time_ns() // 1_000_000
        self._waiting: dict[Table, list[Call]] = {}
        self._is_making = False

    def topics(self, call: Call) -> None:
        """Answer with all topics."""
        self._make(call, self._topics)

    def groups(self, call: Call) -> None:
        """Answer with all consumer groups."""
        self._make(call, tables_shown.groups)

    def consumer_offsets(self, call: Call) -> None:
        """Answer with the offsets where all groups continue, as far as they are applied."""
        self._make(call, tables_shown.consumer_offsets)

    def delay_offsets(self, call: Call) -> None:
        """Answer with how far each delay level is delivered."""
        shown = tables_shown.delay_offsets(self._owner.state.tables)
        call.answer(ResponseCode.SUCCESS, body=shown.to_json())

    def request_modes(self, call: Call) -> None:
        """Answer with the groups whose messages the broker assigns: there are none."""
        body = MessageRequestModes(message_request_mode_map={}).to_json()
        call.answer(ResponseCode.SUCCESS, body=body)

    def topic(self, call: Call) -> None:
        """Answer with the settings of one topic. Raises FormatError, RefusedError."""
        name = call.fields(TopicFields).topic
        topic = self._owner.state.tables.topics.by_name.get(name)
        config = routes.config_of(self._settings, name, topic)
        if config is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"the topic {name[:150]!r} does not exist"
            )
        call.answer(ResponseCode.SUCCESS, body=config.to_json())

    def group(self, call: Call) -> None:
        """Answer with the settings of one group. Raises FormatError, RefusedError."""
        name = call.fields(GroupFields).group
        config = self._owner.state.tables.groups.configs.get(name)
        if config is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"there is no consumer group {name[:150]!r}",
            )
        call.answer(ResponseCode.SUCCESS, body=config.to_json())

    def runtime(self, call: Call) -> None:
        """Answer with the figures of this member that tools of 4.9 and 5.3 show.

        A thread looks where the log begins, since the disk may have to be read for that.
        """
        call.channel.reads_waiting += 1
        self._loop.create_task(self._answer_runtime(call))

    async def _answer_runtime(self, call: Call) -> None:
        with answered_after_reads(call):
            begin_pos = await self._loop.run_in_executor(
                self._threads, lambda: self._member.begin_pos
            )
            call.answer(ResponseCode.SUCCESS, body=self._runtime(begin_pos).to_json())

    def _runtime(self, begin_pos: int) -> RuntimeInfo:
        tables, member, values = self._owner.state.tables, self._member, self._values
        names = {
            "brokerVersion": VERSION_5_3_3,
            "brokerVersionDesc": _VERSION,
            "bootTimestamp": self._started_ms,
            "commitLogMinOffset": begin_pos,
            "commitLogMaxOffset": max(0, tables.last_physical_offset),
            "dispatchBehindBytes": 0,
            "putMessageTimesTotal": values["messages_stored"],
            "putMessageSizeTotal": values["bytes_stored"],
            "getTransferredMsgNumTotal": values["messages_pulled"],
            "getTransferredBytesTotal": values["bytes_pulled"],
            "pendingMessages": values["pending_messages"],
            "heldPulls": values["held_pulls"],
            "topics": len(tables.topics.by_name),
            "queues": tables.topics.queues,
            "consumerGroups": len(tables.groups.configs),
            "consumerClients": tables.groups.clients_count,
            "dledgerSelfId": member.self_id,
            "dledgerLeaderId": member.leader_id or "",
            "dledgerAppliedIndex": member.applied_index,
        }
        return RuntimeInfo(table={name: str(value) for name, value in names.items()})

    def _topics(self, tables: Tables) -> JsonBody:
        shown = tables_shown.topics(tables)
        template = routes.config_of(self._settings, topic_names.DEFAULT_TOPIC, None)
        if template is None:
            return shown
        table = shown.topic_config_table | {template.topic_name: template}
        return msgspec.structs.replace(shown, topic_config_table=table)

    def _make(self, call: Call, table: Table) -> None:
        """Make a table in a thread, and answer."""
        call.channel.reads_waiting += 1
        self._waiting.setdefault(table, []).append(call)
        if not self._is_making:
            self._is_making = True
            self._loop.create_task(self._make_all())

    async def _make_all(self) -> None:
        """Make each table that a request waits for, until none waits."""
        try:
            while self._waiting:
                table = next(iter(self._waiting))
                calls = self._waiting.pop(table)
                made: bytes | RefusedError
                try:
                    made = await self._loop.run_in_executor(
                        self._threads, _made, table, self._owner.state.tables
                    )
                except Exception as error:  # whatever it is, the clients get an answer
                    made = refusal_of(error)
                for call in calls:
                    self._answer(call, made)
                    await asyncio.sleep(0)  # a table may be long: one copy in each turn
        finally:
            self._is_making = False

    def _answer(self, call: Call, made: bytes | RefusedError) -> None:
        if isinstance(made, RefusedError):
            call.refuse(made)
        elif len(made) > BODY_BYTES_MAX:
            name = RequestCode(call.command.code).name
            remark = (
                f"the answer to {name} would have {len(made)} bytes; a frame holds at most "
                f"{BODY_BYTES_MAX}"
            )
            call.answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        else:
            call.answer(ResponseCode.SUCCESS, body=made)
        call.channel.reads_waiting -= 1
        call.channel.go_on()


def _made(table: Table, tables: Tables) -> bytes:
    """Return a table as JSON, in a thread."""
    return table(tables).to_json()
