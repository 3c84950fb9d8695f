"""Any byte of any file of the queues may be wrong: no reader gets a wrong message, or one less."""

import itertools
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_broker.messages import tag_filter
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.errors import UnitRefusedError, UnreadableError
from dledger_broker.queues.queue_store import QueueStore
from dledger_broker.queues.reader import SCAN_BYTES, Found, MessageReader, Wanted
from dledger_broker_log.crashes import contents
from dledger_broker_log.logs import HOSTS, Log, Send
from dledger_formats.log import disk
from dledger_formats.rocketmq.consume_queue import UNIT_BYTES

FILE_BYTES = 5 * UNIT_BYTES
SENDS = st.lists(
    st.builds(
        Send,
        st.sampled_from(["T", "U"]),
        st.integers(0, 1),
        tag=st.sampled_from(["", "TagA"]),
        body=st.binary(max_size=5),
        hosts=HOSTS,
    ),
    min_size=2,
    max_size=25,
)
WANTED = ("*", "TagA", "TagB")
DAMAGES = ("cut", "zeroed", "swapped", "flipped", "from another time", "gone")


class StoredLog:
    """The bytes of a model's log, as a member has them."""

    def __init__(self, log: Log) -> None:
        raw, chain_crc = bytearray(), 0
        for index, entry in enumerate(log.entries):
            assert entry is not None
            packed = disk.pack_entries(
                [entry.body], magic=disk.NORMAL, first_index=index, term=1, pos=len(raw),
                previous_chain_crc=chain_crc,
            )  # fmt: skip
            raw += packed.data
            chain_crc = packed.chain_crc
        self._raw = bytes(raw)

    def flip(self, at: int) -> None:
        """Damage a byte."""
        raw = bytearray(self._raw)
        raw[at] ^= 1
        self._raw = bytes(raw)

    def stored_at(self, pos: int, size: int) -> bytes:
        if not 0 <= pos < len(self._raw):
            raise LookupError(f"no segment holds the byte {pos}")
        return self._raw[pos : pos + size]


def damage(folder: Path, kind: str, earlier: dict[Path, bytes], chance: random.Random) -> None:
    """Damage one of the files below a folder; `earlier` has its contents at another time."""
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    raw = bytearray(path.read_bytes())
    at = chance.randrange(len(raw))
    end = chance.randrange(at, len(raw)) + 1
    match kind:
        case "cut":
            del raw[at:]
        case "zeroed":
            raw[at:end] = bytes(end - at)
        case "swapped":
            raw[at:] = raw[end:] + raw[at:end]
        case "flipped":
            raw[at] ^= 1 << chance.randrange(8)
        case "from another time":
            raw = bytearray(earlier.get(path.relative_to(folder), b""))
        case "gone":
            path.unlink()
            return
    path.write_bytes(raw)


def opened(folder: Path, log: Log) -> QueueStore:
    return QueueStore.open(folder, begin_index=0, mark_of=log.mark, file_bytes=FILE_BYTES)


def catch_up(store: QueueStore, log: Log, end: int) -> None:
    """Add what the store lacks, and save it."""
    mark = log.mark(end - 1)
    assert mark is not None
    if store.built_index < end - 1:
        store.add(log.batch(store.built_index + 1, end), mark)
    store.save()


def reader_of(store: QueueStore, stored: StoredLog) -> MessageReader:
    """Return a reader of a log that has its first entry, so that no message counts as removed."""
    nothing: Any = None
    return MessageReader(store, stored.stored_at, lambda: 0, lambda _: 0, lambda: 0, nothing)


def check_reads(store: QueueStore, log: Log) -> bool:
    """Read every queue from every offset, for each tag; return whether all messages were there."""
    stored = StoredLog(log)
    reader = reader_of(store, stored)
    is_whole = True
    for ((topic, queue_id), units), wanted in itertools.product(log.units.items(), WANTED):
        codes = tag_filter.codes_of(wanted)
        for offset in range(len(units)):
            try:
                found = reader.pull(
                    QueueId(topic, queue_id), offset, len(units),
                    Wanted(codes, 100, 1 << 20)
                )  # fmt: skip
            except (UnitRefusedError, UnreadableError):
                is_whole = False
                continue
            expected = [
                stored.stored_at(unit.physical_offset, unit.size)
                for unit in units[offset : found.next_offset]
                if codes is None or unit.tags_code in codes
            ]
            assert found.records == expected, "no message is wrong or skipped"
            is_whole &= found.next_offset > offset and found.is_complete
    return is_whole


