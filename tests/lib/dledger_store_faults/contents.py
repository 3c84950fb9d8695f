"""Bodies that depend only on an entry's index and term, so that a reader can check them."""

import functools
import hashlib
from pathlib import Path

from dledger_node.raft.membership import Membership

SMALL_SEGMENTS = {"segment_size_bytes": 4096, "index_segment_size_bytes": 320}
"""A few entries fill several segments."""
LARGER_SEGMENTS = {"segment_size_bytes": 65536, "index_segment_size_bytes": 3200}
BODY_BYTES_MAX = 1500

_SHARED_MEMORY = Path("/dev/shm")
SCRATCH = str(_SHARED_MEMORY) if _SHARED_MEMORY.is_dir() else None
"""The folder for the files of runs: in memory if possible, where syncs cost nothing."""


@functools.lru_cache(maxsize=4096)
def body_of(index: int, term: int) -> bytes:
    """Return the body of an entry; most are short."""
    digest = hashlib.blake2b(f"{index} {term}".encode()).digest()
    kind = digest[0] % 8
    limit = BODY_BYTES_MAX if kind == 0 else 300 if kind < 4 else 40
    size = int.from_bytes(digest[1:3], "big") % limit
    return (digest * (size // len(digest) + 1))[:size]


def membership_at(index: int, term: int) -> Membership:
    """Return the membership of a membership entry at this index and term."""
    return Membership(("n0", "n1", "n2"), tuple(sorted((f"i{index}", f"t{term}"))))
