"""The columns of the data source, and the conversion of runs of entries to Arrow batches."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger_formats.log import disk, memberships
from pyspark_dledger.decode import Entries
from pyspark_dledger.options import FULL, HEADERS, INDEX, LOG, Options
from pyspark_dledger.pairs import Pairs
from pyspark_dledger.segments import Absent, Run

# Each type's name in Spark, and its Arrow type.
_STRING: Final = ("string", pa.string())
_INT: Final = ("int", pa.int32())
_LONG: Final = ("long", pa.int64())
_BINARY: Final = ("binary", pa.binary())

_TYPES: Final = {
    "member": _STRING,
    "segment": _LONG,
    "at": _LONG,
    "index": _LONG,
    "term": _LONG,
    "magic": _INT,
    "size": _INT,
    "pos": _LONG,
    "channel": _INT,
    "chain_crc": _LONG,
    "body_size": _INT,
    "body_crc": _LONG,
    "crc": _LONG,
    "flags": _INT,
    "body": _BINARY,
    "kind": _STRING,
    "key": _BINARY,
    "value": _BINARY,
}
_HEADER_COLUMNS: Final = (
    "term", "magic", "size", "pos", "channel", "chain_crc", "body_size", "body_crc",
)  # fmt: skip


def ddl_of(names: Iterable[str]) -> str:
    """Return the Spark schema of these columns."""
    return ", ".join(f"{name} {_TYPES[name][0]}" for name in names)


BODY: Final = "body"
KEY: Final = "key"
VALUE: Final = "value"
KIND: Final = "kind"
KINDS: Final = ("normal", "noop", "membership", "unknown")
"""The kinds of entries: a client's, a leader's own, a membership, or one of a later version."""

READ: Final = {
    INDEX: ("member", "segment", "at", "index", "term", "size", "body_size", "flags"),
    HEADERS: tuple(name for name in _TYPES if name not in ("crc", BODY, KEY, VALUE)),
    FULL: tuple(_TYPES),
}
"""The columns that a query has at each level."""
_OF_MEMBERS: Final = tuple(name for name in _TYPES if name not in (BODY, KIND, KEY, VALUE))
_DECODED: Final = (KEY, VALUE)
_OF_LOG: Final = ("index", "term", KIND, "channel", "size", "member", BODY)


def default_schema(options: Options) -> str:
    """Return the Spark schema of a query of entries that names no columns."""
    names = _OF_LOG if options.view == LOG else _OF_MEMBERS
    names += _DECODED if options.decoder else ()
    return ddl_of(name for name in names if name in READ[options.level])


def arrow_schema(columns: Mapping[str, str], options: Options) -> pa.Schema:
    """Return the Arrow schema of the requested columns, which map names to Spark types.

    Raises ValueError for an unknown column, a wrong type, or a column that needs another option.
    """
    level = options.level
    for name, kind in columns.items():
        if name not in _TYPES:
            raise ValueError(f"unknown column {name}; the columns are {', '.join(_TYPES)}")
        if name not in READ[level]:
            raise ValueError(
                f"column {name} is not read with level={level}, which has the columns "
                f"{', '.join(READ[level])}; use a higher level"
            )
        if name in _DECODED and not options.decoder:
            raise ValueError(f"column {name} needs the option decoder, such as decoder=kv")
        if kind.replace("bigint", "long") != _TYPES[name][0]:
            raise ValueError(f"column {name} has type {_TYPES[name][0]}, not {kind}")
    return pa.schema([(name, _TYPES[name][1]) for name in columns])


def ddl(schema: pa.Schema) -> str:
    """Return the Spark schema of an Arrow schema with types of this module."""
    names = {arrow: name for name, arrow in (_STRING, _INT, _LONG, _BINARY)}
    return ", ".join(f"{field.name} {names[field.type]}" for field in schema)


def batch(
    run: Run, member: str, segment: int, schema: pa.Schema, pairs: Pairs | None = None
) -> pa.RecordBatch:
    """Convert a run to rows; `pairs` decodes keys and values, if the schema has them.

    In the row of an absent entry, only member, segment, index and flags are not null.
    """
    if isinstance(run, Absent):
        return _absent(run, member, segment, schema)
    decoded = {}
    if pairs is not None and (KEY in schema.names or VALUE in schema.names):
        decoded = _decoded(run, pairs)
    columns = [
        decoded[field.name] if field.name in decoded else _column(field, run, member, segment)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _absent(run: Absent, member: str, segment: int, schema: pa.Schema) -> pa.RecordBatch:
    index = np.arange(run.first_index, run.last_index + 1)
    known = {
        "member": pa.repeat(pa.scalar(member), len(index)),
        "segment": pa.array(np.full(len(index), segment)),
        "index": pa.array(index),
        "flags": pa.array(np.full(len(index), int(run.flag), np.int32)),
    }
    columns = [known.get(field.name, pa.nulls(len(index), field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(field: pa.Field, entries: Entries, member: str, segment: int) -> pa.Array:
    count = len(entries)
    if field.name == "member":
        return pa.repeat(pa.scalar(member), count)
    if field.name == BODY:
        return _bodies(entries)
    if field.name == KIND:
        return _kinds(entries)
    return pa.array(_numbers(field.name, entries, segment).astype(field.type.to_pandas_dtype()))


def _numbers(name: str, entries: Entries, segment: int) -> npt.NDArray[np.generic]:
    if name == "segment":
        return np.full(len(entries), segment)
    if name in _HEADER_COLUMNS:
        return entries.headers[name]
    by_name = {
        "at": entries.at,
        "index": entries.index,
        "crc": entries.crc,
        "flags": entries.flags,
    }
    return by_name[name]


def _bodies(entries: Entries) -> pa.Array:
    """Copy the bodies into one buffer."""
    raw, bodies = entries.view.data, entries.bodies
    spans = zip(bodies.offsets.tolist(), (bodies.offsets + bodies.sizes).tolist(), strict=True)
    joined = b"".join([raw[start:end] for start, end in spans])
    offsets = np.concatenate(([0], np.cumsum(bodies.sizes))).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    return pa.Array.from_buffers(pa.binary(), len(entries), buffers)


def _decoded(entries: Entries, pairs: Pairs) -> dict[str, pa.Array]:
    """Decode the bodies of clients' entries; the others have neither key nor value."""
    raw, bodies = entries.view.data, entries.bodies
    keys: list[bytes | None] = [None] * len(entries)
    values = keys.copy()
    for k in np.flatnonzero(entries.headers["magic"] == disk.NORMAL).tolist():
        start = int(bodies.offsets[k])
        pair = pairs(raw[start : start + int(bodies.sizes[k])].tobytes())
        if pair is not None:
            keys[k], values[k] = pair
    return {KEY: pa.array(keys, pa.binary()), VALUE: pa.array(values, pa.binary())}


def _kinds(entries: Entries) -> pa.Array:
    magic, channel = entries.headers["magic"], entries.headers["channel"]
    is_membership = (magic == disk.NOOP) & (channel == memberships.MEMBERSHIP_CHANNEL)
    codes = np.select([magic == disk.NORMAL, is_membership, magic == disk.NOOP], [0, 2, 1], 3)
    dictionary = pa.array(KINDS, pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), dictionary).cast(
        pa.string()
    )
