"""Consumers that return messages that they could not use, for redelivery or as dead letters.

A consumer returns a pulled message at most once. Without an answer, it does not know whether the
message will be redelivered.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq import message_record, topic_names
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.sends import SendBackFields
from dledger_sim.broker.ports import Ask, Ports
from dledger_sim.judges.broker_log import Place, key_of
from dledger_sim.judges.broker_rules import BrokerRules

RETURNERS: Final = "returners"
"""The group of these consumers."""
RETRIES: Final = Place(topic_names.RETRY_PREFIX + RETURNERS, 0)
DEAD_LETTERS: Final = Place(topic_names.DEAD_LETTER_PREFIX + RETURNERS, 0)
KEPT_MAX: Final = 20
DEAD: Final = -1
"""The delay level of a dead letter."""
_UNSURE: Final = (ResponseCode.SYSTEM_ERROR,)


class Returners:
    """The consumers that return messages, with the messages that they have pulled and returned."""

    def __init__(
        self, rules: BrokerRules, ports: Ports, make_group: Callable[[str, str], None]
    ) -> None:
        """`make_group` asks a member to create a consumer group."""
        self._rules = rules
        self._ports = ports
        self._make_group = make_group
        self._pulled: deque[tuple[int, bytes]] = deque(maxlen=KEPT_MAX)
        """Position and record of the last messages that were pulled and not returned."""
        self._seen: set[int] = set()

    def pulled(self, records: Sequence[bytes]) -> None:
        """Keep messages that may be returned."""
        for raw in records:
            position = message_record.decode(raw).physical_offset
            if position not in self._seen:
                self._seen.add(position)
                self._pulled.append((position, raw))

    def give_back(self, member_id: str, client: int, level: int) -> None:
        """Return the message that was pulled last."""
        if not self._pulled:
            return
        position, raw = self._pulled[-1]
        record = message_record.decode(raw)
        again = msgspec.structs.replace(record, reconsume_times=record.reconsume_times + 1)
        key = key_of(again)

        def answered(answer: RemotingCommand | None) -> None:
            if answer is None or answer.code in _UNSURE:
                return
            if answer.code == ResponseCode.SUCCESS:
                is_dead = level == DEAD
                topic = DEAD_LETTERS.topic if is_dead else topic_names.SCHEDULE_TOPIC
                self._rules.returned(key, topic)
                return
            self._rules.refused([key])
            if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                self._make_group(member_id, RETURNERS)

        fields = SendBackFields(
            offset=position, group=RETURNERS, delay_level=level, origin_topic=record.topic
        )
        ask = Ask(int(RequestCode.CONSUMER_SEND_MSG_BACK), fields.to_ext())
        if self._ports.ask(client, member_id, ask, answered):
            self._pulled.pop()
