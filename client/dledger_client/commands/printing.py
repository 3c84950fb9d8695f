"""What commands print: lines, tables and JSON, and complaints on standard error."""

import contextlib
import json
import shutil
import sys
from typing import Any

from dledger_client.commands import streams
from dledger_formats import console
from dledger_formats.status_line import LINE


def counted(count: int, noun: str) -> str:
    """Return a number of things as text."""
    return f"{count} {noun if count == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a noun, such as entry, line or file; that of an option is the same."""
    if noun.startswith("-"):
        return noun
    return noun[:-1] + "ies" if noun.endswith("y") else noun + "s"


def entries(count: int) -> str:
    """Return a number of entries as text."""
    return counted(count, "entry")


def terminal_columns() -> int:
    """Return the width of the terminal; 80 if there is none."""
    return shutil.get_terminal_size().columns


def json_line(value: Any) -> str:
    """Return one line of JSON that standard output can express."""
    ascii_only = not streams.is_utf8()
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")) + "\n"


def json_bytes(value: Any) -> bytes:
    """Return one line of JSON as bytes."""
    return json_line(value).encode(errors="backslashreplace")


def write_json(value: Any) -> None:
    """Write one line of JSON to standard output."""
    streams.write(json_line(value))


def write_event(value: Any) -> None:
    """Write one line of JSON and flush it."""
    write_json(value)
    console.flush()


def write_line(line: str = "") -> None:
    """Write one line to standard output."""
    streams.write(line + "\n")


def complain(line: str) -> None:
    """Write one line about the command itself to standard error."""
    LINE.erase()
    with contextlib.suppress(OSError):
        sys.stderr.write(console.readable(line) + "\n")


def write_table(rows: list[list[str]]) -> None:
    """Write rows in aligned columns; the first row is the header.

    On a terminal that is too narrow for them, each row becomes a block of lines, TITLE and value.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sys.stdout.isatty() and sum(widths) + 2 * (len(widths) - 1) > terminal_columns():
        title_width = max(map(len, rows[0]))
        for row in rows[1:]:
            for title, cell in zip(rows[0], row, strict=True):
                write_line(f"{title:{title_width}}  {cell}".rstrip())
            write_line()
        return
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        write_line("  ".join(cells).rstrip())
