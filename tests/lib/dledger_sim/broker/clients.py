"""Clients of a broker group: producers, consumers, and a reader of everything at the end.

A client asks any member. Without an answer in time, it resends a message as a new one to another
member, since it cannot know the outcome. So each body identifies one request.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq import message_batch, message_id, message_record
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.message_batch import BatchMessage
from dledger_sim.broker.administrators import DELETABLE, Administrators
from dledger_sim.broker.ordered import OrderedConsumers
from dledger_sim.broker.ports import Ask, Ports
from dledger_sim.broker.returners import DEAD_LETTERS, RETRIES, Returners
from dledger_sim.broker.wires import Wires
from dledger_sim.group.conditions import Conditions
from dledger_sim.judges.broker_log import BrokerLog, Place
from dledger_sim.judges.broker_rules import BrokerRules, OffsetKey

TOPICS: Final = ("orders", "bills")
QUEUES: Final = 2
READ: Final = (*TOPICS, DELETABLE, RETRIES.topic, DEAD_LETTERS.topic)
"""The topics that are read at the end."""
TRIES_MAX: Final = 3
REPEAT_US: Final = 2_000
READER: Final = 90
"""The client that reads everything."""
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4
_UNSURE: Final = (ResponseCode.SYSTEM_ERROR,)
"""Codes after which a message may be stored; after all other refusals it never is."""


class ClientWorld(Protocol):
    """The group, as its clients see it."""

    now_us: int
    conditions: Conditions
    broker_log: BrokerLog

    def begin_index(self, member_id: str) -> int:
        """Return the index of the first entry in a member's log."""

    def applied(self, member_id: str) -> tuple[int, int]:
        """Return a member's life, and the index up to which it has applied the log."""

    def after(self, delay_us: int, action: Callable[..., None], *arguments: object) -> None:
        """Plan an event."""


