"""One run of `dledger-audit compact`: from the members' logs to an archive.

One pass (`live`) decides which entries stay. Then the entries are read once more, in order, and
written. Both read each entry from a copy that has it intact. Entries that an archive already holds
are read from there, so the members' logs may have lost their front.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger_audit.compaction import archive as archives
from dledger_audit.compaction import copies as log_copies
from dledger_audit.compaction import decision
from dledger_audit.compaction.archive import Archive
from dledger_audit.compaction.decision import Rule
from dledger_audit.compaction.live import LiveEntries, LivePass, Part
from dledger_audit.compaction.writer import LogWriter
from dledger_audit.progress import Counted, doing
from dledger_formats.log import disk
from dledger_formats.log.archives import FORMAT, ArchiveInfo, digest_of
from pyspark_dledger.copies import Copy, RefusedError
from pyspark_dledger.intact import NoIntactCopyError, Reader, Slice, UnauthorizedCopyError
from pyspark_dledger.layout import Bools
from pyspark_dledger.segments import WINDOW_BYTES

_KEY_OF_HISTORY: Final = ("term", "channel", "magic", "body_size")
_DROPPED: Final = (0, disk.NOOP, 0, 0)
"""The other fields of an entry that was dropped, and the CRC of its body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run will read and do, decided before it reads any entry."""

    group: str
    decoder: str
    rule: Rule
    first_index: int
    end_index: int
    parts: tuple[Part, ...]
    """All entries of the new archive, with the copies to read them from."""
    previous: Archive | None
    segment_bytes: int
    index_segment_bytes: int

    @property
    def to_decide(self) -> list[Part]:
        """The parts up to the clean point."""
        clean = self.rule.clean_index
        return [
            Part(first_index=p.first_index, last_index=min(p.last_index, clean), copies=p.copies)
            for p in self.parts
            if p.first_index <= clean
        ]

    @property
    def source_first_index(self) -> int:
        """The first entry that is read from the members."""
        return self.parts[-1].first_index


def plan(
    group: str,
    members: Sequence[Copy],
    decoder: str,
    tombstone_entries: int,
    previous: Archive | None,
) -> Plan | None:
    """Decide what to read; None if the previous archive is as new as an archive can be.

    Raises RefusedError.
    """
    voters = [log_copies.report_of(copy) for copy in members]
    clean, end = decision.clean_index(voters), decision.end_index(voters)
    held = _by_begin([copy for copy in members if copy.committed_index >= 0])
    first = min((copy.first_index for copy in held), default=0)
    if previous is None:
        if clean < first:
            raise RefusedError(
                f"nothing of the group {group} can be compacted yet: its voters have committed the "
                f"entries up to {end}, and an entry must lie before the last segment of all "
                "voters; run this again once each voter has another segment"
            )
        segment_bytes, index_bytes = log_copies.sizes(held)
        parts = [Part(first_index=first, last_index=end, copies=held)]
    else:
        info = previous.info
        _check_previous(info, group, decoder, tombstone_entries, members)
        damaged = previous.damaged_files()
        is_same = (clean, end) == (info.clean_index, info.end_index)
        is_behind = clean < info.clean_index or end < info.end_index
        if is_behind and damaged:
            # The archive may have the only copy of entries above the lowest committed index.
            raise RefusedError(
                f"{previous.log / damaged[0]} is damaged, and the voters have committed only up to "
                f"{end} and can be compacted up to {clean}, not to {info.end_index} and "
                f"{info.clean_index} as the archive: wait until all voters have caught up, or "
                "restore the archive from a backup"
            )
        if is_behind or (is_same and tombstone_entries == info.tombstone_entries and not damaged):
            return None
        parts = _after(previous, damaged, held, first, end)
        first = info.first_index
        segment_bytes, index_bytes = info.segment_bytes, info.index_segment_bytes
    return Plan(
        group=group,
        decoder=decoder,
        rule=Rule(clean, tombstone_entries),
        first_index=first,
        end_index=end,
        parts=tuple(part for part in parts if part.first_index <= part.last_index),
        previous=previous,
        segment_bytes=segment_bytes,
        index_segment_bytes=index_bytes,
    )


def _after(
    previous: Archive, damaged: Sequence[str], held: tuple[Copy, ...], first: int, end: int
) -> list[Part]:
    """Return the parts of a run that continues an archive: the archive, and the log after it.

    Entries of the two are never mixed up to the old clean point. The archive may have dropped a
    tombstone there, while a member's log still holds what it deleted. Raises RefusedError.
    """
    info = previous.info
    if not damaged and first > info.end_index + 1:
        raise RefusedError(
            f"the archive ends with entry {info.end_index}, and the members begin with {first}: "
            "retention has removed the entries between, so the archive cannot be continued; keep "
            "it for what it has, and compact to another folder"
        )
    if not damaged:
        old, next_index = previous.copy(), info.clean_index + 1
        return [
            Part(first_index=info.first_index, last_index=info.clean_index, copies=(old,)),
            Part(first_index=next_index, last_index=end, copies=(*held, old)),
        ]
    if first > info.first_index:
        raise RefusedError(
            f"{previous.log / damaged[0]} is damaged, and the members begin with entry {first}, so "
            "they cannot replace it; restore the archive from a backup"
        )
    return [Part(first_index=info.first_index, last_index=end, copies=held)]


def compact(
    planned: Plan,
    members: Sequence[Copy],
    passes: LivePass,
    path: Path,
    window_bytes: int = WINDOW_BYTES,
) -> Archive:
    """Make the archive in its locked folder. Raises RefusedError; the old archive then stays."""
    with Reader(window_bytes) as reader:
        check_histories(reader, planned, members)
    live = passes.live(planned.to_decide, planned.decoder, planned.rule)
    try:
        return _written(planned, members, live, path, window_bytes)
    except (Exception, KeyboardInterrupt) as error:
        archives.discard_new_log(path)
        if isinstance(error, OSError):
            raise RefusedError(
                f"the archive cannot be written to {path}: {error}; make room there, or name "
                "another folder"
            ) from error
        raise


def _written(
    planned: Plan, members: Sequence[Copy], live: LiveEntries, path: Path, window_bytes: int
) -> Archive:
    """Write the new log and make it the archive's log. Raises RefusedError and OSError."""
    folder = archives.new_log(path)
    writer = LogWriter(
        folder,
        segment_bytes=planned.segment_bytes,
        index_segment_bytes=planned.index_segment_bytes,
        first_index=planned.first_index,
    )
    digest, dead_entries, dead_bytes = hashlib.sha256(), 0, 0
    counted = Counted(planned.end_index - planned.first_index + 1)
    try:
        with Reader(window_bytes) as reader, doing("writing the archive", counted.share):
            for part in planned.parts:
                for entries in reader.read(part.copies, part.first_index, part.last_index):
                    keeps = kept(entries, live, planned.rule.clean_index)
                    bodies = entries.entries.bodies.sizes[entries.start : entries.end]
                    dead_entries += int((~keeps).sum())
                    dead_bytes += int(bodies[~keeps].sum())
                    writer.append(entries, keeps)
                    counted.done += len(keeps)
                    if part.first_index == planned.source_first_index:
                        _add(digest, entries)
        files = writer.finish()
    except ValueError as error:
        raise RefusedError(
            f"the copies do not continue each other: {error}; audit the group"
        ) from error
    finally:
        writer.close()
    copy_sha256 = digest_of(files)
    before = planned.previous
    known = before.info.group_identity if before else ""
    info = ArchiveInfo(
        format=FORMAT,
        group=planned.group,
        group_identity=known or log_copies.identity_of(members),
        decoder=planned.decoder,
        tombstone_entries=planned.rule.tombstone_entries,
        first_index=planned.first_index,
        clean_index=planned.rule.clean_index,
        end_index=planned.end_index,
        end_term=writer.last_term,
        voters=list(writer.membership.voters),
        learners=list(writer.membership.learners),
        segment_bytes=planned.segment_bytes,
        index_segment_bytes=planned.index_segment_bytes,
        dead_entries=dead_entries,
        dead_bytes=dead_bytes,
        source_first_index=planned.source_first_index,
        source_sha256=digest.hexdigest(),
        previous_sha256=before.info.copy_sha256 if before else "",
        copy_sha256=copy_sha256,
        files=files,
        folder=archives.folder_name(planned.end_index, copy_sha256, before),
    )
    archives.install(path, info)
    return Archive(path, info)


