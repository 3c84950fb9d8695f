"""Compare an archive with its sources, entry by entry."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dledger_audit.compaction.archive import Archive
from dledger_audit.compaction.proof.expected import STAYS, Fate, Fates
from dledger_audit.compaction.proof.found import Found
from dledger_audit.compaction.proof.walk import ArchivedEntry, Walk
from dledger_audit.progress import Counted, doing
from dledger_formats.log import disk
from dledger_formats.log.archives import digest_of
from pyspark_dledger.copies import Copy, RefusedError
from pyspark_dledger.intact import Reader, Slice
from pyspark_dledger.keys import decoder
from pyspark_dledger.plan import in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What the archive was made of."""

    members: Sequence[Copy]
    previous: Archive | None = None
    """The archive before, for what the members no longer have."""

    @property
    def members_begin(self) -> int:
        """The first entry that the members have."""
        return min((copy.first_index for copy in self.members), default=0)

    @property
    def first_index(self) -> int:
        """The first entry that can be compared."""
        begin = self.members_begin
        if self.previous is not None and begin <= self.previous.info.end_index + 1:
            return min(begin, self.previous.info.first_index)
        return begin

    def reaching(self, index: int) -> "Sources":
        """Return the sources without the members that do not know yet that an entry is committed.

        What one member has committed is committed. Raises RefusedError if none is left.
        """
        members = [copy for copy in self.members if copy.committed_index >= index]
        if not members:
            raise RefusedError(
                f"no member knows now that entry {index} is committed, with which the archive "
                "ends: run this again once the group has a leader; if it has one, these are not "
                "the members of which the archive was made"
            )
        return replace(self, members=members)


class SourceEntry(NamedTuple):
    """An entry of the sources."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used here
    term: int
    magic: int
    channel: int
    body: bytes


def verify(archive: Archive, sources: Sources) -> Found:
    """Return everything that is wrong with an archive. Raises RefusedError.

    The sources may have grown since the archive was made. A voter that came back without its log
    may have less than it had then.
    """
    found, info = Found(), archive.info
    sources = sources.reaching(info.end_index)
    if sources.previous is not None:
        _check_previous(archive, sources.previous)
    for name in archive.damaged_files():
        found.add("digest_differs", -1, f"{name} is not as archive.json describes it")
    _check_files(archive, found)
    _check_points(archive, sources, found)
    begin = max(info.first_index, sources.first_index)
    if sources.first_index < info.first_index:
        last = info.first_index - 1
        text = f"entries {sources.first_index} to {last} are before the first one of the archive"
        found.add("missing", sources.first_index, text)
    if begin > info.first_index:
        text = f"entries {info.first_index} to {begin - 1}; give the archive before as --previous"
        found.add("not_in_source", info.first_index, text)
    with Fates(info.first_index, info.clean_index, decoder(info.decoder)) as fates:
        if begin > info.first_index:
            _note_front(archive, min(begin - 1, info.clean_index), fates)
        counted = Counted(info.clean_index - begin + 1)
        with doing("reading the source", counted.share):
            for source in entries(sources, begin, info.clean_index):
                fates.note(source.index, source.magic, source.body)
                counted.done += 1
        fates.decide(info.tombstone_entries)
        counted = Counted(info.end_index - info.first_index + 1)
        with doing("comparing the archive with its source", counted.share):
            _compare(archive, sources, fates, begin, found, counted)
    return found


def _note_front(archive: Archive, last: int, fates: Fates) -> None:
    """Note the archive's own entries that the sources no longer have: none may be superseded."""
    for entry in _walk(archive, Found()):
        if entry.header.index > last:
            return
        if entry.header.index >= archive.info.first_index:  # the walk reports any other
            fates.note(entry.header.index, entry.header.magic, entry.body)


def _check_previous(archive: Archive, previous: Archive) -> None:
    """Raise RefusedError for any archive but the one before: a wrong one would match itself."""
    wanted, given = archive.info.previous_sha256, digest_of(previous.info.files)
    if not wanted:
        raise RefusedError(
            f"{archive.path} was made by a first run, so there is no archive before it; leave "
            "--previous out"
        )
    if given != wanted:
        raise RefusedError(
            f"{previous.path} is not the archive before this one: its copySha256 is {given}, and "
            f"this one's previousSha256 is {wanted}; give that one, or leave --previous out"
        )
    damaged = previous.damaged_files()
    if damaged:
        raise RefusedError(f"{previous.log / damaged[0]} is damaged; restore it from a backup")


def entries(sources: Sources, first: int, last: int) -> Iterator[SourceEntry]:
    """Yield the entries `first` to `last` of the sources, in order.

    Only entries that the members no longer have are read from the archive before: if more were, the
    entries that it has lost would not be missed. The members have everything after their first
    entry, also the tombstones that the archive before has dropped, so the two can be joined there.
    """
    begin, previous = max(first, sources.members_begin), sources.previous
    with Reader() as reader:
        if previous is not None and first <= min(last, begin - 1):
            for part in reader.read((previous.copy(),), first, min(last, begin - 1)):
                yield from _source_entries(part)
        if begin <= last:
            for part in reader.read(tuple(sources.members), begin, last):
                yield from _source_entries(part)


def _source_entries(part: Slice) -> Iterator[SourceEntry]:
    run, rows = part.entries, slice(part.start, part.end)
    raw, headers = run.view.data, run.headers[rows]
    starts, sizes = run.bodies.offsets[rows], run.bodies.sizes[rows]
    columns = (
        run.index[rows], headers["term"], headers["magic"], headers["channel"], starts,
        starts + sizes,
    )  # fmt: skip
    plain = zip(*(column.tolist() for column in columns), strict=True)
    for index, term, magic, channel, start, end in plain:
        yield SourceEntry(index, term, magic, channel, raw[start:end].tobytes())


