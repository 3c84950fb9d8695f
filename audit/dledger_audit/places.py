"""Where archives and histories are: local folders, or URIs of Hadoop file systems. Pure."""

import re
from pathlib import Path
from typing import Final

_URI: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://.*")


def folder(text: str) -> Path | str:
    """Return a local folder, or the URI of one in a Hadoop file system."""
    return text if _URI.fullmatch(text) else Path(text)


def is_uri(place: object) -> bool:
    """Tell whether a place is in a Hadoop file system, and not a local folder."""
    return isinstance(place, str) and _URI.fullmatch(place) is not None
