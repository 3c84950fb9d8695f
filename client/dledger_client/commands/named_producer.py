"""`--producer NAME`: a producer whose numbers outlive the program that appends.

The bodies of an input are numbered from 1. A file records the producer's registration in the group
and the number up to which all bodies are in the log. The file is saved before a number more than a
window above that one is sent. A program that starts again with the same input skips these bodies,
and sends the next ones with their old numbers, by which the group recognizes duplicates. If its
input ends before the last number that the earlier program may have sent, the numbering continues.

The record also has a checksum of the skipped bodies, and a witness: the index of an entry and the
checksum of the log up to it. So another input, or another group of the same name, is detected.
Bodies that are in the log beyond the record are compared, too (`earlier_run`).
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Final, Self

import msgspec

from dledger_client.append.outcomes import Acknowledged, Outcome, Refused
from dledger_client.client import DLedgerClient
from dledger_client.commands.bodies import InputError
from dledger_client.commands.earlier_run import EarlierRun
from dledger_client.commands.exits import UsageError
from dledger_client.commands.printing import counted
from dledger_client.commands.producer_record import ALL_AGAIN, Record, RecordFile, Witness
from dledger_client.errors import NoEntryError
from dledger_formats.log.channels import WINDOW
from dledger_formats.log.checksum import crc32
from dledger_formats.protocol.codes import DLedgerResponseCode

SAVE_EVERY: Final = 256
"""After how many acknowledged bodies the record is saved."""
IN_FLIGHT_MAX: Final = WINDOW - SAVE_EVERY
"""Bodies in flight: with those that are not saved yet, they never exceed the group's window."""


