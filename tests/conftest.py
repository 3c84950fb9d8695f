"""The command-line options of the whole suite, and the settings of property tests."""

import pytest
from hypothesis import settings

from dledger_must_run import plugin as must_run
from dledger_samples import plugin as samples

# Property tests use the same examples in every run, without a deadline for slow machines.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Let `--sample` choose tests, and MUST_RUN fail a run in which all are skipped."""
    config.pluginmanager.register(samples)
    must_run.register(config)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options; pytest only accepts them in this file."""
    samples.add_option(parser)
    parser.addoption(
        "--write-pages",
        action="store_true",
        help="write the pages of docs/ that show what a real server answers",
    )
    parser.addoption(
        "--leader-kills",
        type=int,
        default=5,
        help="number of times that the end-to-end test deletes the leader's pod under load",
    )
    parser.addoption(
        "--rounds",
        type=int,
        default=0,
        help="number of times that an end-to-end test repeats a planned change; 0: its own number",
    )
    parser.addoption(
        "--fuzz-inputs",
        type=int,
        default=1_000_000,
        help="total number of hostile inputs for the decoders",
    )
    parser.addoption("--fuzz-seed", type=int, default=1, help="seed of the hostile inputs")
    parser.addoption(
        "--flood-seconds",
        type=float,
        default=12.0,
        help="duration of a flood of hostile connections to a leader (-m fuzz); cut off every 5 s",
    )
    parser.addoption(
        "--stall-seconds",
        type=float,
        default=15.0,
        help="how long the disk of a member stalls (-m storage)",
    )
    parser.addoption(
        "--trouble-seconds",
        type=float,
        default=10.0,
        help="how long the API server has changing faults (tests/kube/test_long_api_trouble.py)",
    )
    parser.addoption(
        "--power-cuts",
        type=int,
        default=100,
        help="total number of power cuts of stores (-m powercut)",
    )
    parser.addoption(
        "--kills",
        type=int,
        default=100,
        help="total number of times that a store's writer is killed (-m storefaults)",
    )
    parser.addoption(
        "--crash-states",
        type=int,
        default=20_000,
        help="total number of crash states that are checked (-m storefaults)",
    )
    parser.addoption(
        "--corruptions",
        type=int,
        default=5_000,
        help="total number of corruptions of a store's bytes (-m storefaults)",
    )
    parser.addoption(
        "--block-faults",
        type=int,
        default=200,
        help="number of cells checked in the grid of one-block faults (-m storefaults); 0: all",
    )
