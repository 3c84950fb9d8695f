"""The border of a removal: the last entry that is removed, and the first that is kept.

The chain CRC of the last removed entry proves the header of the first kept entry, so it is saved
with the beginning of the log. If only one of the two entries has rotted, that value can usually be
derived from the other one and its neighbors. If it cannot, and no peer can mend the removed entry,
the first kept entry is trusted as it is now, as at the first start with a log of an earlier
release. It is not trusted if its own checksums show that it has rotted as well.
"""

from dataclasses import dataclass, field

from dledger_formats.log import disk
from dledger_formats.log.chain_link import chain_crc_before
from dledger_formats.log.disk import ENTRY_HEADER_SIZE, DamagedRecordError, EntryHeader
from dledger_node.errors import BorderDamagedError, Damage, StoreDamagedError
from dledger_node.shortages import is_passing
from dledger_node.store.log.damaged_ranges import follows, sound_header
from dledger_node.store.log.files import Beginning, LogFiles, place


@dataclass(slots=True)
class _LastRemoved:
    """The last entry that is removed."""

    chain_crcs: list[int] = field(default_factory=list)
    """Its chain CRC as it is stored, and as it follows from the entry before."""
    is_sound: bool = False
    """Whether it passes its checksums and follows from the entry before."""


def beginning_at(
    files: LogFiles, first_index: int, begin: Beginning, end_index: int, *, mend_first: bool
) -> Beginning:
    """Return the beginning of a log once the entries before one of its segments are removed.

    Raises StoreDamagedError if the index does not show that a segment begins with that entry. With
    `mend_first`, also raises it if that entry is damaged, and BorderDamagedError if the one before
    it is.
    """
    files.check_begins_segment(first_index)
    try:
        first = files.header(first_index)
    except StoreDamagedError:
        if mend_first:
            raise
        # The index says where the entry is, which is enough to remove the entries before it.
        last = _last_removed(files, first_index - 1, begin)
        return Beginning(first_index, last.chain_crcs[0] if last.is_sound else None)
    wanted = chain_crc_before(first)
    if wanted is None:
        return Beginning(first_index, None)
    last = _last_removed(files, first_index - 1, begin)
    if wanted in last.chain_crcs:
        return Beginning(first_index, wanted)
    where = place(files.data, files.pos(first_index))
    if last.is_sound:
        if mend_first:
            raise StoreDamagedError(
                f"entry {first_index} is damaged at {where}: its header does not follow from the "
                "entry before it. The other members have the entry",
                Damage.BAD_ENTRY,
                first_index,
            )
        return Beginning(first_index, last.chain_crcs[0])
    if mend_first:
        raise BorderDamagedError(
            f"entry {first_index - 1} is damaged, the last one before {where}. Retention removes "
            "it, but first it should prove the entry after it; another member may have it",
            Damage.BAD_ENTRY,
            first_index - 1,
        )
    return Beginning(first_index, wanted if _is_sound(files, first, end_index) else None)


def _last_removed(files: LogFiles, index: int, begin: Beginning) -> _LastRemoved:
    found = _LastRemoved()
    try:
        pos = files.pos(index)
        raw = files.data.read(pos, pos + ENTRY_HEADER_SIZE)
        header = disk.unpack_header(raw, 0)
        found.chain_crcs.append(header.chain_crc)
        before = files.chain_crc_before(index, begin)
        if before is not None and header.chain_crc:
            found.chain_crcs.append(disk.chain_crc_of(header, before))
            sound = sound_header(files, pos, index)
            found.is_sound = sound is not None and follows(sound, before)
    except (StoreDamagedError, DamagedRecordError, IndexError) as error:
        if is_passing(error):
            raise
    return found


def _is_sound(files: LogFiles, first: EntryHeader, end_index: int) -> bool:
    """Return whether an entry passes its own checksums, and the one after it follows from it."""
    try:
        if sound_header(files, files.pos(first.index), first.index) is None:
            return False
        return first.index == end_index or follows(files.header(first.index + 1), first.chain_crc)
    except (StoreDamagedError, IndexError):
        return False
