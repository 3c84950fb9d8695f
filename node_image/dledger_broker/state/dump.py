"""The state as the bytes of a snapshot: lines of JSON, each an array that begins with its kind.

    ["DLBROKER",1,{"topics":[7,…],"groups":[2,…],"delays":[0,…],"lastPhysicalOffset":4096}]
    ["topic",name,config or null,createdIndex,[next offset of each queue]]
    ["group",config]
    ["offsets",group,topic,[offset of each queue, -1 if unset]]
    ["client",clientId,consumer]
    ["lock",group,topic,queueId,clientId]
    ["end",number of lines before this one]

The lines of a kind are in the order in which the log made them, which is the same at all members;
so members that applied the same entries dump the same bytes.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, BinaryIO, Final, TypeAlias

import msgspec

from dledger_broker.state.groups import (
    CLIENTS_BYTES_MAX,
    CLIENTS_MAX,
    GROUPS_MAX,
    Queue,
)
from dledger_broker.state.tables import NO_OFFSET, Tables, TableVersion
from dledger_broker.state.topics import Topic
from dledger_formats.json_objects import FormatError, parse
from dledger_formats.protocol.decoding import Int64
from dledger_formats.rocketmq import delay_levels
from dledger_formats.rocketmq.consumer_groups import Consumer
from dledger_formats.rocketmq.state_records import ClientId, Name, Offset, QueueId
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topics import TopicConfig

MAGIC: Final = "DLBROKER"
VERSION: Final = 1
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A topic with as many queues as possible has 2 MiB."""
_PIECE_BYTES: Final = 64 * 1024

_OffsetOrUnset: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=(1 << 63) - 1)]
_encode = msgspec.json.Encoder().encode


class _Head(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    topics: tuple[Offset, Int64]
    groups: tuple[Offset, Int64]
    delays: Annotated[list[Offset], msgspec.Meta(
        min_length=delay_levels.LEVEL_MAX, max_length=delay_levels.LEVEL_MAX
    )]  # fmt: skip
    last_physical_offset: Annotated[int, msgspec.Meta(ge=NO_OFFSET, le=(1 << 63) - 1)]


def dump(tables: Tables) -> Iterator[bytes]:
    """Yield the bytes of the tables, piece by piece."""
    piece = bytearray()
    count = 0
    for line in _lines(tables):
        piece += _encode(line)
        piece += b"\n"
        count += 1
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece) + _encode(("end", count)) + b"\n"


def load(file: BinaryIO) -> Tables:
    """Read the tables. Raises ValueError, which names the line, if the bytes are not a dump."""
    tables = Tables()
    lines = _parsed(file)
    kind, count = "nothing", 0
    for count, (kind, *values) in enumerate(lines):
        if kind == "end":
            if values != [count]:
                raise ValueError(f"the dump of a broker announces {values} lines, but has {count}")
            break
        try:
            wrong = _restore(tables, count, kind, values)
        except (msgspec.ValidationError, FormatError) as error:
            wrong = str(error)
        if wrong is not None:
            raise ValueError(f"line {count + 1} of the dump of a broker, {kind!r}: {wrong}")
    if kind != "end":
        raise ValueError(f"the dump of a broker ends after {count + 1} lines")
    if next(lines, None) is not None:
        raise ValueError(f"the dump of a broker goes on after line {count + 1}, its end")
    return tables


def _lines(tables: Tables) -> Iterator[tuple[Any, ...]]:
    head = _Head(
        topics=tables.topics_version,
        groups=tables.groups_version,
        delays=tables.delay_positions,
        last_physical_offset=tables.last_physical_offset,
    )
    groups = tables.groups
    return chain(
        [(MAGIC, VERSION, head)],
        (
            ("topic", name, topic.config, topic.created_index, topic.next_offsets)
            for name, topic in tables.topics.by_name.items()
        ),
        (("group", config) for config in groups.configs.values()),
        (("offsets", *pair, offsets) for pair, offsets in tables.offsets.by_pair.items()),
        (
            ("client", client_id, consumer)
            for members in groups.clients.values()
            for client_id, consumer in members.items()
        ),
        (("lock", *queue, client_id) for queue, client_id in groups.holders.items()),
    )


def _parsed(file: BinaryIO) -> Iterator[list[Any]]:
    """Yield each line as an array that is not empty."""
    number = 0
    while line := file.readline(LINE_BYTES_MAX):
        number += 1
        try:
            values = parse(line)
        except FormatError as error:
            raise ValueError(f"line {number} of the dump of a broker: {error}") from error
        if not isinstance(values, list) or not values or not line.endswith(b"\n"):
            raise ValueError(f"line {number} of the dump of a broker: {line[:60]!r}")
        yield values


def _restore(tables: Tables, number: int, kind: Any, values: list[Any]) -> str | None:
    """Take over one line. Returns what is wrong with it."""
    if (number == 0) != (kind == MAGIC):
        return f"the first line, and no other, begins with {MAGIC}"
    restore = _LINES.get(kind) if isinstance(kind, str) else None
    return "an unknown kind of line" if restore is None else restore(tables, values)


def _restore_head(tables: Tables, values: list[Any]) -> str | None:
    version, head = msgspec.convert(values, tuple[int, _Head])
    tables.topics_version = TableVersion(*head.topics)
    tables.groups_version = TableVersion(*head.groups)
    tables.delay_positions = head.delays
    tables.last_physical_offset = head.last_physical_offset
    return None if version == VERSION else f"version {version}, where {VERSION} is known"


def _restore_topic(tables: Tables, values: list[Any]) -> str | None:
    name, config, index, offsets = msgspec.convert(
        values, tuple[Name, TopicConfig | None, Offset, list[Offset]]
    )
    return tables.topics.restore(name, Topic(config, index, offsets))


def _restore_group(tables: Tables, values: list[Any]) -> str | None:
    (group,) = msgspec.convert(values, tuple[SubscriptionGroup])
    configs = tables.groups.configs
    if group.group_name in configs or len(configs) >= GROUPS_MAX:
        return f"the group {group.group_name[:150]!r}"
    configs[group.group_name] = group
    return None


def _restore_offsets(tables: Tables, values: list[Any]) -> str | None:
    group, topic, offsets = msgspec.convert(values, tuple[Name, Name, list[_OffsetOrUnset]])
    return tables.offsets.restore(group, topic, offsets)


def _restore_client(tables: Tables, values: list[Any]) -> str | None:
    client_id, consumer = msgspec.convert(values, tuple[ClientId, Consumer])
    groups = tables.groups
    if client_id in groups.clients.get(consumer.group_name, {}):
        return f"the client {client_id!r} is there twice"
    groups.join(client_id, consumer)
    if groups.clients_count > CLIENTS_MAX or groups.clients_bytes > CLIENTS_BYTES_MAX:
        return f"{groups.clients_count} clients with {groups.clients_bytes} bytes"
    return None


def _restore_lock(tables: Tables, values: list[Any]) -> str | None:
    group, topic, queue_id, client_id = msgspec.convert(
        values, tuple[Name, Name, QueueId, ClientId]
    )
    queue, groups = Queue(group, topic, queue_id), tables.groups
    if queue in groups.holders or not groups.lock(client_id, queue):
        return f"the lock of {queue}"
    return None


_LINES: Final[Mapping[str, Callable[[Tables, list[Any]], str | None]]] = {
    MAGIC: _restore_head,
    "topic": _restore_topic,
    "group": _restore_group,
    "offsets": _restore_offsets,
    "client": _restore_client,
    "lock": _restore_lock,
}
