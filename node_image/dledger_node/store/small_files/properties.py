"""Small text files of `key=value` lines, as Java's Properties class reads and writes them.

Files that we write end with a comment that holds the CRC-32 of the lines before; Java ignores it. A
file without it was written by Java and is accepted if it parses. Java's writer deletes the old file
before it renames the new one and syncs neither; ours always leaves one whole file.
"""

import contextlib
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.small_files.whole_file import replace_file

FILE_BYTES_MAX: Final = 4096
_CHECKSUM: Final = "#crc32="
_SEPARATOR: Final = re.compile(r"\s*[=:]\s*")


def read_properties(
    path: Path, keys: tuple[str, ...], *, optional: tuple[str, ...] = ()
) -> dict[str, str] | None:
    """Read a file that must hold `keys` and may hold `optional` ones; None if it does not exist.

    Raises StoreDamagedError if it cannot be read, does not parse, or its checksum does not match.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
        values = _parse(raw)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreDamagedError(f"{path} cannot be read: {error}", Damage.UNREADABLE) from error
    except ValueError as error:
        raise StoreDamagedError(f"{path}: {error}", Damage.HARD_STATE) from None
    if not set(keys) <= set(values) <= {*keys, *optional}:
        raise StoreDamagedError(
            f"{path} holds the keys {sorted(values)}; expected {sorted(keys)}", Damage.HARD_STATE
        )
    return values


def write_properties(path: Path, values: Mapping[str, object]) -> None:
    """Replace a file atomically and durably; blocks for two fsyncs.

    After an OSError either the old or the new file is in place.
    """
    lines = "".join(f"{key}={value}\n" for key, value in values.items()).encode()
    replace_file(path, lines + f"{_CHECKSUM}{zlib.crc32(lines):08x}\n".encode())


def _parse(raw: bytes) -> dict[str, str]:
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


def parse_number(path: Path, values: Mapping[str, str], key: str, smallest: int) -> int:
    """Parse a decimal integer of at least `smallest`. Raises StoreDamagedError."""
    text = values[key]
    with contextlib.suppress(ValueError):
        number = int(text)
        if number >= smallest and str(number) == text:
            return number
    raise StoreDamagedError(
        f"{path}: {key} is {text!r}; it must be a number, at least {smallest}", Damage.HARD_STATE
    )
