"""Plan which segments of a member to read, and which part of each, from its manifest."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dledger_formats.http.status import Manifest, SegmentFile
from dledger_formats.log import disk
from pyspark_dledger.files import AnswerError
from pyspark_dledger.ranges import IndexRange
from pyspark_dledger.segments import Segment

PARTS_MAX: Final = 16
"""How many parts of one segment an audit reads separately."""


def segments(manifest: Manifest, wanted: IndexRange) -> Iterator[Segment]:
    """Yield the segments that hold wanted and committed entries, in order."""
    files = in_order(manifest.data)
    last_wanted = min(wanted.last, manifest.status.committed_index)
    for previous, file, following in zip([None, *files], files, [*files[1:], None], strict=False):
        last_expected = _last_expected(manifest, file, following)
        if file.first_index > last_wanted:
            continue
        if last_expected is not None and last_expected < wanted.first:
            continue
        yield Segment(
            file=file,
            previous=previous if previous and _follows(file, previous) else None,
            index_files=_index_files(manifest, file.first_index, last_expected),
            first_wanted=wanted.first,
            last_wanted=last_wanted,
            last_expected=last_expected,
            is_sealed=following is not None and _follows(following, file),
            term_max=manifest.status.term,
        )


def parts(
    manifest: Manifest, wanted: Sequence[IndexRange], parts_max: int | None = None
) -> Iterator[tuple[Segment, ...]]:
    """Yield the segments that hold entries of the wanted ranges, each once for every such range.

    If a segment holds parts of more than `parts_max` ranges, everything between them is read too.
    """
    hull = IndexRange(first=wanted[0].first, last=wanted[-1].last)
    for segment in segments(manifest, hull):
        last = segment.last_wanted if segment.last_expected is None else segment.last_expected
        held = [
            each for each in wanted if each.first <= last and each.last >= segment.file.first_index
        ]
        if parts_max is not None and len(held) > parts_max:
            held = [IndexRange(first=held[0].first, last=held[-1].last)]
        if held:
            yield tuple(
                replace(
                    segment,
                    first_wanted=each.first,
                    last_wanted=min(each.last, segment.last_wanted),
                )
                for each in held
            )


def check_names(manifest: Manifest) -> None:
    """Raise AnswerError for a file whose name is not an offset."""
    for file in (*manifest.data, *manifest.index):
        try:
            disk.start_offset(file.name)
        except ValueError as error:
            raise AnswerError(
                f"the manifest of {manifest.status.self_id} is invalid: {error}"
            ) from error


def in_order(files: list[SegmentFile]) -> list[SegmentFile]:
    """Sort files by offset, without empty ones."""
    held = [file for file in files if file.first_index >= 0]
    return sorted(held, key=lambda file: disk.start_offset(file.name))


def _follows(file: SegmentFile, previous: SegmentFile) -> bool:
    end = disk.start_offset(previous.name) + previous.size_bytes
    return end == disk.start_offset(file.name)


def _last_expected(
    manifest: Manifest, file: SegmentFile, following: SegmentFile | None
) -> int | None:
    if following is None:
        return manifest.status.committed_index
    return following.first_index - 1 if _follows(following, file) else None


def _index_files(manifest: Manifest, first: int, last: int | None) -> tuple[SegmentFile, ...]:
    """Select the index files that cover a segment's entries and the two entries before them."""
    low = max(0, first - 2) * disk.INDEX_UNIT_SIZE
    files = itertools.dropwhile(
        lambda file: disk.start_offset(file.name) + file.size_bytes <= low, in_order(manifest.index)
    )
    if last is None:
        return tuple(files)
    end = (last + 1) * disk.INDEX_UNIT_SIZE
    return tuple(itertools.takewhile(lambda file: disk.start_offset(file.name) < end, files))
