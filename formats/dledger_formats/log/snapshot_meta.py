"""`snapshot_meta`: the entries that a snapshot includes, as JSON.

`lastIncludedIndex` and `lastIncludedTerm` are DLedger's keys. Its reader ignores the others: size
and CRC-32 of the file `data` beside it, and `metaCrc32`, the CRC-32 of this text without that key.
The text has one canonical form; a file that parses but is written differently is damaged.
"""

import json
from dataclasses import dataclass
from typing import Final

from dledger_formats.log.checksum import crc32

META_BYTES_MAX: Final = 512
_KEYS: Final = ("lastIncludedIndex", "lastIncludedTerm", "dataBytes", "dataCrc32")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotMeta:
    """A snapshot's place in the log, and its bytes."""

    last_included_index: int
    last_included_term: int
    data_bytes: int
    data_crc32: int

    def __post_init__(self) -> None:
        if min(self.last_included_index, self.last_included_term, self.data_bytes) < 0:
            raise ValueError(f"{self} has a negative value")
        if not 0 <= self.data_crc32 < 1 << 32:
            raise ValueError(f"{self.data_crc32} is not a CRC-32")


def encode(meta: SnapshotMeta) -> bytes:
    """Encode the file."""
    values = dict(
        zip(
            _KEYS,
            (
                meta.last_included_index,
                meta.last_included_term,
                meta.data_bytes,
                meta.data_crc32,
            ),
            strict=True,
        )
    )
    return _json(values | {"metaCrc32": crc32(_json(values))})


def decode(raw: bytes) -> SnapshotMeta:
    """Decode the file. Raises ValueError if it is damaged."""
    if len(raw) > META_BYTES_MAX:
        raise ValueError(f"the file has more than {META_BYTES_MAX} bytes")
    try:
        values = json.loads(raw)
        index, term, data_bytes, data_crc32 = (values[key] for key in _KEYS)
    except KeyError as error:
        raise ValueError(
            f"the key {error} is missing: another program wrote the file, or it is damaged"
        ) from None
    except (ValueError, TypeError, RecursionError):
        raise ValueError("the file is not a JSON object") from None
    if not all(type(number) is int for number in (index, term, data_bytes, data_crc32)):
        raise ValueError("a value is not a number")
    meta = SnapshotMeta(
        last_included_index=index,
        last_included_term=term,
        data_bytes=data_bytes,
        data_crc32=data_crc32,
    )
    if encode(meta) != raw:
        raise ValueError("the checksum does not match")
    return meta


def _json(values: dict[str, int]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode()
