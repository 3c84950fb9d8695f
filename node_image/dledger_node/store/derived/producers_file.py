"""The table of producers on disk: the file `producers`, beside the checkpoint.

All numbers are big-endian and signed, except the checksum, which covers all bytes before it.

    offset size field
         0    8 magic          b"DLPRODUC"
         8    4 version        1
        12    4 producers      number of producers that follow
        16    8 index          the table is that of the log up to this entry
        24    8 term           term of that entry
        32    8 chain_crc      chain CRC of that entry, which identifies the log
        40      producers      of each: identity, number, last index, highest sequence (8 each),
                               number of indexes that follow, 0 or WINDOW (8), the indexes (8 each)
       end    4 CRC-32

With the file, a start need not read the whole log, and the table includes entries that were removed
from the front of the log. The file may be missing; a damaged one counts as missing.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger_formats.log.channels import PRODUCERS_MAX, WINDOW
from dledger_formats.log.checksum import crc32
from dledger_node.store.derived.producer import NOT_NOTED, Producer
from dledger_node.store.small_files.whole_file import load_if_sound, replace_file, saving

FILE_NAME: Final = "producers"
_MAGIC: Final = b"DLPRODUC"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">8siiqqq")
_PRODUCER: Final = struct.Struct(">qqqqq")
_CRC: Final = struct.Struct(">I")
_FILE_BYTES_MAX: Final = _HEAD.size + PRODUCERS_MAX * (_PRODUCER.size + 8 * WINDOW) + _CRC.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The producers of a log up to an entry."""

    index: int
    term: int
    chain_crc: int
    producers: Sequence[Producer]


def save(folder: Path, image: Image) -> None:
    """Replace the file atomically and durably; blocks for two fsyncs. Raises as `saving` does."""
    path = folder / FILE_NAME
    with saving(path):
        replace_file(path, encode(image))


def load(folder: Path) -> Image | None:
    """Read the file; None if it is missing or damaged."""
    return load_if_sound(folder / FILE_NAME, _FILE_BYTES_MAX, decode)


def encode(image: Image) -> bytes:
    """Encode the file."""
    parts = [
        _HEAD.pack(_MAGIC, _VERSION, len(image.producers), image.index, image.term, image.chain_crc)
    ]
    for producer in image.producers:
        parts.append(
            _PRODUCER.pack(
                producer.identity,
                producer.number,
                producer.last_index,
                producer.highest,
                len(producer.indexes),
            )
        )
        parts.append(_big_endian(producer.indexes).tobytes())
    raw = b"".join(parts)
    return raw + _CRC.pack(crc32(raw))


def decode(raw: bytes, *, window: int = WINDOW) -> Image:
    """Decode a file that was written with this window. Raises ValueError if it is damaged."""
    if len(raw) > _FILE_BYTES_MAX or len(raw) < _HEAD.size + _CRC.size:
        raise ValueError(f"the file has an impossible length: {len(raw)} bytes")
    end = len(raw) - _CRC.size
    if _CRC.unpack_from(raw, end) != (crc32(raw[:end]),):
        raise ValueError("the checksum does not match")
    magic, version, count, index, term, chain_crc = _HEAD.unpack_from(raw)
    if magic != _MAGIC or version != _VERSION:
        raise ValueError(
            f"expected {_MAGIC!r} of version {_VERSION}, found {magic!r} of version {version}"
        )
    producers = list(_producers(raw, end, count, window))
    for key in ("identity", "number"):
        if len({getattr(producer, key) for producer in producers}) != count:
            raise ValueError(f"two producers have the same {key}")
    if any(not _is_sound(producer, index) for producer in producers):
        raise ValueError("a producer has impossible values")
    return Image(index=index, term=term, chain_crc=chain_crc, producers=producers)


def _producers(raw: bytes, end: int, count: int, window: int) -> Iterator[Producer]:
    at = _HEAD.size
    for _ in range(count):
        if end - at < _PRODUCER.size:
            raise ValueError("the file ends within a producer")
        identity, number, last_index, highest, noted = _PRODUCER.unpack_from(raw, at)
        at += _PRODUCER.size
        if noted not in (0, window) or end - at < 8 * noted:
            raise ValueError(
                f"a producer has {noted} indexes instead of 0 or {window}, or the file ends "
                "within them"
            )
        indexes = array("q", raw[at : at + 8 * noted])
        at += 8 * noted
        yield Producer(
            identity=identity,
            number=number,
            last_index=last_index,
            highest=highest,
            indexes=_big_endian(indexes),
        )
    if at != end:
        raise ValueError(f"{end - at} bytes follow the last producer")


def _is_sound(producer: Producer, index: int) -> bool:
    return (
        0 <= producer.identity <= producer.last_index <= index
        and 1 <= producer.number <= PRODUCERS_MAX
        and (producer.highest > 0) == bool(producer.indexes)
        and producer.highest >= 0
        and all(NOT_NOTED <= noted <= index for noted in producer.indexes)
    )


def _big_endian(indexes: "array[int]") -> "array[int]":
    """Convert numbers between the machine's byte order and the file's."""
    copy = indexes[:]
    if sys.byteorder == "little":
        copy.byteswap()
    return copy
