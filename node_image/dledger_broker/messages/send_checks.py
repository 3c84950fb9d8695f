"""A send, checked and turned into records that only lack what the leader stamps."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from dledger_formats.json_objects import FormatError
from dledger_formats.rocketmq import message_batch, message_record, properties, topic_names
from dledger_formats.rocketmq.codes import MessageSysFlag, ResponseCode
from dledger_formats.rocketmq.message_record import MessageRecord, MessageRecordError
from dledger_formats.rocketmq.sends import SendMessageFields

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
_TRANSACTION: Final = int(MessageSysFlag.TRANSACTION_ROLLBACK)
_REFUSED_FLAGS: Final = 64 | 128
"""Inner batches of 5.x, which need a consume queue of their own."""
_IPV6: Final = int(MessageSysFlag.BORN_HOST_IPV6), int(MessageSysFlag.STORE_HOST_IPV6)
_IPV4_BYTES: Final = 8
_UNIQ_KEY: Final = properties.UNIQ_KEY.encode()
_TIMERS: Final = (b"TIMER_DELIVER_MS", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS")
_DELAY: Final = properties.DELAY.encode()
_TRANSACTION_PROPERTY: Final = b"TRAN_MSG"
_OURS: Final = properties.SCHEDULED.encode()


class RefusedError(Exception):
    """A request that is answered with a code other than success."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


@dataclass(frozen=True, slots=True)
class Hosts:
    """Origin and storing member of a message, as `message_record.pack_host` returns them."""

    born: bytes
    store: bytes


def check_topic(topic: str) -> None:
    """Refuse a topic that no client may send to. Raises RefusedError."""
    if not topic_names.is_valid(topic):
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"{topic[:150]!r} is no name of a topic: 1 to 127 of the letters a-z A-Z 0-9 _ - % |",
        )
    if topic_names.is_system(topic):
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER, f"{topic} is a topic of the system; use another one"
        )


def messages_of(
    fields: SendMessageFields, queue_id: int, body: bytes, hosts: Hosts, *, is_batch: bool
) -> list[MessageRecord]:
    """Return the messages of a send, without what the leader stamps. Raises RefusedError."""
    if len(body) > BODY_BYTES_MAX:
        raise _illegal(f"the body has {len(body)} bytes; at most {BODY_BYTES_MAX} are allowed")
    if (fields.reconsume_times or 0) < 0:
        raise _illegal(f"reconsumeTimes is {fields.reconsume_times}; it counts from 0")
    try:
        sys_flag = _sys_flag(fields, hosts)
        if not is_batch:
            encoded = (fields.properties or "").encode()
            return [_record(fields, queue_id, body, fields.flag, encoded, hosts, sys_flag)]
        if fields.topic.startswith(topic_names.RETRY_PREFIX):
            raise _illegal("a batch to a retry topic is not allowed")
        messages = message_batch.decode(body)
        if any(
            _DELAY in one.properties and properties.find(one.properties, _DELAY) not in (None, b"0")
            for one in messages
        ):
            raise _illegal("a batch with delayed messages is not allowed")
        return [
            _record(fields, queue_id, one.body, one.flag, one.properties, hosts, sys_flag)
            for one in messages
        ]
    except (FormatError, UnicodeEncodeError) as error:
        raise _illegal(str(error)) from error


def records_of_batch(
    fields: SendMessageFields, queue_id: int, body: bytes, hosts: Hosts
) -> list[bytearray]:
    """Return the records of the messages of a batch. Raises RefusedError."""
    return encode(messages_of(fields, queue_id, body, hosts, is_batch=True))


def stored_by(message: MessageRecord, host: bytes) -> MessageRecord:
    """Return a message as this member stores it."""
    sys_flag = message.sys_flag & ~_IPV6[1]
    if len(host) > _IPV4_BYTES:
        sys_flag |= _IPV6[1]
    return msgspec.structs.replace(message, sys_flag=sys_flag, store_host=host)


def encode(messages: Iterable[MessageRecord]) -> list[bytearray]:
    """Return the records of messages. Raises RefusedError."""
    try:
        return [message_record.encode(message) for message in messages]
    except MessageRecordError as error:
        raise _illegal(str(error)) from error


def unique_key(fields: SendMessageFields) -> str | None:
    """Return the client's own id of a message, or of the first of a batch."""
    if fields.properties is None:
        return None
    found = properties.find(fields.properties.encode(errors="replace"), _UNIQ_KEY)
    return None if found is None else found.decode(errors="replace")


def _record(
    fields: SendMessageFields,
    queue_id: int,
    body: bytes,
    flag: int,
    encoded: bytes,
    hosts: Hosts,
    sys_flag: int,
) -> MessageRecord:
    _check_properties(encoded)
    if _OURS in encoded:  # a consumer sends a message again that was delayed
        encoded = properties.without(encoded, _OURS)
    return MessageRecord(
        fields.topic, queue_id, 0, 0, body, encoded, flag, sys_flag, fields.born_timestamp,
        hosts.born, 0, hosts.store, fields.reconsume_times or 0,
    )  # fmt: skip


def _sys_flag(fields: SendMessageFields, hosts: Hosts) -> int:
    """Return the flags that all messages of a send are stored with. Raises RefusedError."""
    sys_flag = fields.sys_flag & ~(_IPV6[0] | _IPV6[1])
    if sys_flag & _TRANSACTION:
        raise RefusedError(ResponseCode.NO_PERMISSION, "transactions are not supported")
    if sys_flag & _REFUSED_FLAGS:
        raise _illegal("inner batches are not supported")
    if len(hosts.born) > _IPV4_BYTES:
        sys_flag |= _IPV6[0]
    if len(hosts.store) > _IPV4_BYTES:
        sys_flag |= _IPV6[1]
    return sys_flag


def _check_properties(encoded: bytes) -> None:
    """Refuse properties that ask for what is not supported. Raises RefusedError."""
    if b"TIMER_" in encoded:
        for name in _TIMERS:
            if properties.find(encoded, name) is not None:
                raise _illegal(f"{name.decode()} is not supported; messages would not be delayed")
    if _TRANSACTION_PROPERTY in encoded:
        found = properties.find(encoded, _TRANSACTION_PROPERTY)
        if found is not None and found.lower() == b"true":
            raise RefusedError(ResponseCode.NO_PERMISSION, "transactions are not supported")


def _illegal(remark: str) -> RefusedError:
    return RefusedError(ResponseCode.MESSAGE_ILLEGAL, remark)
