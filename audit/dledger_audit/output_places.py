"""Checks of the files and folders that an audit writes at its end, before it begins."""

import argparse
import errno
import os
from pathlib import Path
from typing import Final

from dledger_audit.places import folder

STANDARD_OUTPUT: Final = "-"
TEXT_SHOWN_MAX: Final = 80
"""Length to which a wrong value is cut in a message."""


def writable(text: str) -> str:
    """Check a file's folder now, since the file is written after hours of reading."""
    if not text:
        raise argparse.ArgumentTypeError("'' is no file")
    path = Path(text)
    _require_short(path)
    # Unlike the methods of Path, these functions raise no error below an unreadable folder.
    if text != STANDARD_OUTPUT and not os.path.isdir(path.parent):
        raise argparse.ArgumentTypeError(f"the folder {path.parent} does not exist")
    if os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"{text!r} is a folder")
    return text


def _require_short(path: Path) -> None:
    try:
        os.stat(path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            shown = f"{str(path)[:TEXT_SHOWN_MAX]!r}…"
            raise argparse.ArgumentTypeError(f"{shown}: {error.strerror}") from error


def history(text: str) -> Path | str:
    """Check a local folder now, since it is written after hours of reading; it need not exist."""
    place = folder(text)
    if isinstance(place, Path):
        _require_short(place)
        existing = next((path for path in (place, *place.parents) if os.path.exists(path)), place)
        if not os.path.isdir(existing):
            raise argparse.ArgumentTypeError(f"{existing} is no folder")
    return place
