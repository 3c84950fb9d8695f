"""The output formats of entries in `dledger get` and `dledger tail`."""

import argparse
import base64
import os
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from dledger_client.commands import printing
from dledger_client.commands.exits import UsageError
from dledger_formats.log import disk
from dledger_formats.protocol.entry import DLedgerEntry

Format: TypeAlias = Callable[[DLedgerEntry], bytes | None]
"""A function that returns what is written for an entry; None if the format omits it."""

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_FIELDS: Final[dict[str, Callable[[DLedgerEntry], bytes]]] = {
    "i": lambda entry: b"%d" % entry.index,
    "t": lambda entry: b"%d" % entry.term,
    "c": lambda entry: b"%d" % entry.channel,
    "s": lambda entry: b"%d" % len(entry.body),
    "b": lambda entry: entry.body,
    "%": lambda _: b"%",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the output format."""
    parser.add_argument(
        "-o",
        "--output",
        choices=["raw", "bytes", "json"],
        default="raw",
        help="raw: each body and a delimiter; bytes: the bodies and nothing else; json: one line "
        "for each entry; raw and bytes omit the entries that leaders append for themselves "
        "(default: %(default)s)",
    )
    between = parser.add_mutually_exclusive_group()
    between.add_argument(
        "--delimiter",
        metavar="TEXT",
        type=unescape,
        help=r"what follows each body; knows \n, \t, \r, \0 and \\ (default: \n)",
    )
    between.add_argument(
        "-0",
        dest="delimiter",
        action="store_const",
        const=b"\0",
        help="end each body with a zero byte (default: with a newline)",
    )
    # argparse takes -0 for a number, and then takes every negative number, as in `get -1`, for an
    # option. It has no public way to say otherwise.
    parser._has_negative_number_optionals.clear()
    between.add_argument(
        "--format",
        metavar="TEXT",
        type=unescape,
        help="what to write for each entry: %%i index, %%t term, %%c channel, %%s size of the body "
        "in bytes, %%b body, %%%% percent; knows the escapes of --delimiter (default: the body)",
    )


def selected_format(arguments: argparse.Namespace) -> Format:
    """Return the selected format.

    Raises UsageError if the options contradict each other, or the format has an unknown field.
    """
    output: str = arguments.output
    given: bytes | None = arguments.delimiter
    if output != "raw" and (given is not None or arguments.format is not None):
        raise UsageError(f"-o {output} takes no --delimiter, -0 or --format")
    if output == "json":
        return _as_json
    if arguments.format is not None:
        return _formatted(arguments.format)
    delimiter = b"" if output == "bytes" else b"\n" if given is None else given

    def delimited(entry: DLedgerEntry) -> bytes | None:
        return entry.body + delimiter if entry.magic == disk.NORMAL else None

    return delimited


def unescape(text: str) -> bytes:
    r"""Convert \n, \t, \r, \0 and \\ to the bytes that they mean, for argparse."""
    parts = text.split("\\")
    found, rest = os.fsencode(parts[0]), iter(parts[1:])
    for part in rest:
        if not part:  # two backslashes
            after = next(rest, None)
            if after is None:
                raise argparse.ArgumentTypeError(
                    r"the text ends with one \; write \\ for a backslash"
                )
            found += b"\\" + os.fsencode(after)
            continue
        if part[0] not in _ESCAPES:
            raise argparse.ArgumentTypeError(rf"\{part[0]} is no escape; write \\ for a backslash")
        found += _ESCAPES[part[0]] + os.fsencode(part[1:])
    return found


def _formatted(text: bytes) -> Format:
    parts: list[bytes | Callable[[DLedgerEntry], bytes]] = []
    literal, percent, rest = text.partition(b"%")
    while percent:
        name = rest[:1].decode(errors="replace")
        if name not in _FIELDS:
            known = ", ".join(f"%{field}" for field in _FIELDS)
            raise UsageError(f"--format has no field %{name}; the fields are {known}")
        parts += [literal, _FIELDS[name]]
        literal, percent, rest = rest[1:].partition(b"%")
    parts.append(literal)

    def formatted(entry: DLedgerEntry) -> bytes | None:
        if entry.magic != disk.NORMAL:
            return None
        return b"".join(part if isinstance(part, bytes) else part(entry) for part in parts)

    return formatted


def _as_json(entry: DLedgerEntry) -> bytes:
    return printing.json_bytes(_plain(entry))


def _plain(entry: DLedgerEntry) -> dict[str, Any]:
    """Convert an entry to JSON; the body is text if it is valid UTF-8, else base64."""
    plain: dict[str, Any] = {"index": entry.index, "term": entry.term, "pos": entry.pos}
    if entry.magic == disk.NOOP:
        return plain | {"noop": True}
    try:
        return plain | {"body": entry.body.decode()}
    except UnicodeDecodeError:
        return plain | {"bodyBase64": base64.b64encode(entry.body).decode()}
