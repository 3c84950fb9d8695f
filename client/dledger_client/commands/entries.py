"""Entries as `dledger get` and `dledger tail` write them."""

import base64
import sys
from typing import Any

from dledger_client.commands import common
from dledger_formats.log import disk
from dledger_formats.protocol.requests import DLedgerEntry

OUTPUT_HELP = (
    "the bodies, each with a newline behind it, without the empty entries that leaders begin their "
    "terms with; or a line of JSON for each entry"
)


def write_entry(entry: DLedgerEntry, *, as_json: bool) -> bool:
    """Write one entry to the standard output; False when it is one that is left out."""
    if as_json:
        common.write_json(_plain(entry))
    elif entry.magic == disk.NORMAL:
        sys.stdout.buffer.write(entry.body + b"\n")
    else:
        return False
    return True


def _plain(entry: DLedgerEntry) -> dict[str, Any]:
    """Give the body as text where it is text, so that people can read it."""
    plain: dict[str, Any] = {"index": entry.index, "term": entry.term, "pos": entry.pos}
    if entry.magic == disk.NOOP:
        return plain | {"noop": True}
    try:
        return plain | {"body": entry.body.decode()}
    except UnicodeDecodeError:
        return plain | {"bodyBase64": base64.b64encode(entry.body).decode()}
