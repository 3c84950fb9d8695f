"""The output format of entries in `dledger get` and `dledger tail`."""

import base64
import sys
from typing import Any

from dledger_client.commands import common
from dledger_formats.log import disk
from dledger_formats.protocol.entry import DLedgerEntry

OUTPUT_HELP = (
    "raw: each body and a newline, without the empty entries with which leaders begin their terms; "
    "json: one line for each entry"
)


def write_entry(entry: DLedgerEntry, *, as_json: bool) -> bool:
    """Write one entry to standard output. Return False if the format omits the entry."""
    if as_json:
        common.write_json(_plain(entry))
    elif entry.magic == disk.NORMAL:
        sys.stdout.buffer.write(entry.body + b"\n")
    else:
        return False
    return True


def _plain(entry: DLedgerEntry) -> dict[str, Any]:
    """Convert an entry to JSON; the body is text if it is valid UTF-8, else base64."""
    plain: dict[str, Any] = {"index": entry.index, "term": entry.term, "pos": entry.pos}
    if entry.magic == disk.NOOP:
        return plain | {"noop": True}
    try:
        return plain | {"body": entry.body.decode()}
    except UnicodeDecodeError:
        return plain | {"bodyBase64": base64.b64encode(entry.body).decode()}
