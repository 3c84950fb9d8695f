"""Divide a run of stored entries into its bodies, and check it, by columns.

A reader of a whole log does nothing but this, so there is no Python code for each entry of a run
whose entries have one size: their headers become one table, whose columns are compared as bytes.
"""

import struct
from itertools import pairwise
from typing import Final

from dledger_formats.log.checksum import crc32
from dledger_formats.log.disk import (
    ENTRY_HEADER_SIZE,
    ENTRY_MAGICS,
    NORMAL,
    Buffer,
    DamagedRecordError,
    chain_crc_of,
    unpack_header,
)

_HEADER_WORDS: Final = ENTRY_HEADER_SIZE // 4
_MAGIC, _INDEX, _TERM, _CHAIN_CRC, _BODY_CRC, _BODY_SIZE = 0, 2, 4, 9, 10, 11
"""Where fields begin in a header, in words of four bytes."""


def bodies_of(run: Buffer, first_index: int) -> list[bytes]:
    """Return the bodies of a run of whole entries, the first of which has this index.

    Checks sizes, indexes, magics, that terms do not decrease, and all checksums, except that of the
    first header: it covers the entry before, too. Raises DamagedRecordError.
    """
    sizes = _sizes(run)
    parts = _split(run, sizes)
    bodies = list(parts[1::2])
    headers = bytearray().join(parts[::2])
    table = memoryview(headers).cast("I")
    count = len(bodies)
    stored_sizes = struct.pack(f">{count}i", *map(len, bodies))
    indexes = struct.pack(f">{count}q", *range(first_index, first_index + count))
    if (
        _column(table, _BODY_SIZE) != stored_sizes
        or _long_column(table, _INDEX) != indexes
        or not _magics_are_sound(_column(table, _MAGIC))
        or not _never_decreases(_long_column(table, _TERM))
        or not _match(_column(table, _BODY_CRC), list(map(crc32, bodies)))
        or not _chain_matches(table)
    ):
        raise _damage(run, sizes, first_index)
    return bodies


def _sizes(run: Buffer) -> list[int]:
    """Return the size of each entry. Raises DamagedRecordError unless they fill the run."""
    size = unpack_header(run, 0).size
    if size >= ENTRY_HEADER_SIZE and len(run) % size == 0:
        count = len(run) // size
        stored = b"".join(memoryview(run)[4 + byte :: size].tobytes() for byte in range(4))
        if stored == b"".join(bytes([byte]) * count for byte in struct.pack(">i", size)):
            return [size] * count
    sizes, at = [], 0
    while at < len(run):
        size = unpack_header(run, at).size
        if not ENTRY_HEADER_SIZE <= size <= len(run) - at:
            raise DamagedRecordError("bad_size", f"size {size} at byte {at} of {len(run)}")
        sizes.append(size)
        at += size
    return sizes


def _split(run: Buffer, sizes: list[int]) -> tuple[bytes, ...]:
    """Return header and body of each entry in turn."""
    if sizes.count(sizes[0]) == len(sizes):
        one = f"{ENTRY_HEADER_SIZE}s{sizes[0] - ENTRY_HEADER_SIZE}s"
        return struct.Struct(one * len(sizes)).unpack(run)
    parts: list[bytes] = []
    at, data = 0, bytes(run)
    for size in sizes:
        body_at = at + ENTRY_HEADER_SIZE
        parts += (data[at:body_at], data[body_at : at + size])
        at += size
    return tuple(parts)


def _column(table: memoryview, word: int) -> bytes:
    return table[word::_HEADER_WORDS].tobytes()


def _long_column(table: memoryview, word: int) -> bytes:
    words = memoryview(bytearray(8 * (len(table) // _HEADER_WORDS))).cast("I")
    words[0::2] = table[word::_HEADER_WORDS]
    words[1::2] = table[word + 1 :: _HEADER_WORDS]
    return words.tobytes()


def _magics_are_sound(magics: bytes) -> bool:
    normal = struct.pack(">i", NORMAL)
    if magics == normal * (len(magics) // 4):
        return True
    return set(struct.unpack(f">{len(magics) // 4}i", magics)) <= set(ENTRY_MAGICS)


def _never_decreases(terms: bytes) -> bool:
    if terms == terms[:8] * (len(terms) // 8):
        return True
    return all(a <= b for a, b in pairwise(struct.unpack(f">{len(terms) // 8}q", terms)))


def _chain_matches(table: memoryview) -> bool:
    """Check the chain of checksums over the headers, and overwrite it in the table with zeros."""
    count = len(table) // _HEADER_WORDS
    stored = _column(table, _CHAIN_CRC)
    table[_CHAIN_CRC::_HEADER_WORDS] = memoryview(bytes(4 * count)).cast("I")
    headers = struct.Struct(f"{ENTRY_HEADER_SIZE}s" * count).unpack(table)
    previous = struct.unpack(f">{count}I", stored)
    return _match(stored[4:], list(map(crc32, headers[1:], previous)))


def _match(stored: bytes, computed: list[int]) -> bool:
    """Return whether checksums match; a stored 0 means that nothing is covered."""
    count = len(computed)
    if stored == struct.pack(f">{count}I", *computed):
        return True
    pairs = zip(struct.unpack(f">{count}I", stored), computed, strict=True)
    return all(own in (0, found) for own, found in pairs)


def _damage(run: Buffer, sizes: list[int], first_index: int) -> DamagedRecordError:
    """Return what is wrong with a run that was rejected."""
    at, term, chain_crc = 0, 0, 0
    for index, size in enumerate(sizes, first_index):
        header = unpack_header(run, at)
        if header.index != index:
            return DamagedRecordError(
                "bad_index", f"entry {header.index}, where entry {index} belongs"
            )
        if header.magic not in ENTRY_MAGICS:
            return DamagedRecordError("bad_magic", f"unknown magic {header.magic} of entry {index}")
        if header.body_size != size - ENTRY_HEADER_SIZE:
            return DamagedRecordError(
                "bad_size", f"entry {index} of {size} bytes claims a body of {header.body_size}"
            )
        if header.term < term:
            return DamagedRecordError(
                "bad_term", f"entry {index} has term {header.term}, lower than {term} before it"
            )
        body = memoryview(run)[at + ENTRY_HEADER_SIZE : at + size]
        if header.body_crc not in (0, crc32(body)):
            return DamagedRecordError(
                "bad_body_crc", f"the body of entry {index} does not match its checksum"
            )
        if index > first_index and header.chain_crc not in (0, chain_crc_of(header, chain_crc)):
            return DamagedRecordError(
                "bad_chain_crc", f"the header of entry {index} does not match its checksum"
            )
        at, term, chain_crc = at + size, header.term, header.chain_crc
    raise AssertionError("the run is sound, but was rejected")
