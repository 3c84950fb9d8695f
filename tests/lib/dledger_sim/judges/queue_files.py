"""Finds units of deleted topics in the files of a member's consume queues. There should be none:
the messages of a topic that is created again would be mixed with the old ones.
"""

from collections.abc import Collection
from pathlib import Path

from dledger_formats.rocketmq.consume_queue import UNIT
from dledger_sim.judges.broker_log import BrokerLog


def positions_of_deleted(log: BrokerLog) -> set[int]:
    """Return the positions in the log of all messages whose topic was deleted after them."""
    return {
        message.record.physical_offset
        for queues in log.deleted.values()
        for queue in queues
        for message in queue.messages
    }


def has_any(folder: Path, topics: Collection[str], positions: set[int]) -> bool:
    """Return whether a file of these topics has a unit of a message at one of the positions."""
    return any(
        unit[0] in positions
        for topic in topics
        for path in (folder / topic).rglob("*")
        if path.is_file()
        for unit in UNIT.iter_unpack(_whole_units(path.read_bytes()))
    )


def _whole_units(raw: bytes) -> bytes:
    return raw[: len(raw) - len(raw) % UNIT.size]
