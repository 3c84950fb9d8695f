"""Text files of `key=value` lines, as Java's Properties class reads and writes them.

Files that we write end with a comment that holds the CRC-32 of the lines before; Java ignores it. A
file without it was written by Java and is accepted if it parses.
"""

import re
import zlib
from collections.abc import Mapping
from typing import Final

FILE_BYTES_MAX: Final = 4096
_CHECKSUM: Final = "#crc32="
_SEPARATOR: Final = re.compile(r"\s*[=:]\s*")


def encode(values: Mapping[str, object]) -> bytes:
    """Return the content of a file with these values."""
    lines = "".join(f"{key}={value}\n" for key, value in values.items()).encode()
    return lines + f"{_CHECKSUM}{zlib.crc32(lines):08x}\n".encode()


def has_checksum(raw: bytes) -> bool:
    """Return whether a file that parses was written by us, with a checksum, and not by Java."""
    return _CHECKSUM.encode() in raw


def parse(raw: bytes) -> dict[str, str]:
    """Read the content of a file. Raises ValueError if it does not parse or is damaged."""
    if len(raw) > FILE_BYTES_MAX:
        raise ValueError(f"the file has more than {FILE_BYTES_MAX} bytes")
    # A file that was cut short has no checksum line, and half a number still parses as a number.
    if raw and not raw.endswith(b"\n"):
        raise ValueError("the file ends within a line: it was cut short")
    text = raw.decode("ascii")
    body, mark, checksum = text.rpartition(_CHECKSUM)
    if mark and checksum != f"{zlib.crc32(body.encode()):08x}\n":
        raise ValueError("the checksum does not match")
    values: dict[str, str] = {}
    for line in (body if mark else text).splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        parts = _SEPARATOR.split(line.strip(), maxsplit=1)
        if len(parts) != 2:
            raise ValueError(f"the line {line!r} is not KEY=VALUE")
        if parts[0] in values:
            raise ValueError(f"the key {parts[0]} occurs twice")
        values[parts[0]] = parts[1]
    return values