def _walk(archive: Archive, found: Found) -> Iterator[ArchivedEntry]:
    info = archive.info
    walk = Walk(archive.log, info.segment_bytes, info.index_segment_bytes, found)
    return walk.entries(info.first_index)


def _check_files(archive: Archive, found: Found) -> None:
    listed = {each.name for each in archive.info.files}
    there = {
        f"{folder}/{path.name}"
        for folder in (disk.DATA_FOLDER, disk.INDEX_FOLDER)
        for path in (archive.log / folder).iterdir()
    }
    for name in sorted(there ^ listed):
        found.add("digest_differs", -1, f"{name} is missing, or not in archive.json")


def _check_end(archive: Archive, last: ArchivedEntry | None, found: Found) -> None:
    """Check what archive.json says about the last entry, since a seed's term comes from there."""
    info = archive.info
    if last is None or (last.header.index, last.header.term) != (info.end_index, info.end_term):
        expected = (
            f"archive.json says that entry {info.end_index} of term {info.end_term} is the last"
        )
        is_there = f"entry {last.header.index} of term {last.header.term}" if last else "no entry"
        found.add("wrong_end", info.end_index, f"{expected}; the log ends with {is_there}")


def _check_points(archive: Archive, sources: Sources, found: Found) -> None:
    """Check the clean point against the end, and against where the last segments begin.

    A member that was rebuilt meanwhile may have other segments, and one that begins earlier, so
    only a clean point that is in the last segment of every member is surely wrong.
    """
    info = archive.info
    logs = [in_order(copy.manifest.data) for copy in sources.members]
    active = max((files[-1].first_index for files in logs if files), default=0)
    if info.clean_index >= active:
        text = (
            f"the clean point is {info.clean_index}, and the last segment of each member begins "
            f"with {active} or before"
        )
        found.add("clean_point", info.clean_index, text)
    if not info.first_index <= info.clean_index <= info.end_index:
        text = f"{info.clean_index} is not in {info.first_index} to {info.end_index}"
        found.add("clean_point", info.clean_index, f"the clean point {text}")


def _compare(
    archive: Archive, sources: Sources, fates: Fates, begin: int, found: Found, counted: Counted
) -> None:
    """Compare all entries of the archive with their fates and with the sources."""
    clean = archive.info.clean_index
    wanted = entries(sources, begin, archive.info.end_index)
    source, entry = next(wanted, None), None
    for entry in _walk(archive, found):
        index = entry.header.index
        counted.done += 1
        while source is not None and source.index < index:
            _miss(source.index, found)
            source = next(wanted, None)
        if source is None or index < source.index:
            if index >= begin:
                found.add("invented", index, f"entry {index} is not in the source")
            elif archive.info.first_index <= index <= clean and entry.header.magic == disk.NORMAL:
                _compare_fate(entry, None, fates.of(index), found)
            continue
        _compare_one(entry, source, fates.of(index) if index <= clean else None, found)
        source = next(wanted, None)
    while source is not None:
        _miss(source.index, found)
        source = next(wanted, None)
    _check_end(archive, entry, found)


def _miss(index: int, found: Found) -> None:
    found.add("missing", index, f"entry {index} is not in the archive")


def _compare_one(
    entry: ArchivedEntry, source: SourceEntry, fate: Fate | None, found: Found
) -> None:
    header, index = entry.header, source.index
    if header.term != source.term:
        found.add("term_changed", index, f"term {header.term}, in the source {source.term}")
    if fate is not None:
        _compare_fate(entry, source, fate, found)
    elif _content(entry) != (source.magic, source.channel, source.body):
        found.add("changed_behind", index, f"entry {index} is after the clean point")


def _compare_fate(
    entry: ArchivedEntry, source: SourceEntry | None, fate: Fate, found: Found
) -> None:
    """Compare an entry up to the clean point; `source` is None if the sources do not have it."""
    index = entry.header.index
    is_there = source is None or _content(entry) == (source.magic, source.channel, source.body)
    if is_there and fate in STAYS:
        return
    is_dropped = entry.header.magic == disk.NOOP and _is_empty(entry)
    if is_dropped and fate not in STAYS and not is_there:
        return
    if fate in STAYS:
        check = _LOST[fate] if is_dropped or fate is Fate.NOT_NORMAL else "altered"
        found.add(check, index, f"entry {index} must be as in the source")
    elif is_there:
        late = fate is Fate.OLD_TOMBSTONE
        check = "tombstone_too_late" if late else "older_value_back"
        found.add(check, index, f"entry {index} must be an empty no-op")
    else:
        check = "invented" if entry.header.magic == disk.NORMAL else "bad_noop"
        found.add(check, index, f"entry {index} must be an empty no-op")


_LOST: Final = {
    Fate.NOT_NORMAL: "lost_membership",
    Fate.WITHOUT_KEY: "lost_without_key",
    Fate.LAST: "lost_last_value",
    Fate.YOUNG_TOMBSTONE: "tombstone_too_early",
}


def _content(entry: ArchivedEntry) -> tuple[int, int, bytes]:
    return entry.header.magic, entry.header.channel, entry.body


def _is_empty(entry: ArchivedEntry) -> bool:
    return not entry.body and entry.header.channel == 0
