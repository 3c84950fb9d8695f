"""The names of an archive's own files and folders, whichever kind of run left them. Pure."""

from collections.abc import Iterable
from typing import Final

from dledger_audit.places import HADOOP_LOCK_FILE, HADOOP_UNFINISHED, LOCK_FILE
from dledger_formats.log.archives import FOLDER_NAME, INFO_FILE

NEW_LOG: Final = "log-new"
UNFINISHED_INFO: Final = (f"{INFO_FILE}.tmp", f"{INFO_FILE}{HADOOP_UNFINISHED}")
"""What a killed run may leave: one in a local folder, and one in a Hadoop file system."""
_OWN: Final = frozenset((INFO_FILE, LOCK_FILE, HADOOP_LOCK_FILE))


def is_left(name: str) -> bool:
    """Return whether a killed run left this file: unfinished, or a lock that it took over."""
    return name in UNFINISHED_INFO or name.startswith(f"{HADOOP_LOCK_FILE}.")


def is_log(name: str) -> bool:
    """Return whether a folder with this name has an archive's log, or a part of one."""
    return name == NEW_LOG or FOLDER_NAME.fullmatch(name) is not None


def foreign(names: Iterable[str]) -> str | None:
    """Return the first name that is not an archive's own; None if there is none."""
    unknown = (each for each in sorted(names) if each not in _OWN and not is_left(each))
    return next((name for name in unknown if not is_log(name)), None)


def others(names: Iterable[str], valid: str) -> list[str]:
    """Return the names to remove: all logs but the valid one, and what a killed run left."""
    return [name for name in names if is_left(name) or (is_log(name) and name != valid)]