def kept(entries: Slice, live: LiveEntries, clean_index: int) -> Bools:
    """Return which entries stay: no-ops, those after the clean point, and those that are live."""
    part = slice(entries.start, entries.end)
    index, magic = entries.entries.index[part], entries.entries.headers["magic"][part]
    stays: Bools = (magic != disk.NORMAL) | (index > clean_index)
    asked = ~stays
    stays[asked] = live.keeps(index[asked])
    return stays


def check_histories(reader: Reader, planned: Plan, members: Sequence[Copy]) -> None:
    """Compare the copies at the first entry that is read and at the last.

    The chain CRC there covers the headers of all entries before, and their bodies. The first entry
    is compared because nothing proves its header if the entry before it was removed. Copies without
    checksums, as Java writes them, cannot be compared like this. Raises RefusedError.
    """
    for index in (planned.source_first_index, planned.end_index):
        found = {copy.member: _header(reader, copy, index) for copy in members}
        headers = [each for each in found.values() if each is not None]
        chains = {each[-1] for each in headers} - {0}
        if len({each[:-1] for each in headers}) > 1 or len(chains) > 1:
            raise RefusedError(
                f"the members {', '.join(found)} differ at or before entry {index}: audit the "
                "group, and repair it first"
            )
    if planned.previous is not None:
        _check_overlap(reader, planned, members, planned.previous)