class BrokerClients:
    """All clients of a run."""

    def __init__(self, world: ClientWorld, rules: BrokerRules, wires: Wires) -> None:
        self.settle_s = 15.0
        """Time after which the longest delay of a message, and all waiting, is over."""
        self._world = world
        self._rules = rules
        self._ports = Ports(wires, world.after, self.us_of)
        self.ordered = OrderedConsumers(world, rules, self._ports, self.us_of)
        self.administrators = Administrators(rules, self._ports, QUEUES)
        self.returners = Returners(rules, self._ports, self.administrators.set_group)
        self._sent = 0
        self._next_offsets: dict[tuple[int, Place], int] = {}
        self._committing: set[OffsetKey] = set()
        self._unread: dict[tuple[str, Place], int] = {}
        self._unasked: set[OffsetKey] = set()

    @property
    def waits(self) -> bool:
        """Whether a client waits for an answer."""
        return self._ports.waits

    def us_of(self, broker_s: float) -> int:
        """Convert a duration of the brokers to one of the run."""
        return int(broker_s * 1e6 / self._world.conditions.broker_speed)

    # -- sending -----------------------------------------------------------------------------------

    def send(self, member_id: str, client: int, place: Place, level: int, count: int) -> None:
        """Send a message or a batch; resend it to other members until it is acknowledged."""
        self._try(member_id, client, place, level, count, 1)

    def send_once(self, member_id: str, ended: Callable[[bool], None]) -> None:
        """Send one message; call `ended` with whether it is stored."""
        keys = self._keys(1)

        def answered(answer: RemotingCommand | None) -> None:
            self._note_send(keys, 0, Place(TOPICS[0], 0), answer)
            ended(answer is not None and answer.code == ResponseCode.SUCCESS)

        ask = _send_ask(Place(TOPICS[0], 0), 0, keys)
        if not self._ports.ask(READER, member_id, ask, answered):
            ended(False)

    def _try(
        self, member_id: str, client: int, place: Place, level: int, count: int, number: int
    ) -> None:
        keys = self._keys(count)
        members = self._world.conditions.member_ids
        other = members[(members.index(member_id) + 1) % len(members)]
        again = partial(self._try, other, client, place, level, count, number + 1)

        def answered(answer: RemotingCommand | None) -> None:
            self._note_send(keys, level, place, answer)
            if (answer is None or answer.code != ResponseCode.SUCCESS) and number < TRIES_MAX:
                self._world.after(REPEAT_US, again)

        self._ports.ask(client, member_id, _send_ask(place, level, keys), answered)

    def _keys(self, count: int) -> list[bytes]:
        self._sent += count
        return [b"message %d" % number for number in range(self._sent - count, self._sent)]

    def _note_send(
        self, keys: Sequence[bytes], level: int, place: Place, answer: RemotingCommand | None
    ) -> None:
        if answer is None or answer.code in _UNSURE:
            return
        if answer.code == ResponseCode.SUCCESS:
            ids = (answer.ext_fields or {})["msgId"].split(",")
            positions = [message_id.parse(each).physical_offset for each in ids]
            offset = _number(answer, "queueOffset")
            self._rules.acknowledged(keys, level, place, offset, positions)
        else:
            self._rules.refused(keys)

    # -- consuming ---------------------------------------------------------------------------------

    def pull(self, member_id: str, client: int, place: Place, *, suspends: bool) -> None:
        """Pull from the client's position in a queue."""
        offset = self._next_offsets.get((client, place), 0)
        applied = self._world.applied(member_id)

        def answered(answer: RemotingCommand | None) -> None:
            if answer is not None:
                next_offset = self._note_pull(member_id, place, offset, answer, applied)
                if self._next_offsets.get((client, place), 0) == offset:
                    self._next_offsets[client, place] = next_offset

        self._ports.ask(client, member_id, _pull_ask(place, offset, suspends), answered)

    def _note_pull(
        self,
        member_id: str,
        place: Place,
        offset: int,
        answer: RemotingCommand,
        applied: tuple[int, int],
    ) -> int:
        """Show an answer to the rules; return the offset at which to continue.

        `applied` is what the member had applied when it was asked, and in which life: after a
        restart, it may have applied less.
        """
        if answer.code == ResponseCode.SUCCESS:
            next_offset = _number(answer, "nextBeginOffset")
            records = [bytes(raw) for raw in message_record.divide(answer.body)]
            is_same_life = self._world.applied(member_id)[0] == applied[0]
            applied_index = applied[1] if is_same_life else -1
            self._rules.pulled(place, offset, records, next_offset, applied_index)
            self.returners.pulled(records)
            return next_offset
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            next_offset = _number(answer, "nextBeginOffset")
            self._rules.moved(place, offset, next_offset, self._world.begin_index(member_id))
            return next_offset
        return offset

    def commit(self, member_id: str, client: int, place: Place) -> None:
        """Commit the next offset of the client's group, one after the other."""
        key = OffsetKey(group_of(client), *place)
        if key in self._committing:
            return
        offset = self._rules.commit_begins(key)

        def answered(answer: RemotingCommand | None) -> None:
            self._committing.discard(key)
            done = answer is not None and answer.code == ResponseCode.SUCCESS
            self._rules.commit_ends(key, offset, acknowledged=done)

        ask = Ask(
            int(RequestCode.UPDATE_CONSUMER_OFFSET),
            _offset_ext(key) | {"commitOffset": str(offset)},
        )
        self._committing.add(key)
        if not self._ports.ask(client, member_id, ask, answered):
            self._committing.discard(key)

    def query(self, member_id: str, client: int, place: Place) -> None:
        """Query the offset at which the client's group continues."""
        key = OffsetKey(group_of(client), *place)
        before = self._rules.query_begins(key)

        def answered(answer: RemotingCommand | None) -> None:
            if answer is not None and answer.code in _QUERIED:
                self._rules.queried(key, _offset_of(answer), before)

        ask = Ask(int(RequestCode.QUERY_CONSUMER_OFFSET), _offset_ext(key))
        self._ports.ask(client, member_id, ask, answered)

    # -- the end -----------------------------------------------------------------------------------

    def read_everything(self) -> None:
        """Begin to read every queue of every member, and every offset, until all was read."""
        places = [place for place in self._world.broker_log.queues if place.topic in READ]
        for member_id in self._world.conditions.member_ids:
            for place in places:
                begin_index = self._world.begin_index(member_id)
                queue = self._world.broker_log.queue(place)
                removed = sum(message.index < begin_index for message in queue)
                self._unread[member_id, place] = removed
                self._read_on(member_id, place)
        self._unasked = set(self._rules.offset_keys)
        for key in sorted(self._unasked):
            self._ask_offset(key)

    @property
    def has_read_everything(self) -> bool:
        """Whether all was read."""
        return not (self._unread or self._unasked)

    def _read_on(self, member_id: str, place: Place) -> None:
        offset = self._unread[member_id, place]
        if offset >= len(self._world.broker_log.queue(place)):
            del self._unread[member_id, place]
            return
        applied = self._world.applied(member_id)

        def answered(answer: RemotingCommand | None) -> None:
            if answer is not None:
                next_offset = self._note_pull(member_id, place, offset, answer, applied)
                self._unread[member_id, place] = next_offset
            self._world.after(REPEAT_US, self._read_on, member_id, place)

        if not self._ports.ask(READER, member_id, _pull_ask(place, offset, False), answered):
            self._world.after(REPEAT_US, self._read_on, member_id, place)

    def _ask_offset(self, key: OffsetKey) -> None:
        def answered(answer: RemotingCommand | None) -> None:
            if answer is None or answer.code not in _QUERIED:
                self._world.after(REPEAT_US, self._ask_offset, key)
                return
            self._rules.judge_offset(key, _offset_of(answer))
            self._unasked.discard(key)

        ask = Ask(int(RequestCode.QUERY_CONSUMER_OFFSET), _offset_ext(key))
        member_id = self._world.conditions.member_ids[0]
        if not self._ports.ask(READER, member_id, ask, answered):
            self._world.after(REPEAT_US, self._ask_offset, key)