class NamedProducer:
    """The record of a producer, and the numbers of the bodies that are appended now."""

    def __init__(self, file: RecordFile, group: str, record: Record | None, noun: str) -> None:
        """`noun` is the word for a body in messages."""
        self.path = file.path
        """The file of the record."""
        self._file = file
        self._noun = noun
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
        self.source_begin = record.source_begin if record else None
        self._saved = self.acknowledged
        self._sent_before = 0
        """Number of bodies that an earlier program may have sent."""
        self._earlier: EarlierRun | None = None
        # The highest index so far, at each of the last bodies that were acknowledged.
        self._highest: deque[int] = deque(maxlen=WINDOW)
        # Number of bodies of this program with an outcome.
        self._ended = 0
        self.was_given_other_input = False
        """Whether a body has a number under which an earlier program has sent another body."""
        # Two threads may save: the one that `note` uses, and the main one after a second signal.
        self._saving = threading.Lock()
        self.has_failed = False
        """Whether a body was not acknowledged; no further one may be sent."""

    @classmethod
    @contextlib.contextmanager
    def opened(cls, name: str, group: str, noun: str) -> Iterator[Self]:
        """Hold the lock of a producer's record; `noun` is the word for a body in messages.

        Raises UsageError if another process holds it, or the record cannot be read.
        """
        with RecordFile.locked(name, group) as file:
            yield cls(file, group, file.load(), noun)

    async def begin(self, client: DLedgerClient, *, may_register_again: bool = False) -> None:
        """Register, or resume the registration of a program that was interrupted.

        With `may_register_again`, a producer that the group has forgotten is registered again if
        the log shows which bodies it has. Its bodies in the log then get no outcome.
        Raises UsageError if the group is not the one of the record, and what `EarlierRun` raises.
        """
        record = self._record
        if record is not None:
            await self._check_witness(client, record.witness)
        if record is not None and not record.is_complete:
            bound = record.acknowledged + WINDOW
            sent_max = bound if record.sent_max is None else record.sent_max
            earlier = EarlierRun(client, record, sent_max)
            await earlier.look()
            if not (may_register_again and earlier.is_forgotten and not earlier.last_after_gap):
                self._earlier, self._sent_before = earlier, sent_max
                acknowledged = record.acknowledged - record.base
                sent = sent_max - record.base
                await client.resume_producer(record.producer, acknowledged, sent)
                self._record = msgspec.structs.replace(record, sent_max=None)
                self._file.save(self._record)  # before this program sends more than that
                return
            async for body in earlier.bodies():
                self.acknowledged += 1
                self._checksum = _checksum(body, self._checksum)
            self.skipped = self._saved = self.acknowledged
        producer = await client.register_producer()
        await client.resume_producer(producer)
        self._record = Record(
            group=self._group,
            producer=producer,
            base=self.acknowledged,
            acknowledged=self.acknowledged,
            above_index=producer,
            checksum=self._checksum,
            is_complete=False,
            witness=await _witness(client, producer),
            run=self.run,
            source_begin=self.source_begin,
        )
        self._file.save(self._record)

    def begin_after_record(self) -> None:
        """Expect an input that begins with the body after those that the record describes."""
        self._number, self._input_checksum = self.skipped, self._checksum

    def takes(self, body: bytes) -> bool:
        """Number the next body; return whether it must be appended.

        Raises UsageError if the bodies so far are not those that the record describes.
        """
        self._number += 1
        self._input_checksum = _checksum(body, self._input_checksum)
        if self._number > self.skipped:
            other = self._earlier and self._earlier.compare(self._number, body)
            if other:
                raise UsageError(
                    f"{self._noun} {self._number} of the input is not the one that this producer "
                    f"has appended as entry {other.place}, in a run that did not end; nothing was "
                    f"appended. Give it the input of that run, or {self._beginning_again}"
                )
            self._checksums.append(self._input_checksum)
            return True
        if self._number == self.skipped and self._input_checksum != self._checksum:
            raise UsageError(
                f"the beginning of the input, up to {self._noun} {self._number}, is not what this "
                f"producer has appended; {self._beginning_again}"
            )
        return False

    def check_end(self) -> None:
        """Raise UsageError if the input has ended before all bodies that the record describes."""
        if self._number < self.skipped:
            raise UsageError(
                f"the input has {counted(self._number, self._noun)}, but this producer has "
                f"appended {self.skipped}; {self._beginning_again}"
            )

    async def numbered(self, bodies: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the bodies that must be appended. Raises UsageError as `takes` and `check_end` do.

        If an earlier program's bodies have a gap in the log, none is yielded before all of them
        are compared.
        """
        last = 0 if self._earlier is None else self._earlier.last_after_gap
        held: list[bytes] = []
        problem: InputError | None = None
        try:
            async for body in bodies:
                if not self.takes(body):
                    continue
                held.append(body)
                if self._number >= last:
                    for each in held:
                        yield each
                    held.clear()
        except InputError as error:
            problem = error
        for each in held:
            yield each
        if problem is not None:
            raise problem
        self.check_end()

    async def confirmed(self, outcome: Outcome) -> Outcome:
        """Return the outcome of the next body; a refusal if its entry has another body."""
        self._ended += 1
        number = self.skipped + self._ended
        if self._earlier is None or not isinstance(outcome, Acknowledged):
            return outcome
        other = await self._earlier.other_entry(number, outcome.index)
        if other is None:
            return outcome
        self.was_given_other_input = True
        return Refused(
            number=outcome.number,
            code=DLedgerResponseCode.UNEXPECTED_ARGUMENT,
            reason=f"{self._noun} {number} of the input is not the one that an earlier run of this "
            f"producer has appended as entry {other.place}; use another name {ALL_AGAIN}",
        )

    async def note(self, outcome: Outcome) -> None:
        """Note the outcome of the next body. Raises RecordError."""
        self.has_failed |= not isinstance(outcome, Acknowledged)
        if self.has_failed:
            return
        assert isinstance(outcome, Acknowledged)
        self.acknowledged += 1
        self._checksum = self._checksums.popleft()
        self._highest.append(max(outcome.index, self._highest[-1] if self._highest else -1))
        if self.acknowledged - self._saved >= SAVE_EVERY:
            saving = asyncio.ensure_future(asyncio.to_thread(self.save))
            try:
                await asyncio.shield(saving)
            except asyncio.CancelledError:
                await saving  # the record's lock must be held until the write ends
                raise

    def note_nothing_pending(self) -> None:
        """Note that no body that was sent can be in the log beyond those with an outcome.

        The next program then knows it of the body that was refused.
        """
        assert self._record is not None
        sent_max = max(self.acknowledged, self._sent_before)
        self._record = msgspec.structs.replace(self._record, sent_max=sent_max)

    def save(self) -> None:
        """Save what is acknowledged. Raises RecordError."""
        with self._saving:
            assert self._record is not None
            above_index = self._record.above_index
            if len(self._highest) == WINDOW:
                # A body is sent only once all bodies a window or more before it are in the log.
                above_index = max(above_index, self._highest[0])
            self._record = msgspec.structs.replace(
                self._record,
                acknowledged=self.acknowledged,
                above_index=above_index,
                checksum=self._checksum,
                run=self.run,
                source_begin=self.source_begin,
            )
            self._file.save(self._record)
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
        """Return advice for a group that has forgotten the producer while outcomes are unknown."""
        return (
            f" The group has forgotten producer {name}, so no run can find out by itself what of "
            f"this is in the log. Look with `dledger get {self.registration}..`, take what is "
            "there out of the input, and append the rest under another name; or empty the group, "
            f"and remove {self.path}"
        )

    @property
    def _beginning_again(self) -> str:
        """What a user can do if the input is refused, and what that entails."""
        return f"use another name, or remove {self.path}, {ALL_AGAIN}"

    @property
    def is_new(self) -> bool:
        """Whether no earlier program has used the name."""
        return self._record is None

    async def complete(self, client: DLedgerClient, last_index: int | None) -> None:
        """Save that every body that was sent is acknowledged, the last one at `last_index`.

        If a killed program may have sent more bodies than this input has, the next program must
        continue with the same numbers.
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
                f"appended: entry {witness.index} is not there ({error}); {self._beginning_again}"
            ) from error
        if found != witness:
            raise UsageError(
                f"group {self._group} is not the one to which this producer has appended: entry "
                f"{witness.index} differs; {self._beginning_again}"
            )


def _checksum(body: bytes, before: int) -> int:
    """Return the checksum of bodies and their sizes, from that of the bodies before the last."""
    return crc32(body, crc32(len(body).to_bytes(4), before))


async def _witness(client: DLedgerClient, index: int) -> Witness:
    entry = await client.get(index)
    return Witness(index=index, term=entry.term, chain_crc=entry.chain_crc)
