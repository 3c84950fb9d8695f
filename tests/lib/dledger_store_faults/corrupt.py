"""Corrupt bytes of a stopped store, open it, and judge the result.

There are three references: a member that stopped cleanly, one that was killed some entries after
its last checkpoint, and one without a checkpoint. Each corruption is one fault in one file.

Not included: a missing first segment, which looks like retention; and zeroed entries after the
checkpoint, which look like a crash.
"""

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dledger_formats.log import disk
from dledger_node.errors import NodeError
from dledger_node.raft.ready import HardState
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.recovery import MARGIN_BYTES
from dledger_node.store.small_files.hard_state import load_hard_state, save_hard_state
from dledger_store_faults.contents import SMALL_SEGMENTS, body_of
from dledger_store_faults.crash import Image, write_image
from dledger_store_faults.tally import Tally

BLOCK_BYTES = 512
ENTRIES, ENTRIES_OF_FIRST_TERM, CHECKPOINTED = 50, 30, 41
COMMITTED = 33
HARD_STATE = HardState(term=417, vote_for="n2")
_ENTRY_FIELDS = {
    "magic": 4, "size": 4, "index": 8, "term": 8, "pos": 8, "channel": 4, "chain_crc": 4,
    "body_crc": 4, "body_size": 4,
}  # fmt: skip
_UNIT_FIELDS = {"magic": 4, "pos": 8, "size": 4, "index": 8, "term": 8}


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes with one meaning."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reference:
    """The files of a store, and its content."""

    image: Image
    spans: dict[str, list[Span]]
    """Spans by their meaning."""
    last_durable: int
    """The last entry that must not be lost without an error."""
    checkpointed: bool


@dataclass(frozen=True, slots=True)
class Corruption:
    """One fault."""

    kind: str
    path: str
    detail: str
    image: Image


def judge_corruptions(
    top: Path, count: int, seed: int, *, margin_bytes: int = MARGIN_BYTES
) -> Tally:
    """Judge `count` corruptions, the kinds in turn; a start verifies `margin_bytes`."""
    choices, tally, began = random.Random(seed), Tally(), time.monotonic()
    stores = [reference(top / "reference", kind) for kind in ("stopped", "killed", "unmarked")]
    while tally.faults < count:
        store = choices.choice(stores)
        corruption = KINDS[tally.faults % len(KINDS)](store, choices)
        if corruption.image == store.image:
            continue
        tally.faults += 1
        tally.acknowledged += ENTRIES
        write_image(top / "image", corruption.image)
        broken = _broken_by(top / "image", store, corruption, tally, margin_bytes)
        tally.blame(f"{corruption.kind} {corruption.detail}: {promise}" for promise in broken)
    tally.seconds = time.monotonic() - began
    return tally


def reference(folder: Path, kind: str) -> Reference:
    """Write a store of this kind, and read its files."""
    shutil.rmtree(folder, ignore_errors=True)
    store = LogStore.open(folder, **SMALL_SEGMENTS)
    save_hard_state(folder, HARD_STATE)
    for index in range(ENTRIES):
        term = term_of(index)
        store.append_bodies([body_of(index, term)], term)
        if index == CHECKPOINTED:
            _flush(store)
            store.save_checkpoint(COMMITTED)
    if kind == "killed":
        image = _read(folder)
        store.close()
    else:
        store.close()
        image = _read(folder)
    if kind == "unmarked":
        del image["checkpoint"]
    last_durable = CHECKPOINTED if kind == "killed" else ENTRIES - 1
    return Reference(image, _spans(image), last_durable, kind != "unmarked")


def term_of(index: int) -> int:
    """Return the term of an entry of a reference."""
    return 3 if index < ENTRIES_OF_FIRST_TERM else 7


def _broken_by(
    folder: Path, store: Reference, corruption: Corruption, tally: Tally, margin_bytes: int
) -> list[str]:
    broken: list[str] = []
    try:
        state = load_hard_state(folder)
    except NodeError:
        tally.count("term refused")
    else:
        if state != HARD_STATE:
            broken.append(f"{state} is accepted, but {HARD_STATE} was saved")
    try:
        opened = LogStore.open(folder, **SMALL_SEGMENTS, margin_bytes=margin_bytes)
    except NodeError:
        tally.count("refused")
        return broken
    try:
        broken += _broken_by_log(opened, store, corruption, tally)
    finally:
        opened.close()
    return broken


def _broken_by_log(
    opened: LogStore, store: Reference, corruption: Corruption, tally: Tally
) -> list[str]:
    broken: list[str] = []
    if opened.begin_index != 0:
        broken.append(f"the log begins at {opened.begin_index}")
    if opened.committed_index not in {COMMITTED if store.checkpointed else -1, -1}:
        broken.append(f"committed index {opened.committed_index} is accepted")
    if opened.end_index < store.last_durable and not _may_be_cut(store, corruption):
        broken.append(f"entries from {opened.end_index + 1} on are lost ({opened.recovery})")
    refused = 0
    for index in range(opened.begin_index, opened.end_index + 1):
        try:
            header, body = opened.entry(index)
        except NodeError:
            refused += 1
            continue
        if (header.index, header.term, body) != (index, term_of(index), _true_body(index)):
            broken.append(f"entry {index} is served as {header} {body!r:.80}")
    tally.count("read refused", refused > 0)
    tally.count("cut", opened.end_index < ENTRIES - 1)
    tally.count("unharmed", refused == 0 and opened.end_index == ENTRIES - 1)
    return broken


