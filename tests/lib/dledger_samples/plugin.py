"""A pytest plugin for the marker `sampled` and the options `--sample` and `--share`.

`@pytest.mark.sampled(3)` keeps three cases of a parametrized test in each sample. `by` names a
parameter whose values are chosen instead of cases: `sampled(1, by="java")` keeps all cases of one
value of `java`, and cases without that parameter. `among` names a set that several tests share:
`sampled(1, among="growth")` keeps one case of all tests that name it.

`--share=0.5` keeps half of the files in each sample, each as a whole, because the tests of a file
share what they set up, such as a group of members. A set that several files share is sampled in the
files that are kept, so no set is empty as long as one of its files is kept. Files with the marker
`in_every_sample` are always kept.
"""

from collections import defaultdict
from dataclasses import dataclass

import pytest

from dledger_samples.choice import ALL, chosen, within


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a case in a sampled set."""

    among: str
    name: str
    count: int


def add_option(parser: pytest.Parser) -> None:
    """Declare the option; the suite's conftest calls this, since plugins are loaded too late."""
    parser.addoption(
        "--sample",
        default=ALL,
        metavar="NAME",
        help="run a part of each test that is marked `sampled`; the name, for example a commit, "
        f"determines the part; {ALL}, the default: everything",
    )
    parser.addoption(
        "--share",
        type=float,
        default=1.0,
        help="run this share of the files in a sample, for example 0.5 for half of them",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the sample leaves out."""
    sample = config.getoption("--sample")
    left_out = _in_other_files(sample, config.getoption("--share"), items)
    places = {
        item: place
        for item in items
        if item not in left_out and (place := place_of(item)) is not None
    }
    counts: dict[str, int] = {}
    names: dict[str, set[str]] = defaultdict(set)
    for place in places.values():
        names[place.among].add(place.name)
        if counts.setdefault(place.among, place.count) != place.count:
            raise pytest.UsageError(f"the set {place.among!r} is sampled with different counts")

    kept = {among: chosen(sample, among, names[among], counts[among]) for among in names}
    left_out |= {item for item, place in places.items() if place.name not in kept[place.among]}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _in_other_files(sample: str, share: float, items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the tests in files that a share leaves out."""
    files = {_file_of(item) for item in items}
    kept = within(sample, "files", files, share)
    kept |= {_file_of(item) for item in items if item.get_closest_marker("in_every_sample")}
    return {item for item in items if _file_of(item) not in kept}


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print how to run the same part of the tests again, for use after a failure."""
    sample = config.getoption("--sample")
    if sample != ALL:
        share = config.getoption("--share")
        files = f", of {share:.0%} of the files" if share < 1 else ""
        again = f"--sample={sample}" + (f" --share={share:g}" if share < 1 else "")
        terminalreporter.write_line(
            f"A part of the tests ran: a sample of those that are marked `sampled`{files}; {again} "
            "runs it again."
        )


def place_of(item: pytest.Item) -> Place | None:
    """Return a case's place, or None if the case is in every sample."""
    marker = item.get_closest_marker("sampled")
    if marker is None:
        return None
    (count,), by = marker.args, marker.kwargs.get("by")
    callspec = getattr(item, "callspec", None)
    values = {} if callspec is None else callspec.params
    if by is not None and by not in values:
        return None
    name = item.nodeid if by is None else str(values[by])
    return Place(marker.kwargs.get("among", item.nodeid.partition("[")[0]), name, count)
