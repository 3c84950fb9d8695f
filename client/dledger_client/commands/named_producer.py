"""`--producer NAME`: a producer whose numbers outlive the program that appends.

The bodies of an input are numbered from 1. A file records the producer's registration in the group
and up to which number all bodies are in the log; it is saved before more than a window of numbers
is sent after that one. A program that begins again with the same input skips these bodies, and
sends the next ones with their old numbers, by which the group recognizes what it has. If its input
ends before the last number that the earlier program may have sent, the numbering goes on.

The record also has a checksum of the bodies that it skips, and a witness: the place of an entry and
the checksum of the log up to it. So neither another input nor another group of the same name is
taken for the one before.
"""

import asyncio
import contextlib
import fcntl
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import msgspec

from dledger_client.append.outcomes import Acknowledged, Outcome
from dledger_client.client import DLedgerClient
from dledger_client.commands.common import UsageError
from dledger_client.errors import NoEntryError
from dledger_formats.log.channels import WINDOW
from dledger_formats.log.checksum import crc32

SAVE_EVERY: Final = 256
"""After how many acknowledged bodies the record is saved."""
IN_FLIGHT_MAX: Final = WINDOW - SAVE_EVERY
"""Bodies in flight: with those that are not saved yet, they never exceed the group's window."""
STATE_VARIABLE: Final = "XDG_STATE_HOME"
NAME_BYTES_MAX: Final = 80


class RecordError(Exception):
    """The record of a producer cannot be saved; run the command again to go on."""