@settings(max_examples=150, deadline=None)
@given(sends=SENDS, kind=st.sampled_from(DAMAGES), seed=st.integers(0, 1 << 20))
def test_a_damaged_file_yields_no_wrong_message_and_a_rebuild_mends_it(
    sends: list[Send], kind: str, seed: int
) -> None:
    log, chance = Log().extend(sends), random.Random(seed)
    memory = Path("/dev/shm")  # where a sync costs nothing
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        folder = Path(name) / "queues"
        store = opened(folder, log)
        catch_up(store, log, chance.randrange(1, len(sends)))
        earlier = contents(folder)
        catch_up(store, log, len(sends))
        assert check_reads(store, log)
        store.close()
        whole = contents(folder)

        damage(folder, kind, earlier, chance)
        store = opened(folder, log)
        catch_up(store, log, len(sends))
        if not check_reads(store, log):
            store.restart(0)
            catch_up(store, log, len(sends))
            assert check_reads(store, log)
            assert contents(folder) == whole
        store.close()


@pytest.mark.parametrize("bit", [0, 9, 31, 32, 63])
def test_a_unit_that_names_other_tags_than_its_message_is_refused(tmp_path: Path, bit: int) -> None:
    """A flipped bit in it would hide the message from consumers that want its tag."""
    log = Log().extend([Send("T", 0, tag="TagA"), Send("T", 0, tag="TagA")])
    store = opened(tmp_path / "queues", log)
    catch_up(store, log, 2)
    store.close()
    [path] = (tmp_path / "queues").rglob("0" * 20)
    raw = bytearray(path.read_bytes())
    raw[2 * UNIT_BYTES - 1 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)
    store = opened(tmp_path / "queues", log)
    reader = reader_of(store, StoredLog(log))

    for wanted in ("TagA", "TagB"):
        with pytest.raises(UnitRefusedError, match="names other tags"):
            reader.pull(
                QueueId("T", 0), 1, 2, Wanted(tag_filter.codes_of(wanted), 1, 100),
            )  # fmt: skip
    store.close()


def test_a_pull_of_a_rare_tag_reads_so_many_bytes_and_no_more(tmp_path: Path) -> None:
    body = bytes(SCAN_BYTES // 3)
    log = Log().extend([Send("T", 0, body=body) for _ in range(5)] + [Send("T", 0, tag="TagA")])
    store = QueueStore.open(tmp_path / "queues", begin_index=0, mark_of=log.mark)
    catch_up(store, log, 6)
    reader, at, looked = reader_of(store, StoredLog(log)), 0, []
    while at < 6:
        found = reader.pull(QueueId("T", 0), at, 6, Wanted(tag_filter.codes_of("TagA"), 1, 1))
        looked.append(found.next_offset - at)
        at = found.next_offset

    assert looked == [2, 2, 2]
    assert len(found.records) == 1
    store.close()


@pytest.mark.parametrize("wanted", WANTED[:2])
def test_a_pull_returns_what_comes_before_a_damaged_message(tmp_path: Path, wanted: str) -> None:
    """A message of another tag may be damaged, too."""
    log = Log().extend([Send("T", 0, tag=tag, body=b"x") for tag in ("TagA", "TagA", "TagB")])
    store = opened(tmp_path / "queues", log)
    catch_up(store, log, 3)
    stored = StoredLog(log)
    stored.flip(log.units["T", 0][2].physical_offset + 100)
    reader = reader_of(store, stored)

    def pull(offset: int) -> Found:
        return reader.pull(
            QueueId("T", 0), offset, 3, Wanted(tag_filter.codes_of(wanted), 9, 9999),
        )  # fmt: skip

    found = pull(0)
    assert (found.next_offset, len(found.records), found.is_complete) == (2, 2, True)
    with pytest.raises(UnreadableError):
        pull(2)
    store.close()


def test_a_unit_of_another_queue_is_refused(tmp_path: Path) -> None:
    log = Log().extend([Send("T", 0, body=b"one"), Send("T", 1, body=b"two")])
    store = opened(tmp_path / "queues", log)
    catch_up(store, log, 2)
    store.close()
    files = sorted((tmp_path / "queues").rglob("0" * 20))
    assert len(files) == 2
    files[0].write_bytes(files[1].read_bytes())
    store = opened(tmp_path / "queues", log)
    reader = reader_of(store, StoredLog(log))

    with pytest.raises(UnitRefusedError, match="names the message"):
        reader.pull(QueueId("T", 0), 0, 1, Wanted(None, 1, 100))
    store.close()
