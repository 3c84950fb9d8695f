"""Small files of properties (`dledger_formats.log.properties`), read and replaced durably.

Java's writer deletes the old file before it renames the new one and syncs neither; ours always
leaves one whole file.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from dledger_formats.log import properties
from dledger_node.errors import Damage, LaterFormatError, StoreDamagedError
from dledger_node.store.small_files.whole_file import replace_file


def read_properties(
    path: Path, keys: tuple[str, ...], *, optional: tuple[str, ...] = ()
) -> dict[str, str] | None:
    """Read a file that must hold `keys` and may hold `optional` ones; None if it does not exist.

    Raises StoreDamagedError if it cannot be read, does not parse, or its checksum does not match.
    Raises LaterFormatError if it has other keys under the right checksum: a later release wrote it.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(properties.FILE_BYTES_MAX + 1)
        values = properties.parse(raw)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreDamagedError(f"{path} cannot be read: {error}", Damage.UNREADABLE) from error
    except ValueError as error:
        raise StoreDamagedError(f"{path}: {error}", Damage.HARD_STATE) from None
    unknown = sorted(set(values) - {*keys, *optional})
    if unknown and properties.has_checksum(raw):
        raise LaterFormatError(
            f"{path} was written by a later release: this one does not know its key "
            f"{unknown[0]}. Nothing was changed. Run the later release on this folder"
        )
    if unknown or not set(keys) <= set(values):
        raise StoreDamagedError(
            f"{path} holds the keys {sorted(values)}; expected {sorted(keys)}", Damage.HARD_STATE
        )
    return values


def write_properties(path: Path, values: Mapping[str, object]) -> None:
    """Replace a file atomically and durably; blocks for two fsyncs.

    After an OSError either the old or the new file is in place.
    """
    replace_file(path, properties.encode(values))


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
