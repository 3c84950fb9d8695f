"""Where archives and histories are: local folders, or URIs of Hadoop file systems. Pure.

A run locks the file `lock` of a local folder, which stays there. A Hadoop file system has no such
locks, so there a file is the lock while it is renewed (`renewed_lock`). Its name differs, since a
local folder may also be given as a URI, or be copied with its `lock`.
"""

import re
from pathlib import Path
from typing import Final

LOCK_FILE: Final = "lock"
HADOOP_LOCK_FILE: Final = "lock.hadoop"
HADOOP_UNFINISHED: Final = ".part"
"""The suffix of an incomplete file in a Hadoop file system."""
_URI: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://.*")


def folder(text: str) -> Path | str:
    """Return a local folder, or the URI of one in a Hadoop file system."""
    return text if _URI.fullmatch(text) else Path(text)


def is_uri(place: object) -> bool:
    """Return whether a place is in a Hadoop file system, and not a local folder."""
    return isinstance(place, str) and _URI.fullmatch(place) is not None
