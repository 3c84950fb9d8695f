"""The command-line options of the whole suite, and the settings of property tests."""

import signal

import pytest
from hypothesis import settings

from dledger_must_run import plugin as must_run
from dledger_rough_loops import plugin as rough_loops
from dledger_samples import plugin as samples

# Property tests use the same examples in every run, without a deadline for slow machines.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# A background job of a script ignores SIGINT, and so would all programs that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


OPTIONS: list[tuple[str, float, str]] = [
    (
        "--leader-kills",
        5,
        "number of times that the end-to-end test deletes the leader's pod under load",
    ),
    (
        "--rounds",
        0,
        "number of times that an end-to-end test repeats a planned change; 0: its own number",
    ),
    ("--fuzz-seed", 1, "seed of the hostile inputs"),
    ("--fuzz-inputs", 1_000_000, "total number of hostile inputs for the decoders"),
    ("--power-cuts", 100, "total number of power cuts of stores (-m powercut)"),
    (
        "--kills",
        100,
        "total number of times that a store's writer is killed (-m storefaults)",
    ),
    ("--crash-states", 20_000, "total number of crash states that are checked (-m storefaults)"),
    (
        "--corruptions",
        5_000,
        "total number of corruptions of a store's bytes (-m storefaults)",
    ),
    (
        "--block-faults",
        200,
        "number of cells checked in the grid of one-block faults (-m storefaults); 0: all",
    ),
    (
        "--flood-seconds",
        12.0,
        "duration of a flood of hostile connections to a leader (-m fuzz); cut off every 5 s",
    ),
    ("--stall-seconds", 15.0, "how long the disk of a member stalls (-m storage)"),
    (
        "--trouble-seconds",
        10.0,
        "how long the API server has changing faults (tests/kube/test_long_api_trouble.py)",
    ),
]
"""Options that are numbers: name, default and meaning."""


def pytest_configure(config: pytest.Config) -> None:
    """Let `--sample` choose tests, MUST_RUN fail a run in which all are skipped, and `--rough` find
    races.
    """
    config.pluginmanager.register(samples)
    must_run.register(config)
    rough_loops.register(config)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options; pytest only accepts them in this file."""
    samples.add_option(parser)
    rough_loops.add_option(parser)
    parser.addoption(
        "--write-pages",
        action="store_true",
        help="write the pages of docs/ that show what a real server answers",
    )
    for name, default, meaning in OPTIONS:
        parser.addoption(name, type=type(default), default=default, help=meaning)
