"""Answers to READ_RANGE, with entries in their stored form."""

from collections.abc import Callable

from dledger_formats.log import disk
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_formats.protocol.read_range import ReadRangeRequest, ReadRangeResponse
from dledger_formats.protocol.requests import GetEntriesResponse

_UNSIGNED = 0xFFFF_FFFF


def stored_form(entry: DLedgerEntry) -> bytes:
    """Return the bytes of an entry as a member stores it."""
    header = disk.EntryHeader(
        entry.magic, entry.size, entry.index, entry.term, entry.pos, entry.channel,
        entry.chain_crc & _UNSIGNED, entry.body_crc & _UNSIGNED, len(entry.body),
    )  # fmt: skip
    return disk.ENTRY_HEADER.pack(*header) + entry.body


def range_answer(
    request: ReadRangeRequest,
    found: GetEntriesResponse,
    committed_index: int,
    spoil: Callable[[bytes], bytes],
) -> bytes:
    """Return the answer with the entries that a GET has found, up to the last requested one."""
    last = request.last_index
    entries = [entry for entry in found.entries if last < 0 or entry.index <= last]
    waited = request.wait_ms and found.code is DLedgerResponseCode.INDEX_OUT_OF_RANGE
    head = ReadRangeResponse(
        code=DLedgerResponseCode.SUCCESS if waited else found.code,
        leader_id=found.leader_id,
        committed_index=committed_index,
    ).head()
    return head + spoil(b"".join(map(stored_form, entries)))