class Witness(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of the log in which the bodies are."""

    index: int
    term: int
    chain_crc: int
    """Its checksum, which covers all entries up to it."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file holds."""

    group: str
    producer: int
    """The registration, which numbers the bodies after the first `base` ones from 1."""
    base: int
    acknowledged: int
    """Number of bodies, from the first one on, all of which are in the log."""
    checksum: int
    """CRC-32 of these bodies and their sizes."""
    is_complete: bool
    """Whether no further body was sent."""
    sent_max: int | None = None
    """Number of bodies that a program which was killed may have sent; None for a window more than
    are acknowledged.
    """
    witness: Witness
    run: tuple[int, int, int] | None = None
    """The last run of an import: first source index, first destination index, length."""


class NamedProducer:
    """The record of a producer, and the numbers of the bodies that are appended now."""

    def __init__(self, path: Path, group: str, record: Record | None) -> None:
        self.path = path
        """The file of the record."""
        self._group = group
        self._record = record
        self._checksum = record.checksum if record else 0
        # Number of bodies of the input so far, and their checksum.
        self._number = self._input_checksum = 0
        # The checksums up to each body that has no outcome yet.
        self._checksums: deque[int] = deque()
        self.acknowledged = record.acknowledged if record else 0
        """Number of bodies, from the first one on, that are in the log."""
        self.skipped = self.acknowledged
        """Number of bodies that earlier programs have appended."""
        self.run = record.run if record else None
        self._saved = self.acknowledged
        self._sent_before = 0
        """Number of bodies that an earlier program may have sent."""
        # Two threads may save: the one that `note` uses, and the main one after a second signal.
        self._saving = threading.Lock()
        self.has_failed = False
        """Whether a body was not acknowledged: no further one must be sent."""

    @classmethod
    @contextlib.contextmanager
    def opened(cls, name: str, group: str) -> Iterator[Self]:
        """Hold the lock of a producer's record.

        Raises UsageError if another process holds it, or the record cannot be read.
        """
        try:
            size_bytes = len(name.encode())
        except UnicodeEncodeError as error:
            raise UsageError(f"the name of a producer must be UTF-8, not {name!a}") from error
        if not 0 < size_bytes <= NAME_BYTES_MAX:
            raise UsageError(f"the name of a producer must have 1 to {NAME_BYTES_MAX} bytes")
        path = _folder() / quote(group, safe="") / f"{quote(name, safe='')}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(
                f"cannot keep the record of producer {name} in {path.parent}: {error.strerror}"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield cls(path, group, _load(path, name, group))
        except BlockingIOError:
            raise UsageError(f"another process appends as producer {name}: {path}") from None
        finally:
            os.close(lock)

    async def begin(self, client: DLedgerClient) -> None:
        """Register, or resume the registration of a program that did not end.

        Raises UsageError if the group is not the one of the record.
        """
        record = self._record
        if record is not None:
            await self._check_witness(client, record.witness)
        if record is not None and not record.is_complete:
            acknowledged = record.acknowledged - record.base
            await client.resume_producer(record.producer, acknowledged, acknowledged + WINDOW)
            bound = record.acknowledged + WINDOW
            self._sent_before = bound if record.sent_max is None else record.sent_max
            self._record = msgspec.structs.replace(record, sent_max=None)
            self._store()  # before this program sends more than that
            return
        producer = await client.register_producer()
        await client.resume_producer(producer)
        self._record = Record(
            group=self._group,
            producer=producer,
            base=self.acknowledged,
            acknowledged=self.acknowledged,
            checksum=self._checksum,
            is_complete=False,
            witness=await _witness(client, producer),
            run=self.run,
        )
        self._store()

    def takes(self, body: bytes) -> bool:
        """Number the next body; return whether it must be appended.

        Raises UsageError if the bodies so far are not those that the record describes.
        """
        self._number += 1
        self._input_checksum = crc32(body, crc32(len(body).to_bytes(4), self._input_checksum))
        if self._number > self.skipped:
            self._checksums.append(self._input_checksum)
            return True
        if self._number == self.skipped and self._input_checksum != self._checksum:
            raise UsageError(
                f"the first {self._number} bodies of the input are not those that this producer "
                f"has appended; use another name, or remove {self.path}"
            )
        return False

    def check_end(self) -> None:
        """Raise UsageError if the input has ended before all bodies that the record describes."""
        if self._number < self.skipped:
            raise UsageError(
                f"the input has {self._number} bodies, but this producer has appended "
                f"{self.skipped}; use another name, or remove {self.path}"
            )

    async def numbered(self, bodies: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the bodies that must be appended. Raises UsageError as `takes` and `check_end`."""
        async for body in bodies:
            if self.takes(body):
                yield body
        self.check_end()

    async def note(self, outcome: Outcome) -> None:
        """Note the outcome of the next body. Raises RecordError."""
        self.has_failed |= not isinstance(outcome, Acknowledged)
        if self.has_failed:
            return
        self.acknowledged += 1
        self._checksum = self._checksums.popleft()
        if self.acknowledged - self._saved >= SAVE_EVERY:
            saving = asyncio.ensure_future(asyncio.to_thread(self.save))
            try:
                await asyncio.shield(saving)
            except asyncio.CancelledError:
                await saving  # the lock of the record must outlive whoever writes it
                raise

    def save(self) -> None:
        """Save what is acknowledged. Raises RecordError."""
        with self._saving:
            assert self._record is not None
            self._record = msgspec.structs.replace(
                self._record, acknowledged=self.acknowledged, checksum=self._checksum, run=self.run
            )
            self._store()
            self._saved = self.acknowledged

    @property
    def has_read_record(self) -> bool:
        """Whether the input so far has all bodies that the record describes."""
        return self._number >= self.skipped

    @property
    def registration(self) -> int:
        """The index of the entry that registers the producer; `begin` must have returned."""
        assert self._record is not None
        return self._record.producer

    def forgotten_hint(self, name: str) -> str:
        """Say what to do if the group has forgotten the producer while appends were unknown."""
        return (
            f" The group has forgotten producer {name}, so no run can find out by itself what of "
            f"this is in the log. Look with `dledger get {self.registration}..`, take what is "
            "there out of the input, and append the rest under another name; or empty the group, "
            f"and remove {self.path}"
        )

    @property
    def is_new(self) -> bool:
        """Whether no earlier program has used the name."""
        return self._record is None

    async def complete(self, client: DLedgerClient, last_index: int | None) -> None:
        """Save that every body that was sent is acknowledged, the last one at `last_index`.

        If a program that was killed may have sent more bodies than this input has, the next one
        must go on with the same numbers.
        """
        assert self._record is not None
        witness = self._record.witness
        if last_index is not None:
            witness = await _witness(client, last_index)
        knows_all = self.acknowledged >= self._sent_before
        self._record = msgspec.structs.replace(
            self._record,
            is_complete=knows_all,
            sent_max=None if knows_all else self._sent_before,
            witness=witness,
        )
        self.save()

    async def _check_witness(self, client: DLedgerClient, witness: Witness) -> None:
        try:
            found = await _witness(client, witness.index)
        except NoEntryError as error:
            raise UsageError(
                f"cannot tell whether group {self._group} is the one to which this producer has "
                f"appended: entry {witness.index} is not there ({error}); use another name, or "
                f"remove {self.path}"
            ) from error
        if found != witness:
            raise UsageError(
                f"group {self._group} is not the one to which this producer has appended: entry "
                f"{witness.index} differs; use another name, or remove {self.path}"
            )

    def _store(self) -> None:
        """Replace the file durably. Raises RecordError."""
        assert self._record is not None
        temporary = self.path.with_suffix(".new")
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.encode(self._record) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise RecordError(f"cannot save {self.path}: {error.strerror}") from error


async def _witness(client: DLedgerClient, index: int) -> Witness:
    entry = await client.get(index)
    return Witness(index=index, term=entry.term, chain_crc=entry.chain_crc)


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


def _load(path: Path, name: str, group: str) -> Record | None:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"cannot read the record of producer {name}: {path}: {error}") from error
    if record.group != group or not 0 <= record.base <= record.acknowledged:
        raise UsageError(f"{path} is not the record of producer {name} of group {group}")
    return record
