"""The columns of the data source, and how runs of entries become Arrow batches of them."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_dledger.decode import Entries
from pyspark_dledger.segments import Absent, Run

# Spark's name of the type, and Arrow's.
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
}
_HEADER_COLUMNS: Final = (
    "term", "magic", "size", "pos", "channel", "chain_crc", "body_size", "body_crc",
)  # fmt: skip

BODY: Final = "body"
SCHEMA: Final = ", ".join(f"{name} {kind}" for name, (kind, _) in _TYPES.items() if name != BODY)
"""All but the bodies, which are read only by who names them in a schema of his own."""


def arrow_schema(columns: dict[str, str]) -> pa.Schema:
    """Return Arrow's schema of the columns wanted: name to Spark's type.

    ValueError for a column or a type that this source does not have.
    """
    for name, kind in columns.items():
        if name not in _TYPES:
            raise ValueError(f"there is no column {name}; there are {', '.join(_TYPES)}")
        if kind.replace("bigint", "long") != _TYPES[name][0]:
            raise ValueError(f"the column {name} is of type {_TYPES[name][0]}, not {kind}")
    return pa.schema([(name, _TYPES[name][1]) for name in columns])


def batch(run: Run, member: str, segment: int, schema: pa.Schema) -> pa.RecordBatch:
    """Turn a run into rows. An absent entry has all columns null but those that say where it
    should be.
    """
    if isinstance(run, Absent):
        return _absent(run, member, segment, schema)
    columns = [_column(field, run, member, segment) for field in schema]
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
    raw, bodies = entries.view.data, entries.bodies
    spans = zip(bodies.offsets.tolist(), (bodies.offsets + bodies.sizes).tolist(), strict=True)
    return pa.array([raw[start:end].tobytes() for start, end in spans], pa.binary())
