"""CRC-32 as zlib computes it, by the fastest code at hand.

zlib-ng needs a third of zlib's time for the short pieces that a log is made of. The programs that
read or write whole logs install it; the others compute the same numbers with the standard library.
"""

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:  # not among the libraries of this program
    from zlib import crc32

__all__ = ["crc32"]
