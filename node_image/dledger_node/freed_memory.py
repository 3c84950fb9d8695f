"""Keep freed memory for the next large entry.

An entry of the largest size takes several buffers of 4 to 6 MiB, one after another. The C library
gives such memory back to the kernel as soon as it is free, and gets it again page by page: 6,000
page faults for one request took more of a turn of the loop than all other work for it.
"""

import ctypes
from typing import Final

MAPPED_FROM_BYTES: Final = 8 << 20
"""Blocks of this size and above are mapped by themselves, and given back when they are freed. The
JSON of an entry of the largest size is smaller.
"""
KEPT_BYTES_MAX: Final = 32 << 20
"""How much free memory the end of the heap keeps; more is given back."""
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> bool:
    """Set both bounds for this process; return False if the C library does not know them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(
        mallopt(_MMAP_THRESHOLD, MAPPED_FROM_BYTES) and mallopt(_TRIM_THRESHOLD, KEPT_BYTES_MAX)
    )
