"""The file that keeps a producer's numbers after the program that appends has ended."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import msgspec

from dledger_client.commands.exits import UsageError
from dledger_formats.folders import make_folder, sync_folder

STATE_VARIABLE: Final = "XDG_STATE_HOME"
NAME_BYTES_MAX: Final = 80
ALL_AGAIN: Final = "to append all of the input again, also what is already in the log"
"""What another name or a removed record does, for messages about a record or an input."""

_BEGINNING_AGAIN: Final = f"use another name, or remove the record, {ALL_AGAIN}"


class RecordError(Exception):
    """The record of a producer cannot be saved; run the command again to continue."""


class Witness(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry by which the log with the bodies is recognized."""

    index: int
    term: int
    chain_crc: int
    """The entry's chain CRC, which covers all entries up to this one."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file."""

    group: str
    producer: int
    """The registration, under which the bodies after the first `base` are numbered from 1."""
    base: int
    acknowledged: int
    """Number of bodies, from the first one on, all of which are in the log."""
    above_index: int = -1
    """The entries of all later bodies have higher indexes."""
    checksum: int
    """CRC-32 of these bodies and their sizes."""
    is_complete: bool
    """Whether no further body was sent."""
    sent_max: int | None = None
    """Number of bodies that a killed program may have sent; None means a window more than
    `acknowledged`.
    """
    witness: Witness
    run: tuple[int, int, int] | None = None
    """The last run of an import: first source index, first destination index, length."""
    source_begin: int | None = None
    """The index of the first entry of the export that was imported first."""


class RecordFile:
    """The file of one producer, which this process has locked."""

    def __init__(self, path: Path, name: str, group: str) -> None:
        self.path = path
        self._name = name
        self._group = group

    @classmethod
    @contextlib.contextmanager
    def locked(cls, name: str, group: str) -> Iterator[Self]:
        """Hold the lock of a producer's record.

        Raises UsageError if another process holds it, or the folder cannot be used.
        """
        try:
            size_bytes = len(name.encode())
        except UnicodeEncodeError as error:
            raise UsageError(f"the name of a producer must be UTF-8, not {name!a}") from error
        if not 0 < size_bytes <= NAME_BYTES_MAX:
            raise UsageError(f"the name of a producer must have 1 to {NAME_BYTES_MAX} bytes")
        path = _folder() / quote(group, safe="") / f"{quote(name, safe='')}.json"
        try:
            make_folder(path.parent)
            lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(
                f"cannot keep the record of producer {name} in {path.parent}: {error.strerror}; "
                f"set {STATE_VARIABLE} to a folder that you may write"
            ) from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"another process appends as producer {name}: {path}") from None
            except OSError as error:  # of a file system without locks
                raise UsageError(
                    f"cannot lock the record of producer {name}, {path}: {error.strerror}; set "
                    f"{STATE_VARIABLE} to a folder on a local disk"
                ) from error
            yield cls(path, name, group)
        finally:
            os.close(lock)

    def load(self) -> Record | None:
        """Return the record; None if there is none. Raises UsageError if it cannot be read."""
        try:
            record = msgspec.json.decode(self.path.read_bytes(), type=Record)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(
                f"cannot read the record of producer {self._name}: {self.path}: {error.strerror}"
            ) from error
        except msgspec.DecodeError as error:
            raise UsageError(
                f"the record of producer {self._name} is damaged: {self.path}: {error}; "
                f"{_BEGINNING_AGAIN}"
            ) from error
        if record.group != self._group or not 0 <= record.base <= record.acknowledged:
            raise UsageError(
                f"{self.path} is not the record of producer {self._name} of group {self._group}; "
                f"{_BEGINNING_AGAIN}"
            )
        return record

    def save(self, record: Record) -> None:
        """Replace the file durably. Raises RecordError."""
        temporary = self.path.with_suffix(".new")
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.encode(record) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            raise RecordError(
                f"cannot save {self.path}: {error.strerror}; once it can be saved, run the command "
                "again: it continues where it ended"
            ) from error


def _folder() -> Path:
    """Return the folder of all records. Raises UsageError if the user has no home folder."""
    if state := os.environ.get(STATE_VARIABLE):
        return Path(state) / "dledger" / "producers"
    try:
        return Path.home() / ".local" / "state" / "dledger" / "producers"
    except RuntimeError as error:
        raise UsageError(
            "cannot keep the record of a producer: this user has no home folder; set HOME or "
            f"{STATE_VARIABLE}"
        ) from error
