"""The options of the data source, without Spark."""

import subprocess
import sys

import pytest

from pyspark_dledger.options import OptionError, parse
from pyspark_dledger.ranges import NOTHING, IndexRange

PLACE = {"path": "n0=http://h:1"}


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("startIndex", "startingIndex"),
        ("STARTING_INDEX", "startingIndex"),
        ("endindex", "endingIndex"),
        ("range", "ranges"),
        ("member", "members"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(given: str, nearest: str) -> None:
    with pytest.raises(OptionError, match=f"{given} does not exist. Did you mean {nearest}"):
        parse({**PLACE, given: "1"})


def test_an_option_that_is_near_to_none_is_refused_with_all_names() -> None:
    with pytest.raises(OptionError, match=r"xyzzy does not exist\. The options are members, "):
        parse({**PLACE, "xyzzy": "1"})


def test_the_case_of_names_does_not_matter() -> None:
    options = parse({"PATH": "n0=http://h:1", "startingindex": "7", "ENDINGINDEX": "9"})

    assert options.members == {"n0": "http://h:1"}
    assert options.ranges == (IndexRange(first=7, last=9),)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingIndex", "-1"),
        ("startingIndex", "first"),
        ("endingIndex", "1.5"),
        ("endingIndex", str(1 << 63)),
        ("ranges", "[[1, 2"),
        ("ranges", "[1, 2]"),
        ("ranges", "[[1, 2, 3]]"),
        ("ranges", "[[5, 4]]"),
        ("ranges", "[[0, 5], [3, 9]]"),
        ("ranges", "[[true, 5]]"),
        ("cuts", "{}"),
        ("manifests", "[]"),
        ("rows", "all"),
        ("rows", "digests"),
        ("view", "both"),
        ("level", "header"),
        ("onRemoved", "ignore"),
        ("taskBytes", "0"),
        ("taskBytes", "256MiB"),
        ("paths", "[1]"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_its_option(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"^{name} is"):
        parse({**PLACE, name: value})


@pytest.mark.parametrize("ranges", ["[[0, 9], [9, 12]]", "[[5, 5], [5, 5]]", "[[0, 9], [3, 4]]"])
def test_ranges_that_share_an_entry_are_refused(ranges: str) -> None:
    with pytest.raises(OptionError, match="must not overlap"):
        parse({**PLACE, "ranges": ranges})


def test_ranges_that_follow_each_other_are_taken() -> None:
    options = parse({**PLACE, "ranges": "[[0, 4], [5, 5], [6, 9]]"})

    assert [(each.first, each.last) for each in options.ranges] == [(0, 4), (5, 5), (6, 9)]


def test_an_end_before_the_start_is_refused() -> None:
    with pytest.raises(OptionError, match="endingIndex is 4, before startingIndex, 5"):
        parse({**PLACE, "startingIndex": "5", "endingIndex": "4"})


@pytest.mark.parametrize(
    ("first", "last", "left"),
    [
        (0, 100, [(0, 4), (10, 14)]),
        (3, 11, [(3, 4), (10, 11)]),
        (5, 9, []),
        (12, 12, [(12, 12)]),
    ],
)
def test_ranges_are_cut_to_the_indexes_between_start_and_end(
    first: int, last: int, left: list[tuple[int, int]]
) -> None:
    options = parse(
        {
            **PLACE,
            "ranges": "[[0, 4], [10, 14]]",
            "startingIndex": str(first),
            "endingIndex": str(last),
        }
    )

    expected = tuple(IndexRange(first=low, last=high) for low, high in left)
    assert options.ranges == (expected or (NOTHING,))


@pytest.mark.parametrize("text", ["", "n0", "n0=", "=http://h:1", "n0=http://h:1,n0=http://h:2"])
def test_members_that_are_not_named_once_with_a_place_are_refused(text: str) -> None:
    with pytest.raises(OptionError):
        parse({"path": text})


def test_a_folder_may_be_given_by_its_uri() -> None:
    options = parse({"path": "n0=file:///copies/dledger-n0,n1=/copies/dledger-n1"})

    assert options.members == {"n0": "/copies/dledger-n0", "n1": "/copies/dledger-n1"}


@pytest.mark.parametrize(
    "place",
    ["hdfs://names:8020/archives/orders/log-9-a", "s3a://b/a", "file://host/a", "https://h"],
)
def test_a_place_in_another_file_system_is_refused(place: str) -> None:
    with pytest.raises(OptionError, match=f"{place!r} cannot be read: .* or a local folder"):
        parse({"path": f"n0={place}"})


def test_decoding_needs_no_pyspark_and_the_lookup_needs_nothing_else() -> None:
    """A missing library must not break the other data sources of a session."""
    script = (
        "import sys, pyspark_dledger.segments; assert 'pyspark' not in sys.modules;"
        "sys.modules.update(dict.fromkeys(['numpy', 'pyarrow', 'zlib_ng', 'msgspec']));"
        "[sys.modules.pop(name) for name in list(sys.modules) if name.startswith('pyspark_dl')];"
        "import pyspark_dledger; assert hasattr(pyspark_dledger, 'DefaultSource');"
        "assert not hasattr(pyspark_dledger, 'OtherSource')"
    )

    subprocess.run([sys.executable, "-c", script], check=True)