def _check_overlap(
    reader: Reader, planned: Plan, members: Sequence[Copy], previous: Archive
) -> None:
    """Raise RefusedError if the archive's last entry differs from the members'."""
    at = previous.info.end_index
    old = _header(reader, previous.copy(), at)
    # A dropped entry has kept its term alone.
    known = 1 if old and at <= previous.info.clean_index and old[1:-1] == _DROPPED else -1
    for copy in members:
        new = _header(reader, copy, at)
        if old is not None and new is not None and old[:known] != new[:known]:
            raise RefusedError(
                f"entry {at} of the archive is another one than that of {copy.member}: the archive "
                f"is of another history of the group {planned.group}; compact to a new folder"
            )


def _header(reader: Reader, copy: Copy, index: int) -> tuple[int, ...] | None:
    """Return what identifies an entry of a copy, and its chain CRC; None if it is not intact.

    Raises UnauthorizedCopyError.
    """
    try:
        (entries,) = reader.read((copy,), index, index)
    except UnauthorizedCopyError:
        raise  # a member that refuses the token is not damaged
    except NoIntactCopyError:
        return None
    run, at = entries.entries, entries.start
    fields = [int(run.headers[name][at]) for name in _KEY_OF_HISTORY]
    return (*fields, int(run.crc[at]), int(run.headers["chain_crc"][at]))


def _check_previous(
    info: ArchiveInfo, group: str, decoder: str, tombstone_entries: int, members: Sequence[Copy]
) -> None:
    advice = "compact to another folder"
    if info.group != group or log_copies.is_other_group(members, info.group_identity):
        raise RefusedError(f"the archive belongs to another group, {info.group}; {advice}")
    if info.decoder != decoder:
        raise RefusedError(
            f"the archive was made with the decoder {info.decoder}, not {decoder}: entries that "
            f"{decoder} would keep may be gone; {advice}"
        )
    if tombstone_entries > info.tombstone_entries:
        raise RefusedError(
            f"the archive was made with --tombstone-entries {info.tombstone_entries}, not "
            f"{tombstone_entries}: tombstones that must stay longer may be gone; give "
            f"{info.tombstone_entries} or fewer, or {advice}"
        )


def _by_begin(members: Sequence[Copy]) -> tuple[Copy, ...]:
    """Sort copies by their first index; among equal ones, the leader comes last.

    Before it, the copies with the highest committed index come first.
    """

    def rank(copy: Copy) -> tuple[int, bool, int]:
        return copy.first_index, copy.leads, -copy.committed_index

    return tuple(sorted(members, key=rank))


def _add(digest: "hashlib._Hash", entries: Slice) -> None:
    """Add the bytes of entries, which lie end to end, to a digest."""
    bodies, last = entries.entries.bodies, entries.end - 1
    start = int(bodies.offsets[entries.start]) - disk.ENTRY_HEADER_SIZE
    end = int(bodies.offsets[last] + bodies.sizes[last])
    digest.update(entries.entries.view.data[start:end])
