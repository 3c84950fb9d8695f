"""Packs: the entries of one piece of one member, for a comparison entry by entry.

A pack is one row with binary columns, so that Spark moves and groups whole pieces.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from pyspark_dledger.decode import Entries
from pyspark_dledger.digests import chains, identities, pieces
from pyspark_dledger.layout import Longs
from pyspark_dledger.segments import Run

PACK_SCHEMA: Final = pa.schema(
    [
        ("piece", pa.int64()),
        ("member", pa.string()),
        ("segment", pa.int64()),
        ("first_index", pa.int64()),
        ("flags", pa.binary()),
        ("identities", pa.binary()),
        ("chains", pa.binary()),
    ]
)
"""Columns of a pack: the first index of its piece; where its entries begin; and per entry, from
`first_index` on, the flags (4 bytes), the identity and the chain (8 bytes; see `digests`), in the
order of this machine.
"""


def packs(run: Run, member: str, segment: int, cuts: Longs) -> pa.RecordBatch:
    """Pack a run."""
    rows = []
    if isinstance(run, Entries):
        flags, identity, chain = run.flags.astype(np.int32), identities(run), chains(run)
        first_index = int(run.index[0])
    else:
        count = run.last_index - run.first_index + 1
        flags = np.full(count, int(run.flag), np.int32)
        identity = chain = np.zeros(count, np.uint64)
        first_index = run.first_index
    for piece in pieces(run, cuts):
        part = slice(piece.first, piece.last + 1)
        rows.append(
            {
                "piece": piece.start,
                "member": member,
                "segment": segment,
                "first_index": first_index + piece.first,
                "flags": flags[part].tobytes(),
                "identities": identity[part].tobytes(),
                "chains": chain[part].tobytes(),
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=PACK_SCHEMA)
