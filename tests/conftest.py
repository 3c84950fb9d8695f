"""Options that belong to the whole suite; pytest takes them from this file alone."""

import pytest


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
