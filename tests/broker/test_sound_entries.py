"""The short way to check an entry takes none that the long way refuses."""

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from dledger_broker.messages import tag_filter
from dledger_broker.queues import reader
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.entry_runs import EntryRuns
from dledger_broker.queues.errors import UnitRefusedError, UnreadableError
from dledger_broker.queues.reader import MessageReader, Wanted
from dledger_broker.queues.sound_entries import sound_records
from dledger_broker_log.logs import BORN_HOST_IPV6, STORE_HOST_IPV6, Log, Send
from dledger_formats.log import disk
from dledger_formats.rocketmq.consume_queue import Unit

QUEUE = QueueId("orders", 1)
COUNT = 3
TAGS = ["*", "TagA", "TagB"]
HOSTS = [BORN_HOST_IPV6 | STORE_HOST_IPV6, BORN_HOST_IPV6, STORE_HOST_IPV6]
Pulled: TypeAlias = tuple[list[bytes], str]


def stored(log: Log, *, with_crc: bool = True) -> bytearray:
    """Return the bytes of a log; those of Java have no checksums."""
    raw, chain_crc = bytearray(), 0
    for index, entry in enumerate(log.entries):
        assert entry is not None
        data, _, chain_crc = disk.pack_entries(
            [entry.body], magic=disk.NORMAL, first_index=index, term=1, pos=len(raw),
            previous_chain_crc=chain_crc,
        )  # fmt: skip
        if not with_crc:
            data[disk.CHAIN_CRC_OFFSET : disk.CHAIN_CRC_OFFSET + 8] = bytes(8)
        raw += data
    return raw


def log_of(hosts: int = 0) -> Log:
    """Return a log of some messages, with the hosts' bits of sysFlag."""
    return Log().extend([Send(*QUEUE, tag="TagA", body=bytes(20), hosts=hosts)] * COUNT)


class Kept:
    """Some messages of a queue in a log, which may be damaged."""

    def __init__(self, log: Log | None = None, *, with_crc: bool = True) -> None:
        log = log or log_of()
        self.raw = stored(log, with_crc=with_crc)
        self.found_units = list(log.units[QUEUE])
        self.records = [
            self.stored_at(unit.physical_offset, unit.size) for unit in self.found_units
        ]

    def units(self, _topic: str, _queue_id: int, first: int, count: int) -> list[Unit]:
        return self.found_units[first : first + count]

    def stored_at(self, pos: int, size: int) -> bytes:
        if not 0 <= pos < len(self.raw):
            raise LookupError(f"no segment holds the byte {pos}")
        return bytes(self.raw[pos : pos + size])

    def sound(self, created_index: int = 0, bytes_max: int = 9999) -> list[bytes]:
        """Return the records that need no closer look."""
        runs = EntryRuns(self.stored_at, self.found_units)
        return sound_records(runs, QUEUE, 0, created_index, bytes_max)

    def pulled(self, tags: str, at_once: int = COUNT) -> Pulled:
        """Return what a consumer gets that pulls so many messages at once, and the error at last;
        empty if there is none.
        """
        nothing: Any = None
        found_by = MessageReader(self, self.stored_at, lambda: 0, lambda _: 0, lambda: 0, nothing)
        records: list[bytes] = []
        offset = 0
        while offset < COUNT:
            wanted = Wanted(tag_filter.codes_of(tags), at_once, 9999)
            try:
                found = found_by.pull(QUEUE, offset, COUNT, wanted)
            except (UnitRefusedError, UnreadableError) as error:
                place_in_run = r" at byte \d+"
                return records, f"{type(error).__name__}: {re.sub(place_in_run, '', str(error))}"
            if not found.is_complete:
                return records, f"unit {offset} is missing"
            records += found.records
            offset = found.next_offset
        return records, ""


Slowly: TypeAlias = Callable[[Kept, str], Pulled]


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> Slowly:
    """Returns what a consumer gets if each message is looked at closely, and by itself."""

    def pulled(kept: Kept, tags: str) -> Pulled:
        with monkeypatch.context() as patch:
            patch.setattr(reader, "sound_records", lambda *_, **__: [])
            return kept.pulled(tags, at_once=1)

    return pulled


@pytest.mark.parametrize("with_crc", [True, False])
def test_sound_messages_need_no_closer_look(*, with_crc: bool) -> None:
    kept = Kept(with_crc=with_crc)

    assert kept.sound() == kept.records


@pytest.mark.parametrize("hosts", HOSTS)
def test_messages_with_addresses_of_ipv6_need_no_closer_look(hosts: int) -> None:
    kept = Kept(log_of(hosts))

    assert kept.sound() == kept.records


@pytest.mark.parametrize("tags", TAGS)
@pytest.mark.parametrize("with_crc", [True, False])
@pytest.mark.parametrize("hosts", [0, HOSTS[0]])
def test_a_changed_byte_of_the_log_makes_the_difference_that_it_always_made(
    slowly: Slowly, tags: str, hosts: int, *, with_crc: bool
) -> None:
    kept = Kept(log_of(hosts), with_crc=with_crc)
    size = len(kept.raw) // COUNT
    for at in range(size, 2 * size):
        for bit in (0x01, 0x10, 0x20, 0x80):
            kept.raw[at] ^= bit
            assert kept.pulled(tags) == slowly(kept, tags), f"bit {bit} of byte {at - size}"
            kept.raw[at] ^= bit


@pytest.mark.parametrize("tags", TAGS)
@pytest.mark.parametrize("number", range(COUNT))
def test_a_wrong_unit_makes_the_difference_that_it_always_made(
    slowly: Slowly, number: int, tags: str
) -> None:
    kept = Kept()
    unit = kept.found_units[number]
    for place in (0, 1, -1, 48, -48, unit.size + 48, -unit.size - 48, 1 << 40, -(1 << 40)):
        for size in (0, 1, -1, -unit.size, -1 - unit.size, 1 << 30):
            kept.found_units[number] = unit._replace(
                physical_offset=unit.physical_offset + place, size=unit.size + size
            )
            assert kept.pulled(tags) == slowly(kept, tags), (place, size)


def test_messages_of_an_earlier_topic_of_the_name_need_a_closer_look() -> None:
    assert Kept().sound(created_index=1) == []


def test_a_record_ends_within_the_bytes_that_are_wanted() -> None:
    kept = Kept()
    size = len(kept.records[0])

    assert len(kept.sound(bytes_max=2 * size)) == 2
    assert kept.sound(bytes_max=size - 1) == []


@pytest.mark.parametrize("topic", ["order", "orders1", "x" * 128, "x" * 255])
def test_messages_of_another_topic_need_a_closer_look(topic: str) -> None:
    kept = Kept()
    runs = EntryRuns(kept.stored_at, kept.found_units)

    assert sound_records(runs, QueueId(topic, 1), 0, 0, 9999) == []


def test_long_properties_need_a_closer_look_if_tags_are_wanted() -> None:
    """To find and hash such tags took 15 ms of the event loop."""
    log = Log().extend([Send(*QUEUE, tag="x" * 2000, body=b"body")])
    kept = Kept(log)
    runs = EntryRuns(kept.stored_at, kept.found_units)

    assert sound_records(runs, QUEUE, 0, 0, 9999) == kept.records
    assert sound_records(runs, QUEUE, 0, 0, 9999, with_tags=True) == []
