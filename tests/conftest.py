"""What belongs to the whole suite: options, which pytest takes from this file alone, and how
properties are tried.
"""

import pytest
from hypothesis import settings

# The same examples each time, however slow the machine is at that moment.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare them."""
    parser.addoption(
        "--leader-kills",
        type=int,
        default=5,
        help="how often the end-to-end test deletes the leader's pod under load",
    )
    parser.addoption(
        "--fuzz-inputs",
        type=int,
        default=1_000_000,
        help="how many hostile inputs the decoders get, all together",
    )
    parser.addoption("--fuzz-seed", type=int, default=1, help="begins their sequence")
    parser.addoption(
        "--flood-seconds",
        type=float,
        default=12.0,
        help="how long a hostile crowd is at a leader's port (-m fuzz); it is cut off every 5 s",
    )
    parser.addoption(
        "--power-cuts",
        type=int,
        default=100,
        help="how often the power fails under a store, in all (-m powercut)",
    )
    parser.addoption(
        "--kills",
        type=int,
        default=100,
        help="how often a store's writer is killed, in all (-m storefaults)",
    )
    parser.addoption(
        "--crash-states",
        type=int,
        default=20_000,
        help="how many states that a crash may leave are judged, in all (-m storefaults)",
    )
    parser.addoption(
        "--corruptions",
        type=int,
        default=5_000,
        help="how often a store's bytes change by themselves, in all (-m storefaults)",
    )
    parser.addoption(
        "--block-faults",
        type=int,
        default=200,
        help="how many cells of the grid of one-block faults are judged (-m storefaults); 0: all",
    )