_QUERIED: Final = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)


def group_of(client: int) -> str:
    """Return the consumer group of a client, which commits offsets."""
    return f"group{client}"


def _number(answer: RemotingCommand, name: str) -> int:
    return int((answer.ext_fields or {})[name])


def _offset_of(answer: RemotingCommand) -> int | None:
    return _number(answer, "offset") if answer.code == ResponseCode.SUCCESS else None


def _offset_ext(key: OffsetKey) -> dict[str, str]:
    return {
        "consumerGroup": key.group, "topic": key.topic, "queueId": str(key.queue_id),
        "setZeroIfNotFound": "false",
    }  # fmt: skip


def _send_ask(place: Place, level: int, keys: Sequence[bytes]) -> Ask:
    delay = f"DELAY\x01{level}\x02" if level else ""
    is_batch = len(keys) > 1
    ext = {
        "a": "producers", "b": place.topic, "c": "TBW102", "d": str(QUEUES),
        "e": str(place.queue_id), "f": "0", "g": "1", "h": "0", "i": delay, "j": "0",
        "k": "false", "m": "true" if is_batch else "false",
    }  # fmt: skip
    if not is_batch:
        return Ask(int(RequestCode.SEND_MESSAGE_V2), ext, keys[0])
    body = message_batch.encode([BatchMessage(0, key, b"") for key in keys])
    return Ask(int(RequestCode.SEND_BATCH_MESSAGE), ext, body)


def _pull_ask(place: Place, offset: int, suspends: bool) -> Ask:
    ext = {
        "consumerGroup": "consumers", "topic": place.topic, "queueId": str(place.queue_id),
        "queueOffset": str(offset), "maxMsgNums": "8",
        "sysFlag": str(SUBSCRIPTION | (SUSPEND if suspends else 0)), "commitOffset": "0",
        "suspendTimeoutMillis": "2000" if suspends else "0", "subscription": "*",
        "subVersion": "1", "expressionType": "TAG",
    }  # fmt: skip
    return Ask(int(RequestCode.PULL_MESSAGE), ext)
