"""Planning which segments to read, from a manifest."""

from dataclasses import replace

import pytest

from dledger_logs.histories import history, small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import without_segment
from dledger_logs.write import write_log
from pyspark_dledger.files import AnswerError
from pyspark_dledger.plan import check_names, segments
from pyspark_dledger.ranges import IndexRange


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return write_log(tmp_path_factory.mktemp("member") / "log", history(300), small_shape())


def test_every_segment_is_planned_with_the_entries_that_it_holds(log: Log) -> None:
    planned = list(segments(manifest(log, "n0"), IndexRange()))

    assert [segment.file.name for segment in planned] == log.segments
    assert [segment.last_expected for segment in planned] == [
        log.places_in(name)[-1].index for name in log.segments
    ]


def test_segments_outside_the_wanted_range_are_skipped(log: Log) -> None:
    middle = log.places_in(log.segments[2])
    wanted = IndexRange(first=middle[1].index, last=middle[-1].index)

    planned = list(segments(manifest(log, "n0"), wanted))

    assert [segment.file.name for segment in planned] == [log.segments[2]]


def test_nothing_after_the_committed_index_is_planned(log: Log) -> None:
    first = log.places_in(log.segments[1])[0].index

    planned = list(segments(manifest(log, "n0", committed_index=first), IndexRange()))

    assert [segment.file.name for segment in planned] == log.segments[:2]
    assert planned[-1].last_wanted == first
    assert not list(segments(manifest(log, "n0", committed_index=-1), IndexRange()))


def test_the_last_index_of_a_segment_is_unknown_if_the_next_one_is_missing(log: Log) -> None:
    served = without_segment(manifest(log, "n0"), log.segments[1])

    planned = list(segments(served, IndexRange()))

    assert planned[0].last_expected is None
    assert planned[1].previous is None


def test_files_may_be_listed_in_any_order(log: Log) -> None:
    served = manifest(log, "n0")
    reversed_files = replace(served, data=served.data[::-1], index=served.index[::-1])

    assert list(segments(reversed_files, IndexRange())) == list(segments(served, IndexRange()))


def test_a_segment_has_the_index_files_of_its_entries_and_of_the_two_before(
    log: Log,
) -> None:
    for segment in segments(manifest(log, "n0"), IndexRange()):
        assert segment.last_expected is not None
        units = range(max(0, segment.file.first_index - 2), segment.last_expected + 1)
        names = {log.unit_place(index)[0].name for index in units}

        assert {file.name for file in segment.index_files} == names


def test_a_file_whose_name_is_not_an_offset_is_rejected(log: Log) -> None:
    served = manifest(log, "n0")
    strange = replace(served.data[0], name="../../etc/passwd")

    check_names(served)
    with pytest.raises(AnswerError, match="etc/passwd"):
        check_names(replace(served, data=[*served.data, strange]))
