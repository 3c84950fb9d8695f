"""CRC-32 as zlib computes it, by the fastest code that is installed.

zlib-ng takes a third of zlib's time for the short records of a log. Programs that read or write
whole logs install it; the others compute the same numbers with the standard library.
"""

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:  # this program does not install it
    from zlib import crc32

__all__ = ["crc32"]