def _may_be_cut(store: Reference, corruption: Corruption) -> bool:
    """Return whether recovery may mistake the damage for a torn tail, as without a checkpoint."""
    return not store.checkpointed and corruption.path.startswith("data/")


def _true_body(index: int) -> bytes:
    return body_of(index, term_of(index))


def _flush(store: LogStore) -> None:
    target = store.flush_target()
    store.flush(target)
    store.flushed(target)


def _read(folder: Path) -> Image:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock" and not path.name.endswith(".spare")
    }


def _spans(image: Image) -> dict[str, list[Span]]:
    spans: dict[str, list[Span]] = {}

    def add(kind: str, path: str, start: int, end: int) -> None:
        if end > start:
            spans.setdefault(kind, []).append(Span(path, start, end))

    for path, content in image.items():
        if path.startswith("data/"):
            at = 0
            while at < len(content) and any(content[at : at + disk.BLANK_SIZE_MIN]):
                magic, size = disk.BLANK_HEADER.unpack_from(content, at)
                if magic == disk.BLANK:
                    add("blank", path, at, at + disk.BLANK_SIZE_MIN)
                    add("blank's zeros", path, at + disk.BLANK_SIZE_MIN, at + size)
                else:
                    field_at = at
                    for name, length in _ENTRY_FIELDS.items():
                        add(f"entry {name}", path, field_at, field_at + length)
                        field_at += length
                    add("entry body", path, field_at, at + size)
                at += size
            add("after the end", path, at, len(content))
        elif path.startswith("index/"):
            for at in range(0, len(content), disk.INDEX_UNIT_SIZE):
                if not any(content[at : at + disk.INDEX_UNIT_SIZE]):
                    add("after the index", path, at, len(content))
                    break
                for name, length in _UNIT_FIELDS.items():
                    add(f"unit {name}", path, at, at + length)
                    at += length
        else:
            add(path, path, 0, len(content))
    return spans


def _changed(store: Reference, path: str, content: bytes) -> Image:
    return {**store.image, path: content}


def flip(store: Reference, choices: random.Random) -> Corruption:
    """Flip bits of one byte; each kind of field is equally likely."""
    kind = choices.choice(sorted(store.spans))
    span = choices.choice(store.spans[kind])
    at, bits = choices.randrange(span.start, span.end), choices.randrange(1, 256)
    content = bytearray(store.image[span.path])
    content[at] ^= bits
    detail = f"{kind}, {span.path} byte {at} ^ {bits:02x}"
    return Corruption("flip", span.path, detail, _changed(store, span.path, bytes(content)))


def zero_run(store: Reference, choices: random.Random) -> Corruption:
    """Zero a run of bytes, of any length or of whole blocks."""
    path = choices.choice(sorted(store.image))
    content = bytearray(store.image[path])
    if choices.randrange(2):
        at, size = _block(content, choices), BLOCK_BYTES * choices.randrange(1, 9)
    else:
        at, size = choices.randrange(len(content)), choices.randrange(1, 200)
    end = min(len(content), at + size)
    content[at:end] = bytes(end - at)
    return Corruption(
        "zeros", path, f"{path} bytes {at} to {end}", _changed(store, path, bytes(content))
    )


def shorten(store: Reference, choices: random.Random) -> Corruption:
    """Shorten a file."""
    path = choices.choice(sorted(store.image))
    length = choices.randrange(len(store.image[path]))
    image = _changed(store, path, store.image[path][:length])
    return Corruption("shorten", path, f"{path} to {length} bytes", image)


def swap_blocks(store: Reference, choices: random.Random) -> Corruption:
    """Swap two blocks of the same kind of file."""
    return _move_blocks(store, choices, both=True)


def duplicate_block(store: Reference, choices: random.Random) -> Corruption:
    """Copy a block over another one, as a misdirected write does."""
    return _move_blocks(store, choices, both=False)


def remove_file(store: Reference, choices: random.Random) -> Corruption:
    """Remove a file, but not the first segment (see the module's docstring)."""
    paths = [path for path in sorted(store.image) if not _is_first_segment(path)]
    path = choices.choice([path for path in paths if path != "currterm"])
    image = {name: content for name, content in store.image.items() if name != path}
    return Corruption("remove", path, path, image)


def _move_blocks(store: Reference, choices: random.Random, *, both: bool) -> Corruption:
    folder = choices.choice(["data/", "index/"])
    paths = [path for path in sorted(store.image) if path.startswith(folder)]
    here, there = choices.choice(paths), choices.choice(paths)
    at, other = _block(store.image[here], choices), _block(store.image[there], choices)
    image = dict(store.image)
    size = min(BLOCK_BYTES, len(image[here]) - at, len(image[there]) - other)
    block, its_place = image[there][other : other + size], image[here][at : at + size]
    image[here] = image[here][:at] + block + image[here][at + size :]
    if both:
        image[there] = image[there][:other] + its_place + image[there][other + size :]
    kind = "swap" if both else "duplicate"
    return Corruption(kind, here, f"{here} byte {at} and {there} byte {other}", image)


def _block(content: bytes | bytearray, choices: random.Random) -> int:
    return choices.randrange(-(-len(content) // BLOCK_BYTES)) * BLOCK_BYTES


def _is_first_segment(path: str) -> bool:
    return path == f"{disk.DATA_FOLDER}/{disk.file_name(0)}"


KINDS: tuple[Callable[[Reference, random.Random], Corruption], ...] = (
    flip, flip, flip, zero_run, shorten, swap_blocks, duplicate_block, remove_file,
)  # fmt: skip
